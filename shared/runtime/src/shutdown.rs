//! Shutdown on signals: the first SIGTERM or SIGINT starts a graceful shutdown, the second one ends
//! the wait.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels the returned token at the first SIGTERM or SIGINT; `hard` at the second.
///
/// # Errors
/// A signal handler cannot be installed.
pub fn signals() -> std::io::Result<Shutdown> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let shutdown = Shutdown {
        graceful: CancellationToken::new(),
        hard: CancellationToken::new(),
    };
    let tokens = shutdown.clone();
    tokio::spawn(async move {
        for (token, what) in [
            (&tokens.graceful, "finishing running work"),
            (&tokens.hard, "stopping at once"),
        ] {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "{what}");
            token.cancel();
        }
    });
    Ok(shutdown)
}

/// The two stages of a shutdown.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Accept no new work, finish running work.
    pub graceful: CancellationToken,
    /// Stop waiting.
    pub hard: CancellationToken,
}
