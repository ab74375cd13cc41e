//! Programs in processes of their own.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::task::{Context, Poll, ready};

use futures::Stream;
use serde::Serialize;
use tokio::io::AsyncWrite;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_util::codec::{FramedRead, LinesCodec};

use super::child::{MAX_LINE, ToChild};
use super::port::{Ended, GuestError, GuestErrorKind, GuestEvent, HostReply, Sandbox, Session};
use super::program::Program;
use crate::message::cap_text;

/// How much may wait for a process to read it, in bytes.
const MAX_UNSENT: usize = 64 << 20;

/// Runs each program in a process of its own, which is killed when the program's time is over or its run is cancelled. Whatever
/// the program does to the engine, nothing else is harmed: a crash is an end like others.
///
/// The process has no environment, and limits of memory, of processor time and of files. It is not kept from the system's other
/// calls; the language has no way to make any.
#[derive(Debug, Clone)]
pub struct ChildProcess {
    program: PathBuf,
    args: Vec<OsString>,
}

impl ChildProcess {
    /// Starts `program` with `args` for each program: it has to call [`serve_stdio`](super::serve_stdio).
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }

    fn spawn(&self, program: Program) -> io::Result<ChildSession> {
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .env_clear()
            .current_dir(std::path::Component::RootDir.as_os_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
        let lines = FramedRead::new(stdout, LinesCodec::new_with_max_length(MAX_LINE));
        let room =
            LogRoom { lines: program.limits.log_lines, chars: program.limits.output_chars, left_out: 0 };
        let unsent = VecDeque::new();
        let mut session = ChildSession { child, stdin, lines, unsent, room, has_ended: false };
        session.send(&ToChild::Program(program));
        Ok(session)
    }
}

impl Sandbox for ChildProcess {
    fn start(&self, program: Program) -> Box<dyn Session> {
        match self.spawn(program) {
            Ok(session) => Box::new(session),
            Err(error) => {
                let text = format!("the sandbox process {} does not start: {error}", self.program.display());
                Box::new(NoSession(Some(crashed(text))))
            }
        }
    }
}

fn crashed(text: String) -> Ended {
    Ended { result: Err(GuestError::new(GuestErrorKind::Crashed, text)), lines_left_out: 0 }
}

struct ChildSession {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: FramedRead<ChildStdout, LinesCodec>,
    /// What the pipe had no room for yet: at most [`MAX_UNSENT`], and one answer.
    unsent: VecDeque<u8>,
    room: LogRoom,
    has_ended: bool,
}

/// What the program may still log. The process counts too, and is not to be trusted: it is what a program may have broken out of.
struct LogRoom {
    lines: usize,
    chars: usize,
    left_out: u64,
}

impl LogRoom {
    /// The event as it is passed on; none if there is no room for it.
    fn take(&mut self, mut event: GuestEvent) -> Option<GuestEvent> {
        match &mut event {
            GuestEvent::Log { text, .. } => {
                let chars = text.chars().count();
                let fits = self.lines > 0 && chars <= self.chars;
                if !fits {
                    self.lines = 0;
                    self.left_out += 1;
                    return None;
                }
                self.lines -= 1;
                self.chars -= chars;
            }
            GuestEvent::Ended(ended) => {
                ended.lines_left_out = ended.lines_left_out.saturating_add(self.left_out);
            }
            GuestEvent::Ask { .. } | GuestEvent::Waiting { .. } => {}
        }
        Some(event)
    }
}

impl ChildSession {
    fn send(&mut self, line: &impl Serialize) {
        // All of it is ours, and has a form in JSON.
        if serde_json::to_writer(&mut self.unsent, line).is_ok() {
            self.unsent.push_back(b'\n');
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) {
        while let Some(stdin) = self.stdin.as_mut().filter(|_| !self.unsent.is_empty()) {
            match Pin::new(stdin).poll_write(cx, self.unsent.as_slices().0) {
                Poll::Ready(Ok(written)) if written > 0 => drop(self.unsent.drain(..written)),
                // Gone: what it said before, and how it ended, is read from the other pipe.
                Poll::Ready(_) => self.stdin = None,
                Poll::Pending => return,
            }
        }
    }

    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        let wait = std::pin::pin!(self.child.wait());
        // Made anew for each poll: the child itself remembers how it ended.
        wait.poll(cx)
    }
}

impl Session for ChildSession {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<GuestEvent>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        self.poll_send(cx);
        if self.unsent.len() > MAX_UNSENT {
            self.has_ended = true;
            let text = "the sandbox process does not read the answers to what it asks";
            return Poll::Ready(Some(GuestEvent::Ended(crashed(text.to_owned()))));
        }
        let event = loop {
            let text = match ready!(Pin::new(&mut self.lines).poll_next(cx)) {
                Some(Ok(line)) => match serde_json::from_str(&line) {
                    Ok(event) => match self.room.take(event) {
                        Some(event) => break event,
                        None => continue,
                    },
                    // A line that was cut: what comes next is the process's end.
                    Err(error) if error.is_eof() => continue,
                    Err(error) => {
                        let line = cap_text(&line, 200);
                        format!("the sandbox process said what is no event ({error}): {line}")
                    }
                },
                Some(Err(error)) => format!("the sandbox process cannot be heard: {error}"),
                None => match ready!(self.poll_exit(cx)) {
                    Ok(status) => format!("the sandbox process crashed ({status})"),
                    Err(error) => format!("the sandbox process crashed ({error})"),
                },
            };
            break GuestEvent::Ended(crashed(text));
        };
        if matches!(event, GuestEvent::Ended(_)) {
            self.has_ended = true;
        }
        Poll::Ready(Some(event))
    }

    fn reply(&mut self, reply: HostReply) {
        self.send(&ToChild::Reply(reply));
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.start_kill();
        self.poll_exit(cx).map(drop)
    }
}

/// A program whose process did not come into being.
struct NoSession(Option<Ended>);

impl Session for NoSession {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Option<GuestEvent>> {
        Poll::Ready(self.0.take().map(GuestEvent::Ended))
    }

    fn reply(&mut self, _: HostReply) {}

    fn poll_closed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}
