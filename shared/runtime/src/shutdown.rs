//! When to stop: SIGTERM or SIGINT begins a graceful shutdown, a second one of them ends the wait.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels the returned token at the first SIGTERM or SIGINT; `hard` at the second.
///
/// Errors: the kernel refuses a signal handler.
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
            (&tokens.graceful, "finishing what runs"),
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

/// The two stages of stopping.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Take no new work, finish what runs.
    pub graceful: CancellationToken,
    /// Do not wait any longer.
    pub hard: CancellationToken,
}
