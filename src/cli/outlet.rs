//! An output of this process that may be slow or stuck: a thread of its own writes it.
//!
//! A write to a pipe that nobody reads, or to a terminal that was stopped, blocks its thread for as long as that lasts.
//! Here it blocks nothing else: the tree can still be cancelled, and whoever wants to wait for the
//! reader does so with a future.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Bytes that may wait to be written before there is no more room: what a pipe holds, four times.
const ROOM: usize = 256 * 1024;

/// Buffers above this size, left from a burst, are given back.
const KEPT: usize = 1024 * 1024;

/// See the module. Clones are the same output.
#[derive(Debug, Clone)]
pub(crate) struct Outlet(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Never held while something is written.
    state: Mutex<State>,
    /// Rung when there is something to write, or nothing ever again.
    work: Condvar,
    /// Rung when a write has ended.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<u8>,
    writing: bool,
    /// The task that uses this outlet; woken when there is room if it waits for some, and when writing fails.
    waker: Option<Waker>,
    waits: bool,
    failure: Option<(io::ErrorKind, String)>,
    closed: bool,
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }

    fn poll(&mut self, cx: &Context<'_>, ready: bool) -> Poll<io::Result<()>> {
        if self.failure.is_some() {
            return Poll::Ready(self.check());
        }
        // Also where there is room: a reader that goes away has to be noticed while the run says nothing.
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
        self.waits = !ready;
        if ready { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Outlet {
    /// An output that is written by a new thread.
    pub(crate) fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writer = Arc::clone(&shared);
        std::thread::Builder::new().name("output".into()).spawn(move || write_out(&writer, out))?;
        Ok(Self(shared))
    }

    /// Adds what `write` writes; [`Self::push`] sends it off. Never blocks. After a failure nothing is taken any more.
    pub(crate) fn put(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        if state.failure.is_none() && !state.closed {
            write(&mut state.pending);
        }
    }

    /// Has everything that was put written.
    pub(crate) fn push(&self) {
        self.0.work.notify_one();
    }

    /// Ready when there is room, or with what went wrong.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        let room = state.pending.len() < ROOM;
        state.poll(cx, room)
    }

    /// Waits until everything is written.
    ///
    /// # Cancel safety
    ///
    /// Dropping it changes nothing.
    pub(crate) async fn drained(&self) -> io::Result<()> {
        self.push();
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            let drained = state.pending.is_empty() && !state.writing;
            state.poll(cx, drained)
        })
        .await
    }

    /// Whether what is put now is written at once.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.pending.is_empty() && !state.writing
    }

    /// For a process that ends: writes nothing more, and gives a write that is under way `patience` to end whole.
    /// Blocks its thread.
    pub(crate) fn stop(&self, patience: Duration) {
        let mut state = self.0.lock();
        state.closed = true;
        state.pending.clear();
        self.0.work.notify_one();
        // That it took too long is all that it could tell.
        drop(self.0.idle.wait_timeout_while(state, patience, |state| state.writing));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Bytes and flags: whole after each step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Never blocks; flushing sends off and does not wait.
impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        state.check()?;
        state.pending.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push();
        self.0.lock().check()
    }
}

/// The thread.
fn write_out(shared: &Shared, mut out: impl Write) {
    let mut bytes = Vec::new();
    loop {
        let state = shared.lock();
        let nothing = |state: &mut State| state.pending.is_empty() && !state.closed;
        let mut state = shared.work.wait_while(state, nothing).unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return;
        }
        std::mem::swap(&mut bytes, &mut state.pending);
        state.writing = true;
        // There is room now, however long the write takes.
        let waker = state.waits.then(|| state.waker.clone()).flatten();
        drop(state);
        waker.into_iter().for_each(Waker::wake);

        let written = out.write_all(&bytes).and_then(|()| out.flush());
        bytes.clear();
        bytes.shrink_to(KEPT);

        let mut state = shared.lock();
        state.writing = false;
        let failed = written.is_err();
        if let Err(error) = written {
            state.failure = Some((error.kind(), error.to_string()));
            state.pending = Vec::new();
        }
        let waker = (failed || state.waits).then(|| state.waker.clone()).flatten();
        drop(state);
        shared.idle.notify_all();
        waker.into_iter().for_each(Waker::wake);
        if failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Writes when it is let, and tells what it wrote.
    struct Slow(Receiver<io::Result<()>>, SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().unwrap()?;
            self.1.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Outlet, SyncSender<io::Result<()>>, Receiver<Vec<u8>>) {
        let (let_it, gate) = sync_channel(16);
        let (tell, told) = sync_channel(16);
        (Outlet::new(Slow(gate, tell)).unwrap(), let_it, told)
    }

    fn room(outlet: &Outlet) -> bool {
        outlet.poll_room(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn a_stuck_output_blocks_nothing_and_loses_nothing() {
        let (mut outlet, let_it, told) = slow();
        outlet.write_all(b"one").unwrap();
        outlet.flush().unwrap();
        while !outlet.0.lock().writing {
            tokio::task::yield_now().await;
        }
        outlet.put(|bytes| bytes.resize(ROOM, b'2'));
        assert!(!outlet.is_idle() && !room(&outlet));
        let_it.send(Ok(())).unwrap();
        let_it.send(Ok(())).unwrap();
        outlet.drained().await.unwrap();
        assert!(outlet.is_idle() && room(&outlet));
        assert_eq!(told.recv().unwrap(), b"one");
        assert_eq!(told.recv().unwrap().len(), ROOM);
    }

    #[tokio::test]
    async fn a_failure_stays() {
        let (mut outlet, let_it, _told) = slow();
        let_it.send(Err(io::Error::new(io::ErrorKind::BrokenPipe, "gone"))).unwrap();
        outlet.write_all(b"one").unwrap();
        assert_eq!(outlet.drained().await.unwrap_err().to_string(), "gone");
        assert_eq!(outlet.write_all(b"two").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        outlet.put(|_| panic!("nothing is taken any more"));
        assert!(outlet.is_idle());
    }

    #[test]
    fn stopping_waits_no_longer_than_it_may() {
        let (mut outlet, _let_it, _told) = slow();
        outlet.write_all(b"one").unwrap();
        outlet.push();
        outlet.stop(Duration::from_millis(1));
        outlet.put(|_| panic!("nothing is taken any more"));
    }
}
