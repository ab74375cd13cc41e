//! Starts the program, waits for it, and never for ever.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// No test's program takes longer, on a machine however busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A program that has ended.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The program, not started: no variable of the caller's environment reaches it.
pub fn anabranch(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    // Nor do the agents of whoever runs the tests.
    let nowhere = "/nonexistent";
    command.args(args).stdin(Stdio::null()).env("TERM", "dumb").env("XDG_CONFIG_HOME", nowhere);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ANABRANCH_") || text.ends_with("_API_KEY") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Running::new(child).end()
}

/// A directory with a script in it, which is the workspace too.
pub struct Scripted(TempDir);

impl Scripted {
    /// `agents` of a script.
    pub fn new(agents: Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = json!({"anabranch_script": 1, "agents": agents});
        std::fs::write(directory.path().join("script.json"), script.to_string()).unwrap();
        Self(directory)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// `anabranch run go` with this script and these further arguments, not started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = anabranch(&["run", "go", "--model", "script:script.json"]);
        command.args(args).current_dir(self.path());
        command
    }

    /// The same, to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        finish(self.command(args))
    }

    /// The same with its messages as the output, up to the first message that `until` is true of.
    pub fn run_until(&self, args: &[&str], until: impl Fn(&Value) -> bool) -> Running {
        let mut command = self.command(&["--output", "jsonl"]);
        command.args(args);
        Running::until(command, until)
    }
}

/// A root that asks for children, which all do the same.
pub fn parent_of(children: usize, child_turns: Value) -> Value {
    let calls: Vec<Value> = (0..children)
        .map(|number| {
            let arguments = json!({"description": format!("child {number}"), "prompt": "work"});
            json!({"name": "run_subtask", "arguments": arguments})
        })
        .collect();
    json!([
        {"when": {"depth": 0}, "turns": [{"text": "I delegate.", "tool_calls": calls}, {"text": "Done."}]},
        {"turns": child_turns},
    ])
}

/// A program that runs.
pub struct Running {
    child: Child,
    /// Its output as far as it was read already.
    read: Vec<u8>,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    pub fn new(mut child: Child) -> Self {
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, read: Vec::new(), stdout }
    }

    /// Starts a program and reads its messages up to the first that `until` is true of.
    pub fn until(mut command: Command, until: impl Fn(&Value) -> bool) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Self::new(child);
        loop {
            let line = running.line();
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line:?}"));
            if until(&message) {
                return running;
            }
        }
    }

    /// The next line of its output, which there has to be.
    pub fn line(&mut self) -> String {
        let begin = self.read.len();
        self.stdout.as_mut().unwrap().read_until(b'\n', &mut self.read).unwrap();
        String::from_utf8(self.read[begin..].to_vec()).unwrap()
    }

    /// Closes its standard output.
    pub fn close_stdout(&mut self) {
        self.stdout = None;
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status =
            Command::new("kill").args([&format!("-{name}"), &id]).stderr(Stdio::null()).status().unwrap();
        // One that has just ended takes no signal.
        let _ = status;
    }

    /// Waits for its end, reading on; `meanwhile` is called now and then until it comes.
    pub fn end_with(mut self, pause: Duration, meanwhile: impl Fn(&Self)) -> Ran {
        let (stdout, stderr) = (self.stdout.take(), self.child.stderr.take());
        let rest = stdout.map(gather);
        let errors = stderr.map(gather);
        let waits = PATIENCE.as_millis() / pause.as_millis().max(1);
        let errors = errors.map(|errors| {
            for _ in 0..waits {
                // Its stderr is closed when it ends.
                match errors.recv_timeout(pause) {
                    Ok(bytes) => return bytes,
                    Err(_) => meanwhile(&self),
                }
            }
            let _ = self.child.kill();
            panic!("the program does not end");
        });
        let status = self.child.wait().unwrap();
        let mut stdout = std::mem::take(&mut self.read);
        stdout.extend(rest.map(|rest| rest.recv_timeout(PATIENCE).unwrap()).unwrap_or_default());
        Ran {
            status: status.code().unwrap_or(-1),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(errors.unwrap_or_default()).unwrap(),
        }
    }

    /// Waits for its end, reading on.
    pub fn end(self) -> Ran {
        self.end_with(PATIENCE, |_| {})
    }

    /// Waits for its end without reading its standard output.
    pub fn end_unread(mut self) -> Ran {
        let unread = self.stdout.take();
        let ran = self.end();
        drop(unread);
        ran
    }
}

fn gather(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        tell.send(bytes)
    });
    told
}

impl Ran {
    /// The output as messages, which it has to be.
    pub fn messages(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The messages of one kind.
    pub fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.messages().into_iter().filter(|message| message["type"] == kind).collect()
    }

    /// Holds the output against the invariants, with the program itself.
    pub fn verified(self) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log.jsonl");
        std::fs::write(&log, &self.stdout).unwrap();
        let verified = finish(anabranch(&["verify", log.to_str().unwrap()]));
        assert!(verified.status == 0 && verified.stdout.starts_with("ok: "), "{verified:?}\n{}", self.stdout);
        self
    }
}

/// Times, which no two runs share, as zeros.
pub fn without_times(text: &str) -> String {
    let log = regex::Regex::new(r#""time":"[^"]*""#).unwrap();
    let text = log.replace_all(text, r#""time":"2026-01-01T00:00:00.000000Z""#);
    let text = regex::Regex::new(r#""duration_ms":\d+"#).unwrap().replace_all(&text, r#""duration_ms":0"#);
    regex::Regex::new(r"· (\d+ms|\d+\.\ds)").unwrap().replace_all(&text, "· 0ms").into_owned()
}

/// Compares with a file under `tests/it/golden`. To accept a change: `UPDATE_GOLDEN=1 cargo test`.
pub fn golden(name: &str, text: &str) {
    let path = golden_directory().join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{name} differs");
}

pub fn golden_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden")
}
