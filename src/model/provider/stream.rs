//! One chat completion over HTTP: the waiting around the decoder.

use futures::{FutureExt, StreamExt};
use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use tokio::time::{Instant, timeout, timeout_at};

use super::decoder::ChatCompletions;
use super::fault::Holds;
use super::relay::error_body;
use super::request::{Dialect, body};
use super::server::{Shared, TAIL};
use crate::model::{ChatEvent, ChatRequest, ChatStream, ModelError};

enum State {
    /// Not polled yet: nothing was sent.
    Cold(Shared, Dialect, ChatRequest),
    /// Boxed, since it is moved in and out of each step.
    Open(Box<Open>),
    Ended,
}

struct Open {
    server: Shared,
    response: Response,
    decoder: ChatCompletions,
    waiting: Waiting,
}

/// Since when what is waited for.
struct Waiting {
    /// How much of the answer was heard, and when the last of it was.
    words: u64,
    heard: Instant,
    /// Since when it is known why the answer ends.
    finished: Option<Instant>,
}

impl Waiting {
    fn begin() -> Self {
        Self { words: 0, heard: Instant::now(), finished: None }
    }

    fn note(&mut self, decoder: &ChatCompletions) {
        if decoder.words() != self.words {
            (self.words, self.heard) = (decoder.words(), Instant::now());
        }
        if self.finished.is_none() && decoder.is_finished() {
            self.finished = Some(Instant::now());
        }
    }
}

/// The stream of one turn. Dropping it closes the connection.
pub(super) fn chat(server: Shared, dialect: Dialect, request: ChatRequest) -> ChatStream {
    futures::stream::unfold(State::Cold(server, dialect, request), step).boxed()
}

async fn step(state: State) -> Option<(Result<ChatEvent, ModelError>, State)> {
    let mut open = match state {
        State::Open(open) => open,
        State::Ended => return None,
        State::Cold(server, dialect, request) => match send(&server, dialect, request).await {
            Ok(response) => {
                let (decoder, waiting) = (ChatCompletions::new(), Waiting::begin());
                Box::new(Open { server, response, decoder, waiting })
            }
            Err(error) => return Some((Err(server.cleaned(error)), State::Ended)),
        },
    };
    let event = open.next().await?;
    let event = open.server.finished(event);
    let state = if event.is_err() { State::Ended } else { State::Open(open) };
    Some((event, state))
}

async fn send(server: &Shared, dialect: Dialect, request: ChatRequest) -> Result<Response, ModelError> {
    let mut url = server.base.clone();
    url.set_path(&format!("{}chat/completions", server.base.path()));
    let holds = Holds::of(&request);
    let body = body(&server.model, dialect, &request).to_string();
    // A run that goes on may append to its history without a copy.
    drop(request);
    let request =
        server.client.post(url).header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
    let response = match timeout(server.idle, request.body(body).send()).await {
        Ok(sent) => sent.map_err(|error| server.unreachable(error))?,
        Err(_) => return Err(server.silent(server.idle)),
    };
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let headers = response.headers().clone();
    let said = error_body(response, server.idle).await;
    let mut error = server.refused(status, &headers, &said);
    holds.explain(&mut error);
    Err(error)
}

impl Open {
    async fn next(&mut self) -> Option<Result<ChatEvent, ModelError>> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                if self.decoder.is_over() {
                    // The end of the body most often came with the end of the answer: once it is read, the connection
                    // can be used again. It is not waited for.
                    let _ = self.response.chunk().now_or_never();
                }
                return Some(event);
            }
            if self.decoder.is_over() {
                return None;
            }
            let now = Instant::now();
            let stalled = self.waiting.heard + self.server.stall();
            let until = match self.waiting.finished {
                Some(finished) => finished + TAIL.min(self.server.idle),
                None => (now + self.server.idle).min(stalled),
            };
            match timeout_at(until, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.decoder.push(&bytes);
                    self.waiting.note(&self.decoder);
                    if self.decoder.is_no_stream() {
                        self.decoder.close(None);
                    }
                }
                Ok(Ok(None)) => self.decoder.close(None),
                Ok(Err(error)) => {
                    let error = self.server.unreachable(error);
                    self.decoder.close(Some(error));
                }
                Err(_) => {
                    let error = if until == stalled {
                        self.server.stalled()
                    } else {
                        self.server.silent(self.server.idle)
                    };
                    self.decoder.close(Some(error));
                }
            }
        }
    }
}
