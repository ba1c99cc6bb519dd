//! What systemd hears from the agent as a service: settings, readiness, signs of life; and what a
//! reload comes to.

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

const PATIENCE: Duration = Duration::from_secs(30);

/// A systemd that only listens.
struct Systemd {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Systemd {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
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
    fn hear(&self) -> String {
        let mut buffer = [0; 512];
        let length = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned()
    }
}

#[test]
fn a_watched_agent_says_its_settings_is_ready_and_gives_signs_of_life() {
    let systemd = Systemd::new();
    let agent = systemd.start(Some("200000"));
    let status = systemd.hear();
    assert!(status.starts_with("STATUS=serving, settings "), "{status}");
    let mut heard = Vec::new();
    while heard.iter().filter(|said| *said == "WATCHDOG=1").count() < 5
        || !heard.contains(&"READY=1".to_owned())
    {
        heard.push(systemd.hear());
    }
    agent.terminate(PATIENCE).unwrap();
}

#[test]
fn an_unwatched_agent_gives_none_and_passes_a_reload_on_as_a_wish() {
    let systemd = Systemd::new();
    let agent = systemd.start(None);
    assert!(systemd.hear().starts_with("STATUS="));
    assert_eq!(systemd.hear(), "READY=1");
    let wish = systemd.at("root/run/virtfleet/ask/agent");
    assert!(!wish.exists());
    agent.signal(Signal::SIGHUP).unwrap();
    wait::until(PATIENCE, "the wish", || Path::new(&wish).exists()).unwrap();
    agent.terminate(PATIENCE).unwrap();
    assert_eq!(systemd.hear(), "STOPPING=1", "and no sign of life before it");
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
            .output(PATIENCE)
            .unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(78), "{verb:?}: {said}");
        assert!(said.contains(&missing.display().to_string()), "{verb:?}: {said}");
    }
}
