//! Tests of `--watch` with a real listener.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Notify;

use super::{client::Client, console::Console, target::Target, tests::Server, watch};
use crate::api::testing::{self, NOW};

/// The text written so far, with a notification for each write.
#[derive(Clone, Default)]
struct Screen {
    text: Arc<Mutex<String>>,
    bell: Arc<Notify>,
}

impl Screen {
    fn count(&self, part: &str) -> usize {
        self.text.lock().unwrap().matches(part).count()
    }
    async fn until(&self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            self.bell.notified().await;
        }
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text
            .lock()
            .unwrap()
            .push_str(&String::from_utf8_lossy(bytes));
        self.bell.notify_one();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `--watch` until the script ends, and returns the text written.
fn watched(server: &Server, args: &[&str], terminal: bool, script: impl AsyncFnOnce(Screen)) -> String {
    let cli = server.cli(args);
    let client = Client::new(&cli.connection).unwrap();
    let target = Target::of(&cli.command, &client, NOW).unwrap();
    let screen = Screen::default();
    let (mut out, mut err) = (screen.clone(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        colour: false,
        terminal,
        now: || NOW,
    };
    let seen = screen.clone();
    server.runtime.block_on(async {
        let script = async {
            let deadline = Duration::from_secs(30);
            tokio::time::timeout(deadline, script(seen))
                .await
                .expect("the expected text was never shown");
        };
        watch::watch(&cli, &client, &target, &mut console, script)
            .await
            .unwrap();
    });
    screen.text.lock().unwrap().clone()
}

#[test]
fn watching_in_a_pipe_appends_changes() {
    let server = Server::new();
    let text = watched(&server, &["vms", "-w"], false, async |screen| {
        screen.until(|screen| screen.count("NAMESPACE") == 1).await;
        server.fleet.change(|fleet| {
            let moved = fleet.vms.get_mut(&testing::key("cluster-a", "worker-0")).unwrap();
            Arc::make_mut(moved).infra_node = Some(testing::id("infra-9"));
        });
        screen.until(|screen| screen.count("infra-9") == 1).await;
        server.fleet.change(|fleet| {
            fleet.vms.remove(&testing::key("cluster-a", "worker-0"));
        });
        screen.until(|screen| screen.count("gone: ") == 1).await;
    });
    assert_eq!(text.matches("NAMESPACE").count(), 1, "{text}");
    let last: Vec<_> = text.lines().rev().take(2).collect();
    assert!(last[0].starts_with("gone: cluster-a/worker-0"), "{text}");
    assert!(
        last[1].starts_with("cluster-a") && last[1].contains("infra-9"),
        "one row, and no more: {text}"
    );
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn watching_on_a_terminal_redraws() {
    let server = Server::new();
    let text = watched(&server, &["hosts", "-w"], true, async |screen| {
        screen
            .until(|screen| screen.count("warning: 1 finding about") == 1)
            .await;
        server.fleet.change(|fleet| fleet.findings.clear());
        screen.until(|screen| screen.count("\x1b[J") == 2).await;
    });
    assert!(text.starts_with("\x1b[2J\x1b[HNAME"), "{text:?}");
    assert_eq!(text.matches("\x1b[2J").count(), 1);
    assert!(text.ends_with("\x1b[K\n\x1b[J"), "{text:?}");
}
