//! The inside of a process that runs one program: JSON lines on its standard streams.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::engine::{Engine, Stop};
use super::guest::MAX_PENDING;
use super::port::{GuestEvent, HostReply};
use super::program::{GuestLimits, Program};

/// A line to the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToChild {
    /// The first: what to run.
    Program(Program),
    /// Each other: an answer.
    Reply(HostReply),
}

/// The longest line that either side takes, in bytes: several times the largest result of a tool, and what a program may pass.
pub(super) const MAX_LINE: usize = 16 << 20;

/// Runs one program for the host at the other end of the standard streams, and ends the process when the host is gone. What
/// [`ChildProcess`](super::ChildProcess) starts has to call it.
///
/// # Errors
///
/// Where the streams fail or the host does not keep to the protocol.
pub fn serve_stdio() -> io::Result<()> {
    let mut input = BufReader::new(io::stdin());
    let first = match read_line(&mut input)? {
        Some(ToChild::Program(program)) => program,
        other => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a program: {other:?}"))),
    };
    confine(&first.limits.in_range());
    // As many as may be asked at once, so that the reading never waits for the program and sees when the host is gone.
    let (deliver, replies) = sync_channel(MAX_PENDING);
    std::thread::Builder::new().stack_size(256 << 10).spawn(move || read_replies(input, &deliver))?;
    let output = Arc::new(Mutex::new(io::stdout()));
    let said = Arc::clone(&output);
    let say = Box::new(move |event| {
        // Who does not hear it is gone, and the reading of its answers ends the process.
        let _ = write_line(&mut *said.lock().unwrap_or_else(PoisonError::into_inner), &event);
    });
    let stop = Arc::new(Stop::after(first.limits.wall));
    let ended = match Engine::new(first, stop, say) {
        Err(ended) => *ended,
        Ok(mut engine) => {
            let mut answers = Vec::new();
            loop {
                if let Some(ended) = engine.step(&mut answers, true) {
                    break ended;
                }
                let first = replies.recv().map_err(io::Error::other)?;
                answers.extend(std::iter::once(first).chain(replies.try_iter()));
            }
        }
    };
    write_line(&mut *output.lock().unwrap_or_else(PoisonError::into_inner), &GuestEvent::Ended(ended))
}

fn read_replies(mut input: impl BufRead, deliver: &SyncSender<HostReply>) {
    while let Ok(Some(ToChild::Reply(reply))) = read_line(&mut input) {
        if deliver.send(reply).is_err() {
            return;
        }
    }
    // Nobody is there to answer or to hear. A native call of the program may heed nothing else.
    std::process::exit(0);
}

fn read_line(input: &mut impl BufRead) -> io::Result<Option<ToChild>> {
    let mut line = Vec::new();
    let read = input.take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

fn write_line(output: &mut impl Write, event: &GuestEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// Takes from the process what no program needs: more memory and time than it was given, files, core dumps. Where a limit cannot
/// be set, the host's deadline and the engine's own limits remain.
#[cfg(unix)]
fn confine(limits: &GuestLimits) {
    use rustix::process::{Resource, Rlimit, setrlimit};

    /// What the process itself needs besides the program's heap.
    const OWN_BYTES: u64 = 128 << 20;
    let set = |resource: Resource, max: u64| {
        let _ = setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) });
    };
    set(Resource::Data, (limits.heap_bytes as u64).saturating_add(OWN_BYTES));
    set(Resource::Cpu, limits.wall.as_secs().saturating_add(2));
    set(Resource::Core, 0);
    set(Resource::Fsize, 0);
    set(Resource::Nofile, 16);
}

#[cfg(not(unix))]
fn confine(_: &GuestLimits) {}
