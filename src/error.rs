//! The error type of hosts: what a program that uses this library has to handle.
//!
//! What a *model* reads when something goes wrong is a value (`ToolReply`), never this type; a cancelled
//! run is an outcome, never this type either.

use std::path::PathBuf;

/// What went wrong, with its cause kept.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct Error {
    kind: ErrorKind,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of [`Error`]. Not exhaustive: later rooms add theirs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A line of a log is not a message.
    #[error("line {line} of the log is not a message: {reason}")]
    LogLine {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A message lacks a key that its kind needs, or a key has another type.
    #[error("not a message: {reason}")]
    Message {
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        reason: String,
    },
    /// A script of the script model is malformed.
    #[error("script {}: at {at}: {reason}", path.display())]
    Script {
        /// The script file.
        path: PathBuf,
        /// Where in it: a key path such as `agents[0].turns[2].text`, or a line and column.
        at: String,
        /// What is wrong there.
        reason: String,
    },
    /// A JSON schema does not compile.
    #[error("schema of {of} is not usable: {reason}")]
    Schema {
        /// Whose schema: a tool's name, or the file.
        of: String,
        /// What the validator says.
        reason: String,
    },
    /// A tool cannot be registered.
    #[error("tool {name:?} cannot be registered: {reason}")]
    Tool {
        /// The name it declares.
        name: String,
        /// What to change.
        reason: String,
    },
    /// A model name that nothing serves.
    #[error("unknown model {name:?}: {reason}")]
    Model {
        /// As given.
        name: String,
        /// What can be used instead.
        reason: String,
    },
    /// A provider needs a key, and no variable holds one.
    #[error("{provider} needs a key; set {variable}")]
    Key {
        /// The provider.
        provider: String,
        /// The variable that usually holds it.
        variable: String,
    },
    /// An address of a server cannot be used.
    #[error("the base URL {url:?} cannot be used: {reason}")]
    BaseUrl {
        /// As given, without what may be a key.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The client that speaks to a provider cannot be made.
    #[error("the client of {provider} cannot be made: {reason}")]
    Client {
        /// The provider.
        provider: String,
        /// What the transport says.
        reason: String,
    },
    /// A frame, a compound or one of its parts cannot be built.
    #[error("{name:?} cannot be built: {reason}")]
    Frame {
        /// Its name.
        name: String,
        /// What is missing or wrong.
        reason: String,
    },
    /// A rule of a policy is malformed.
    #[error("the rule {rule:?} is not usable: {reason}; a rule is [AGENT:]TOOL[(ARGUMENT=PATTERN;…)]")]
    Rule {
        /// As given.
        rule: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A question that this root never asked.
    #[error("no ask {ask} in this root")]
    UnknownAsk {
        /// The id asked for.
        ask: String,
    },
    /// A question that is answered already, or over.
    #[error("the ask {ask} is answered already, or its time or its run is over")]
    AskAnswered {
        /// Its id.
        ask: String,
    },
    /// A reply that does not fit the question.
    #[error("the ask {ask} cannot be answered like that: {reason}")]
    AskReply {
        /// Its id.
        ask: String,
        /// What would fit.
        reason: String,
    },
    /// No run of that id is live in this root.
    #[error("no live run {run} in this root")]
    UnknownRun {
        /// The id asked for.
        run: String,
    },
}

impl Error {
    /// An error without a deeper cause.
    #[must_use]
    pub fn new(kind: ErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// An error caused by another one.
    #[must_use]
    pub fn caused_by(kind: ErrorKind, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// Which kind it is.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

/// A result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
