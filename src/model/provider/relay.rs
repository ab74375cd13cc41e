//! What stands between genai and the network: it sees the bytes of an answer first, and bounds them.
//!
//! genai keeps an event, and the body of an error, until it ends, however long it is; and it copies what it has of an event with each
//! piece that comes. Its client lets nobody stand between it and the socket. So it is given an address on loopback that this call alone
//! listens at, and what it asks there is asked of the provider here: an answer goes on to it in whole events.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use reqwest::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap};
use reqwest::{Method, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::events::{Framing, Whole};
use super::lines::MAX_EVENT;
use super::server::{MAX_ERROR_BODY, Shared};
use crate::model::{ModelError, ModelErrorKind};

/// The longest head of a request of genai's: names of headers, and the key.
const MAX_HEAD: usize = 64 * 1024;

/// How many others may be connected before genai is; more are turned away.
const MAX_STRANGERS: usize = 16;

/// The relay of one call. It runs within the polls of its call, and ends with it.
pub(super) struct Relay {
    address: SocketAddr,
    /// Part of the path that genai is told: whoever does not know it is no part of this program.
    secret: String,
    work: Option<BoxFuture<'static, ()>>,
    fault: Arc<Mutex<Option<ModelError>>>,
}

impl Relay {
    /// Listens, and asks nobody before it is asked.
    ///
    /// # Errors
    ///
    /// [`ModelErrorKind::Network`] if this machine does not let the program listen on loopback.
    pub(super) async fn listen(server: Shared, framing: Framing) -> Result<Self, ModelError> {
        let refused = |error: io::Error| {
            let text =
                format!("cannot listen on loopback, through which this provider is spoken to: {error}");
            ModelError::new(ModelErrorKind::Network, text)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let secret = Uuid::now_v7().simple().to_string();
        let fault = Arc::new(Mutex::new(None));
        let path = format!("/{secret}/");
        let told = Arc::clone(&fault);
        let work = async move {
            let asked = first_of_us(listener, &path).await;
            if let Some(mut asked) = asked
                && let Err(error) = answer(&mut asked, &server, framing).await
            {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        Ok(Self { address, secret, work: Some(work.boxed()), fault })
    }

    /// The address that genai is told, with a slash at the end.
    pub(super) fn base(&self) -> String {
        format!("http://{}/{}/", self.address, self.secret)
    }

    /// Goes on.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(work) = &mut self.work
            && work.poll_unpin(cx) == Poll::Ready(())
        {
            self.work = None;
        }
    }

    /// What ended the answer, if it did not just end.
    pub(super) fn fault(&self) -> Option<ModelError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What genai asks, and where it waits for the answer.
struct Asked {
    socket: TcpStream,
    method: Method,
    /// What stands behind the secret: a path and a query.
    target: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// The first request that knows the secret. Anybody on this machine may connect: who does not know it is turned away, and who says
/// nothing keeps nobody waiting.
async fn first_of_us(listener: TcpListener, path: &str) -> Option<Asked> {
    let mut arriving = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted.ok()?;
                if arriving.len() < MAX_STRANGERS {
                    arriving.push(read(socket, path));
                }
            }
            Some(asked) = arriving.next() => {
                if let Some(asked) = asked {
                    return Some(asked);
                }
            }
        }
    }
}

/// A request, if it knows the secret.
async fn read(mut socket: TcpStream, path: &str) -> Option<Asked> {
    let mut bytes = Vec::new();
    let (length, method, target, mut headers) = loop {
        if bytes.len() > MAX_HEAD || socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut fields);
        let httparse::Status::Complete(length) = request.parse(&bytes).ok()? else { continue };
        let target = request.path?.strip_prefix(path)?.to_owned();
        let mut headers = HeaderMap::new();
        for field in request.headers.iter() {
            let name = reqwest::header::HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            headers.append(name, reqwest::header::HeaderValue::from_bytes(field.value).ok()?);
        }
        break (length, request.method?.parse::<Method>().ok()?, target, headers);
    };
    let mut body = bytes.split_off(length);
    let announced =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    while body.len() < announced.unwrap_or(0) {
        if socket.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    for name in [HOST, CONTENT_LENGTH, CONNECTION, ACCEPT_ENCODING] {
        headers.remove(name);
    }
    Some(Asked { socket, method, target, headers, body })
}

/// Asks the provider, and hands its answer on in whole events.
async fn answer(asked: &mut Asked, server: &Shared, framing: Framing) -> Result<(), ModelError> {
    let (path, query) = match asked.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (asked.target.as_str(), None),
    };
    let mut url = server.base.clone();
    url.set_path(&format!("{}{path}", server.base.path()));
    if query.is_some() {
        url.set_query(query);
    }
    let request =
        server.client.request(asked.method.clone(), url).headers(std::mem::take(&mut asked.headers));
    let sent = request.body(std::mem::take(&mut asked.body)).send();
    let mut response = match timeout(server.idle, sent).await {
        Ok(sent) => sent.map_err(|error| server.unreachable(error))?,
        Err(_) => return Err(server.silent(server.idle)),
    };
    if !response.status().is_success() {
        let (status, headers) = (response.status(), response.headers().clone());
        let said = error_body(response, server.idle).await;
        return Err(server.refused(status, &headers, &said));
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\nconnection: close\r\n\r\n";
    asked.socket.write_all(head.as_bytes()).await.map_err(|error| lost(&error))?;
    let mut whole = Whole::new(framing);
    loop {
        let piece = match timeout(server.idle, response.chunk()).await {
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Err(server.unreachable(error)),
            Err(_) => return Err(server.silent(server.idle)),
        };
        let events = whole.push(&piece).map_err(|_| too_long())?;
        asked.socket.write_all(&events).await.map_err(|error| lost(&error))?;
    }
    // A last event without its end may be whole: genai decides.
    asked.socket.write_all(whole.rest()).await.map_err(|error| lost(&error))?;
    asked.socket.shutdown().await.map_err(|error| lost(&error))
}

fn too_long() -> ModelError {
    let text = format!("the server sent an event of more than {} MiB", MAX_EVENT >> 20);
    ModelError::new(ModelErrorKind::Protocol, text)
}

/// genai has left.
fn lost(error: &io::Error) -> ModelError {
    ModelError::new(ModelErrorKind::Network, format!("the answer was not read to its end: {error}"))
}

/// The body of an error, as much of it as comes: not more than 64 KiB, and not for longer than a server may be silent.
pub(super) async fn error_body(mut response: Response, idle: std::time::Duration) -> Vec<u8> {
    let mut body = Vec::new();
    let until = Instant::now() + idle;
    while body.len() < MAX_ERROR_BODY
        && let Ok(Ok(Some(piece))) = timeout_at(until, response.chunk()).await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(MAX_ERROR_BODY);
    body
}
