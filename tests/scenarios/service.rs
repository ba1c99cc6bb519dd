//! What the agent sends to systemd as a service: settings, readiness, watchdog messages; and the
//! reconcile request that a reload creates.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{fs, os::unix::net::UnixDatagram, path::Path, time::Duration};

use nix::sys::signal::Signal;
use virtfleet_tests::{
    bins, ports,
    process::{Launch, Process},
    wait,
};

/// Maximum time for the agent to send a message, to act on a signal or to exit.
const AGENT_TIMEOUT: Duration = Duration::from_secs(30);

/// A systemd that only listens.
struct Systemd {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Systemd {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(AGENT_TIMEOUT)).unwrap();
        Self { folder, socket }
    }
    fn at(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }
    /// Starts the agent with a root filesystem of its own, watched at this period or not.
    fn start(&self, watchdog_usec: Option<&str>) -> Process {
        let address = ports::free().unwrap();
        fs::create_dir_all(self.at("root/run/virtfleet/ask")).unwrap();
        let config = self.at("agent.yaml");
        let settings = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver: {{ listeners: [{{ name: default, address: \
             \"{address}\", plain: true }}] }}\n"
        );
        fs::write(&config, settings).unwrap();
        let mut launch = Launch::new(bins::agent().unwrap())
            .args(["run", "--config"])
            .arg(&config)
            .arg("--path.rootfs")
            .arg(self.at("root"))
            .env("NOTIFY_SOCKET", self.at("notify"));
        if let Some(period) = watchdog_usec {
            launch = launch.env("WATCHDOG_USEC", period);
        }
        launch.start(self.folder.path()).unwrap()
    }
    fn receive(&self) -> String {
        let mut buffer = [0; 512];
        let length = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned()
    }
}

#[test]
fn a_watched_agent_sends_its_settings_readiness_and_watchdog_messages() {
    let systemd = Systemd::new();
    let agent = systemd.start(Some("200000"));
    let status = systemd.receive();
    assert!(status.starts_with("STATUS=serving, settings "), "{status}");
    let mut received = Vec::new();
    while received.iter().filter(|said| *said == "WATCHDOG=1").count() < 5
        || !received.contains(&"READY=1".to_owned())
    {
        received.push(systemd.receive());
    }
    agent.terminate(AGENT_TIMEOUT).unwrap();
}

#[test]
fn an_unwatched_agent_sends_no_watchdog_message_and_turns_a_reload_into_a_request() {
    let systemd = Systemd::new();
    let agent = systemd.start(None);
    assert!(systemd.receive().starts_with("STATUS="));
    assert_eq!(systemd.receive(), "READY=1");
    let request = systemd.at("root/run/virtfleet/ask/agent");
    assert!(!request.exists());
    agent.signal(Signal::SIGHUP).unwrap();
    wait::until(AGENT_TIMEOUT, "the reconcile request", || {
        Path::new(&request).exists()
    })
    .unwrap();
    agent.terminate(AGENT_TIMEOUT).unwrap();
    assert_eq!(
        systemd.receive(),
        "STOPPING=1",
        "and no watchdog message before it"
    );
}

/// Who names a settings file wants that one, and not the defaults.
#[test]
fn a_settings_file_that_is_not_there_is_an_error_for_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("agent.yaml");
    for verb in [
        &["run"][..],
        &["report"],
        &["doctor"],
        &["check-config"],
        &["plan", "disks"],
        &["apply"],
        &["disks"],
        &["dns"],
    ] {
        let done = Launch::new(bins::agent().unwrap())
            .arg("--config")
            .arg(&missing)
            .args(verb.iter().copied())
            .output(AGENT_TIMEOUT)
            .unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(78), "{verb:?}: {said}");
        assert!(said.contains(&missing.display().to_string()), "{verb:?}: {said}");
    }
}
