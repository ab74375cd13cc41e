//! Where a model is, and the connection to it: the same for every protocol.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};

use super::fault;
use super::key::ApiKey;
use super::price::{Price, priced};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{ChatEvent, ModelError, ModelErrorKind};

/// How long a connection may take to come about, unless said otherwise.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// How long a server may send nothing, unless said otherwise: a small machine that reads a long prompt takes minutes.
pub(super) const IDLE: Duration = Duration::from_mins(5);

/// So many times as long it may send what is nothing of the answer: some keep a connection alive while a request waits its turn.
const STALL: u32 = 6;

/// How long what comes behind the reason of an end is waited for, the counters and the end itself, whatever else comes meanwhile. A
/// server that has it sends it at once; a packet that is lost on the way is sent again after a second, and after two more (RFC 6298).
pub(super) const TAIL: Duration = Duration::from_secs(5);

/// The longest body of an error that is read.
pub(super) const MAX_ERROR_BODY: usize = 64 * 1024;

/// One model on one server.
pub(super) struct Server {
    pub(super) client: Client,
    /// With a slash at the end of its path.
    pub(super) base: Url,
    /// The address as it may be shown: without user, password and query.
    pub(super) shown: String,
    pub(super) key: Option<ApiKey>,
    pub(super) model: String,
    pub(super) connect: Duration,
    pub(super) idle: Duration,
    pub(super) price: Option<&'static Price>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shown, key, model, connect, idle, .. } = self;
        f.debug_struct("Server")
            .field("at", shown)
            .field("model", model)
            .field("key", key)
            .field("connect", connect)
            .field("idle", idle)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A message of ours with the address, or of a server that may quote the key.
    pub(super) fn error(&self, kind: ModelErrorKind, text: String) -> ModelError {
        self.cleaned(ModelError::new(kind, text))
    }

    /// The error without the key in its words.
    pub(super) fn cleaned(&self, mut error: ModelError) -> ModelError {
        if let Some(key) = &self.key {
            error.message = key.redact(error.message);
        }
        error
    }

    /// What a transport error means.
    pub(super) fn unreachable(&self, error: reqwest::Error) -> ModelError {
        // Its text has the address, and the address may have a key.
        self.transport(&error.without_url())
    }

    /// What a transport error means, of which only its causes are quoted.
    pub(super) fn transport(&self, error: &reqwest::Error) -> ModelError {
        let shown = &self.shown;
        if error.is_timeout() && error.is_connect() {
            let text =
                format!("no connection to {shown} within {}", humantime::format_duration(self.connect));
            return self.error(ModelErrorKind::Network, text);
        }
        let words =
            std::error::Error::source(error).map_or_else(|| "no cause given".to_owned(), fault::chain);
        if error.is_connect() {
            return self.error(ModelErrorKind::Network, format!("cannot reach {shown}: {words}"));
        }
        if error.is_builder() {
            return self.error(
                ModelErrorKind::BadRequest,
                format!("the request to {shown} cannot be made: {words}"),
            );
        }
        self.error(ModelErrorKind::Network, format!("the connection to {shown} broke: {words}"))
    }

    /// The server has sent nothing for too long.
    pub(super) fn silent(&self, waited: Duration) -> ModelError {
        let text = format!("no byte from {} for {}", self.shown, humantime::format_duration(waited));
        self.error(ModelErrorKind::Timeout, text)
    }

    /// How long it may say nothing of the answer, however much else it sends.
    pub(super) fn stall(&self) -> Duration {
        self.idle.saturating_mul(STALL)
    }

    /// The server keeps the connection alive, and that is all.
    pub(super) fn stalled(&self) -> ModelError {
        let waited = humantime::format_duration(self.stall());
        let text = format!("nothing of the answer from {} for {waited}, although it sends", self.shown);
        self.error(ModelErrorKind::Timeout, text)
    }

    /// What another status than 200 means. Where the address may be the reason, it is told.
    pub(super) fn refused(&self, status: StatusCode, headers: &HeaderMap, said: &[u8]) -> ModelError {
        let mut error = fault::of_status(status, headers, said);
        let hint = match status.as_u16() {
            300..400 => "a redirect is not followed: is it the address that the server has now",
            404 | 405 => "are this address and the name of the model right",
            _ => return error,
        };
        error.message = format!("{} (asked at {}; {hint}?)", error.message, self.shown);
        error
    }

    /// The event with what it cost, and without the key.
    pub(super) fn finished(&self, event: Result<ChatEvent, ModelError>) -> Result<ChatEvent, ModelError> {
        match event {
            Ok(event) => Ok(priced(event, self.price)),
            Err(error) => Err(self.cleaned(error)),
        }
    }
}

/// The address of a server, checked.
pub(super) fn base_url(text: &str) -> Result<Url> {
    let refuse = |shown: &str, reason: &str| {
        Err(Error::new(ErrorKind::BaseUrl { url: shown.to_owned(), reason: reason.to_owned() }))
    };
    let Ok(mut url) = Url::parse(text.trim()) else {
        // What is no address is shown without what may be a password in it.
        let shown = text.rsplit('@').next().unwrap_or_default();
        return refuse(shown, "it is no address; write it like http://127.0.0.1:8080/v1");
    };
    if !matches!(url.scheme(), "http" | "https") {
        return refuse(
            &shown(&url),
            "it has to begin with http:// or https://, like http://127.0.0.1:8080/v1",
        );
    }
    if url.host_str().is_none_or(str::is_empty) {
        return refuse(&shown(&url), "it names no host");
    }
    url.set_fragment(None);
    // People copy the whole address of the endpoint.
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/chat/completions").unwrap_or(path);
    let path = format!("{path}/");
    url.set_path(&path);
    Ok(url)
}

/// The address as it may be shown.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.as_str().trim_end_matches('/').to_owned()
}

/// Whether the address is this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_name = host == "localhost" || host.ends_with(".localhost");
    is_name || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The HTTP client for one server.
pub(super) fn client(provider: &str, base: &Url, key: Option<&ApiKey>, connect: Duration) -> Result<Client> {
    let refuse = |reason: String| Error::new(ErrorKind::Client { provider: provider.to_owned(), reason });
    // The client panics without one. A program that has installed its own keeps it.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut headers = HeaderMap::new();
    if let Some(key) = key {
        let value = HeaderValue::from_str(&format!("Bearer {}", key.expose()));
        let mut value =
            value.map_err(|_| refuse("the key has a character that no header takes".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let mut builder = Client::builder()
        .user_agent(concat!("anabranch/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect)
        .tcp_nodelay(true)
        // A redirected request would lose its body, and might carry the key to another host.
        .redirect(Policy::none())
        .default_headers(headers);
    if is_loopback(base) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| refuse(fault::chain(&error.without_url())))
}

/// A server that streams share.
pub(super) type Shared = Arc<Server>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_checked_and_shown_without_secrets() {
        let url = base_url("http://user:secret@127.0.0.1:8080/v1/chat/completions?key=secret").unwrap();
        assert_eq!(url.path(), "/v1/");
        assert_eq!(shown(&url), "http://127.0.0.1:8080/v1");
        for (text, said) in [
            ("127.0.0.1:8080", "it is no address"),
            ("ftp://host/v1", "http://"),
            ("not an address user:secret@host", "it is no address"),
        ] {
            let error = base_url(text).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        for (text, is) in [
            ("http://localhost:1/", true),
            ("http://127.3.2.1/", true),
            ("http://[::1]:8080/v1", true),
            ("http://0.0.0.0/", false),
            ("https://localhost.example.com/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(text).unwrap()), is, "{text}");
        }
    }
}
