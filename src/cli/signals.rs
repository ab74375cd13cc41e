//! Ctrl-C and its kin: the first cancels the tree, the second ends the process.

use std::io;
use std::process::exit;
use std::time::Duration;

use tokio::runtime::Handle;

use super::exit::ExitStatus;
use super::outlet::Outlet;
use super::panics::Panics;
use crate::context::Root;
use crate::outcome::CancelledBy;
pub(super) use listener::{Resumed, Signals};

/// How long the process has, after its tree is terminal, to print and to end by itself.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long a write that is under way has to end whole before the process does: a frame that was cut would leave the
/// terminal in the middle of a control sequence.
const LAST_WRITE: Duration = Duration::from_millis(100);

/// What is put in order before the process ends at once.
#[derive(Debug)]
pub(super) struct AtExit {
    pub(super) outlet: Option<Outlet>,
    pub(super) panics: Panics,
}

impl AtExit {
    fn leave(&self, status: ExitStatus) -> ! {
        if let Some(outlet) = &self.outlet {
            outlet.stop(LAST_WRITE);
        }
        self.panics.tell(&mut io::stderr());
        exit(status.code().into())
    }
}

/// Waits for signals on a task of its own, on this runtime. At the first one each run gets its terminal, and the process ends within the
/// grace period, even if its standard output is stuck; at the second one it ends at once.
pub(super) fn cancel_on_signal(mut signals: Signals, root: &Root, at_exit: AtExit, runtime: &Handle) {
    let root = root.clone();
    runtime.spawn(async move {
        let by = signals.next().await;
        let ended = root.cancel_all(by);
        let end = async {
            ended.await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::select! {
            _ = signals.next() => {}
            () = end => {}
        }
        at_exit.leave(ExitStatus::Cancelled);
    });
}

#[cfg(unix)]
mod listener {
    use std::io::{IsTerminal, stderr, stdin, stdout};

    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::CancelledBy;

    /// Listens from its creation on. A signal that this process was started to ignore, as `nohup` does with the hangup
    /// and a shell with the interrupt of what it starts in the background, stays ignored.
    #[derive(Debug)]
    pub(in super::super) struct Signals {
        interrupt: Option<Signal>,
        terminate: Option<Signal>,
        hangup: Option<Signal>,
    }

    impl Signals {
        pub(in super::super) fn listen() -> Self {
            let ignored = ignored();
            let listen = |kind: SignalKind, ignored: bool| match signal(kind) {
                _ if ignored => None,
                // Without a listener a signal keeps its usual effect, which ends the process.
                listener => listener.ok(),
            };
            let is_ignored = |kind: SignalKind| {
                let bit = u32::try_from(kind.as_raw_value() - 1).unwrap_or(u32::MAX);
                ignored.is_some_and(|mask| mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1))
            };
            // Where nobody tells what is ignored, a process without a terminal is taken for one that outlives it.
            let detached = || !(stdin().is_terminal() || stdout().is_terminal() || stderr().is_terminal());
            let hangup = if ignored.is_some() { is_ignored(SignalKind::hangup()) } else { detached() };
            Self {
                interrupt: listen(SignalKind::interrupt(), is_ignored(SignalKind::interrupt())),
                terminate: listen(SignalKind::terminate(), is_ignored(SignalKind::terminate())),
                hangup: listen(SignalKind::hangup(), hangup),
            }
        }

        /// The next one, and what it means.
        pub(in super::super) async fn next(&mut self) -> CancelledBy {
            tokio::select! {
                () = received(&mut self.interrupt) => CancelledBy::User,
                () = received(&mut self.terminate) => CancelledBy::Shutdown,
                () = received(&mut self.hangup) => CancelledBy::Shutdown,
            }
        }
    }

    /// Tells when the process goes on after it was stopped by Ctrl-Z.
    #[derive(Debug)]
    pub(in super::super) struct Resumed(Option<Signal>);

    impl Resumed {
        pub(in super::super) fn listen() -> Self {
            Self(signal(SignalKind::from_raw(CONT)).ok())
        }

        pub(in super::super) async fn next(&mut self) {
            received(&mut self.0).await;
        }
    }

    /// SIGCONT, by its number: that of Linux on all its usual machines, and that of the BSDs.
    const CONT: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 18 } else { 19 };

    async fn received(signal: &mut Option<Signal>) {
        let received = match signal {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if received.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// The signals that this process ignores, a bit each, where the system tells.
    fn ignored() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    }
}

#[cfg(not(unix))]
mod listener {
    use super::CancelledBy;

    /// Listens for Ctrl-C.
    #[derive(Debug)]
    pub(in super::super) struct Signals;

    impl Signals {
        pub(in super::super) fn listen() -> Self {
            Self
        }

        pub(in super::super) async fn next(&mut self) -> CancelledBy {
            match tokio::signal::ctrl_c().await {
                Ok(()) => CancelledBy::User,
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// There is nothing to go on after.
    #[derive(Debug)]
    pub(in super::super) struct Resumed;

    impl Resumed {
        pub(in super::super) fn listen() -> Self {
            Self
        }

        pub(in super::super) async fn next(&mut self) {
            std::future::pending().await
        }
    }
}
