//! A provider's model as the port sees it, and how it is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::genai::GenaiModel;
use super::key::ApiKey;
use super::name::ProviderName;
use super::price::Price;
use super::request::Dialect;
use super::server::{CONNECT, IDLE, Server, Shared, base_url, client, is_loopback, shown};
use super::stream;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{ChatModel, ChatRequest, ChatStream, Gate, Gated};

/// A model of a provider over HTTP.
///
/// Clones are the same model: they share its connections, and the gate that a "too many requests" shuts.
///
/// # Cancel safety
///
/// Dropping the stream of a turn closes its connection.
///
/// # Examples
///
/// ```
/// use anabranch::model::{ChatModel, ProviderModel};
///
/// // A server on this machine needs no key.
/// let model = ProviderModel::builder("openai:qwen".parse()?).base_url("http://127.0.0.1:8080/v1").build()?;
/// assert_eq!(model.name(), "openai:qwen");
/// # Ok::<(), anabranch::error::Error>(())
/// ```
#[derive(Clone)]
pub struct ProviderModel {
    gated: Gated,
    server: Shared,
}

impl ProviderModel {
    /// How the model of this name is to be reached.
    pub fn builder(name: ProviderName) -> ProviderBuilder {
        ProviderBuilder {
            name,
            base_url: None,
            key: None,
            connect: CONNECT,
            idle: IDLE,
            gate: Gate::default(),
        }
    }
}

impl fmt::Debug for ProviderModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.gated.name();
        f.debug_struct("ProviderModel").field("name", &name).field("server", &self.server).finish()
    }
}

impl ChatModel for ProviderModel {
    fn name(&self) -> &str {
        self.gated.name()
    }

    fn pause(&self) -> Option<Duration> {
        self.gated.pause()
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        self.gated.chat(request)
    }
}

/// Builds a [`ProviderModel`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ProviderBuilder {
    name: ProviderName,
    base_url: Option<String>,
    key: Option<ApiKey>,
    connect: Duration,
    idle: Duration,
    gate: Gate,
}

impl ProviderBuilder {
    /// Another server that speaks the provider's protocol, such as `http://127.0.0.1:8080/v1`. Default: the provider's own.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The key. Default: what the provider's usual variable holds, such as `OPENAI_API_KEY`. On loopback none is needed.
    pub fn api_key(mut self, key: &str) -> Self {
        self.key = Some(ApiKey::new(key));
        self
    }

    /// How long a connection may take to come about. Default 10 s. Then the call fails, and is tried again.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect = timeout;
        self
    }

    /// How long the server may send no byte, before the answer and within it. Default 5 min. Six times as long it may send what
    /// is nothing of the answer, such as comments that keep the connection alive. Then the call fails; it is tried again if
    /// nothing of the answer was seen.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle = timeout;
        self
    }

    /// A gate that is shared with other models, because the provider counts their requests together. Default: one of its own.
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// The model, with a key from the environment if none was given. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Key`]: there is no key; it names the variable
    /// - [`ErrorKind::BaseUrl`]: the address cannot be used, or a part of it that the environment says is missing
    /// - [`ErrorKind::Client`]: the client cannot be made, for instance of a key that no header takes
    pub fn build(self) -> Result<ProviderModel> {
        self.build_with(|variable| std::env::var(variable).ok())
    }

    /// The model, with a key from `variables` if none was given. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_with(self, variables: impl Fn(&str) -> Option<String>) -> Result<ProviderModel> {
        let provider = self.name.entry();
        let own = || provider.address(&variables);
        let is_own_address = match &self.base_url {
            None => true,
            // Where the environment does not say its own address, another one was given.
            Some(given) => own().is_ok_and(|own| base_url(given).is_ok_and(|given| given.as_str() == own)),
        };
        let base = base_url(&self.base_url.map_or_else(own, Ok)?)?;
        let found =
            || provider.keys.iter().find_map(|key| variables(key).filter(|key| !key.trim().is_empty()));
        let key = self.key.or_else(|| found().map(|key| ApiKey::new(&key)));
        if let (None, Some(variable), false) = (&key, provider.keys.first(), is_loopback(&base)) {
            let variable = (*variable).to_owned();
            return Err(Error::new(ErrorKind::Key { provider: provider.name.to_owned(), variable }));
        }
        let adapter = self.name.adapter();
        let bearer = key.as_ref().filter(|_| adapter.is_none());
        let client = client(provider.name, &base, bearer, self.connect)?;
        let server = Arc::new(Server {
            client,
            shown: shown(&base),
            base,
            key,
            model: self.name.model().to_owned(),
            connect: self.connect,
            idle: self.idle,
            price: Price::of(provider.name, self.name.model()).filter(|_| is_own_address),
        });
        let name = self.name.to_string();
        let gated = match adapter {
            None => {
                let dialect = Dialect::of(provider.name, is_own_address);
                Gated::new(ChatServer { name, dialect, server: Arc::clone(&server) })
            }
            Some(kind) => Gated::new(GenaiModel::new(name, kind, Arc::clone(&server))?),
        };
        Ok(ProviderModel { gated: gated.gate(self.gate), server })
    }
}

/// A server that speaks chat completions.
#[derive(Debug)]
struct ChatServer {
    name: String,
    dialect: Dialect,
    server: Shared,
}

impl ChatModel for ChatServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        stream::chat(Arc::clone(&self.server), self.dialect, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(name: &str) -> ProviderBuilder {
        ProviderModel::builder(name.parse().unwrap())
    }

    #[test]
    fn a_missing_key_names_its_variable_and_loopback_needs_none() {
        let none = |_: &str| None;
        let error = builder("anthropic:claude").build_with(none).unwrap_err();
        assert_eq!(error.to_string(), "anthropic needs a key; set ANTHROPIC_API_KEY");
        let blank = |_: &str| Some(" ".to_owned());
        assert!(builder("openai:m").base_url("http://example.com/v1").build_with(blank).is_err());
        builder("openai:m").base_url("http://127.0.0.1:1/v1").build_with(none).unwrap();
        builder("ollama:m").build_with(none).unwrap();
    }

    #[test]
    fn the_key_is_in_no_debug() {
        let with = |variable: &str| (variable == "OPENAI_API_KEY").then(|| "sk-very-secret".to_owned());
        let model = builder("openai:m").build_with(with).unwrap();
        let builder = builder("openai:m").api_key("sk-very-secret");
        let text = format!("{model:?} {builder:?} {:?}", builder.clone().api_key("sk-very-\nsecret").build());
        assert!(!text.contains("very-secret"), "{text}");
        assert!(text.contains("https://api.openai.com/v1"), "{text}");
    }
}
