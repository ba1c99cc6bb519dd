//! Counts and logs panics.
//!
//! A panic in the task of a pull, a watch, a user cluster or a stream ends only that task, which
//! logs the object of its work and starts again. The counter shows that there was one; each is a
//! bug.

use std::panic::{self, PanicHookInfo};

use prometheus_client::{metrics::counter::Counter, registry::Registry};

/// Registers the counter `panics`, and counts and logs each panic of this process from now on. The
/// log line replaces the text that Rust writes to standard error.
pub(crate) fn register(registry: &mut Registry) {
    let panics = Counter::<u64>::default();
    registry.register(
        "panics",
        "Panics of the program's tasks and threads; each is a bug",
        panics.clone(),
    );
    panic::set_hook(Box::new(move |info| {
        panics.inc();
        log(info);
    }));
}

fn log(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let message = info.payload_as_str().unwrap_or("not a text");
    let thread = std::thread::current();
    tracing::error!(
        %place,
        message,
        thread = thread.name().unwrap_or_default(),
        "a task panicked, which is a bug; please report it with the lines after this one"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use prometheus_client::encoding::text::encode;

    use super::*;

    /// The lines of a subscriber.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_panic_of_a_task_is_counted_and_logged_with_its_place() {
        let mut registry = Registry::with_prefix("virtfleet_collector");
        let usual = panic::take_hook();
        register(&mut registry);
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _on_this_thread = tracing::subscriber::set_default(subscriber);
        let count = |registry: &Registry| {
            let mut page = String::new();
            encode(&mut page, registry).unwrap();
            page
        };
        assert!(count(&registry).contains("virtfleet_collector_panics_total 0\n"));
        let ended = tokio::spawn(async { panic!("of {}", "vm-1") }).await;
        panic::set_hook(usual);
        assert!(ended.unwrap_err().is_panic());
        assert!(count(&registry).contains("virtfleet_collector_panics_total 1\n"));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("of vm-1") && text.contains("panics.rs:"), "{text}");
    }
}
