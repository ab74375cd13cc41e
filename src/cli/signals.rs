//! Ctrl-C and its kin: the first cancels the tree, the second ends the process.

use std::process::exit;
use std::time::Duration;

use super::exit::ExitStatus;
use crate::context::Root;
use crate::outcome::CancelledBy;

/// How long the process has, after its tree is terminal, to print and to end by itself.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Watches for signals from now on. Each run gets its terminal, and the process ends within the grace period, even if its
/// standard output is stuck.
pub(super) fn cancel_on_signal(root: &Root) {
    let root = root.clone();
    tokio::spawn(async move {
        let by = next_signal().await;
        let ended = root.cancel_all(by);
        let second = async {
            next_signal().await;
            exit(ExitStatus::Cancelled.code().into());
        };
        let end = async {
            ended.await;
            tokio::time::sleep(LAST_WORDS).await;
            exit(ExitStatus::Cancelled.code().into());
        };
        tokio::join!(second, end);
    });
}

#[cfg(unix)]
async fn next_signal() -> CancelledBy {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        // Signals keep their default effect, which ends the process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => CancelledBy::User,
        _ = terminate.recv() => CancelledBy::Shutdown,
        _ = hangup.recv() => CancelledBy::Shutdown,
    }
}

#[cfg(not(unix))]
async fn next_signal() -> CancelledBy {
    match tokio::signal::ctrl_c().await {
        Ok(()) => CancelledBy::User,
        Err(_) => std::future::pending().await,
    }
}
