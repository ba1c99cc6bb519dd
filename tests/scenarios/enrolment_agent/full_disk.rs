//! A full disk: the agent signs no CSR with a key that it could not store.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::PathBuf,
};

use hyper::StatusCode;
use virtfleet_tests::{
    bins,
    process::{Launch, Process},
    skip, wait,
};

use crate::agent_stage::{AgentStage, IDENTITY, OTHER, SOON, nonce, reason};

const TIER: u8 = 2;
/// Mounts a small tmpfs in a namespace of its own, and keeps it.
const HOLD: &str = "mount -t tmpfs -o size=256k tmpfs \"$0\" && echo mounted && exec sleep infinity";

/// A guest whose `/var/lib` is a small filesystem.
struct SmallDisk {
    stage: AgentStage,
    holder: Process,
}

impl SmallDisk {
    fn new() -> Self {
        let stage = AgentStage::new();
        fs::create_dir_all(stage.at("root/var/lib")).unwrap();
        let mut holder = Launch::new("unshare")
            .args(["--mount", "--propagation", "private", "--", "sh", "-c", HOLD])
            .arg(stage.at("root/var/lib"))
            .tied()
            .start(stage.folder.path())
            .unwrap();
        holder.wait_for_line("mounted", SOON).unwrap();
        Self { stage, holder }
    }

    fn launch(&self, verb: &str) -> Launch {
        let launch = Launch::new("nsenter")
            .args(["--mount", "--target", &self.holder.id().to_string(), "--"])
            .arg(bins::agent().unwrap())
            .arg(verb);
        self.stage.home.with_paths(launch)
    }

    fn start(&self) -> Process {
        self.stage.home.start(self.launch("run")).unwrap()
    }

    /// A path in the guest, as seen from here.
    fn path(&self, path: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.stage.at("root").strip_prefix("/").unwrap())
            .join(path)
    }

    fn fill(&self) {
        let mut file = File::create(self.path("var/lib/large")).unwrap();
        loop {
            match file.write_all(&[0; 4096]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn clear(&self) {
        fs::remove_file(self.path("var/lib/large")).unwrap();
    }
}

#[test]
fn tier2_a_full_disk_delays_enrolment_and_loses_no_key() {
    let test = "tier2_a_full_disk_delays_enrolment_and_loses_no_key";
    let Some(()) = skip::need(TIER, test, skip::root()).unwrap() else {
        return;
    };
    let disk = SmallDisk::new();
    let agent = disk.start();
    disk.stage.enrol(IDENTITY);
    // Otherwise the removal of the certificate makes room for the key.
    let files = disk.path("var/lib/virtfleet-agent");
    fs::hard_link(files.join("certificate.pem"), disk.path("var/lib/kept")).unwrap();
    disk.fill();
    let request = || disk.stage.connect().request(OTHER, &nonce(), false).unwrap();
    assert_eq!(request().status, StatusCode::CONFLICT);
    for _ in 0..2 {
        let answer = request();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        let reason = reason(&answer.body);
        assert!(
            reason.contains("cannot be stored") && reason.contains("No space left"),
            "{reason}"
        );
    }
    let says = |what: &str| wait::until(SOON, what, || agent.log().contains(what)).unwrap();
    says("the agent does not enrol");
    let doctor = disk.launch("doctor").output(SOON).unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("no space is free"), "{doctor}");

    disk.clear();
    disk.stage.enrol(OTHER);
    let key = disk.stage.connect().public_key().unwrap();
    says("the agent's key is stored");
    agent.terminate(SOON).unwrap();
    let _agent = disk.start();
    let collector = disk.stage.connect();
    assert_eq!(collector.public_key().unwrap(), key, "after a restart");
    assert_eq!(collector.identity().as_deref(), Some(OTHER));
}

#[test]
fn tier2_the_first_key_waits_for_space_too() {
    let test = "tier2_the_first_key_waits_for_space_too";
    let Some(()) = skip::need(TIER, test, skip::root()).unwrap() else {
        return;
    };
    let disk = SmallDisk::new();
    disk.fill();
    let agent = disk.start();
    let answer = disk.stage.connect().request(IDENTITY, &nonce(), false).unwrap();
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    disk.clear();
    disk.stage.enrol(IDENTITY);
    let key = disk.stage.connect().public_key().unwrap();
    agent.terminate(SOON).unwrap();
    let _agent = disk.start();
    assert_eq!(disk.stage.connect().public_key().unwrap(), key);
}
