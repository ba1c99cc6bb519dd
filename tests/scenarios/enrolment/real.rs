//! The real agent and the real collector.

use std::{fs, path::PathBuf};

use serde_json::Value;
use virtfleet_tests::{
    bins,
    process::{Launch, Process},
    sim::{self, Guest},
    stage::STAGE_TIMEOUT,
    this_machine,
};

use super::kit::Kit;

/// A guest on this machine, with folders of its own.
pub(crate) struct RealGuest {
    pub(crate) guest: Guest,
    pub(crate) home: PathBuf,
}

impl RealGuest {
    fn new(kit: &Kit) -> Self {
        Self::with(kit, "")
    }

    /// With further lines of settings.
    pub(crate) fn with(kit: &Kit, settings: &str) -> Self {
        let guest = this_machine::as_guest(&kit.stage).unwrap();
        let real = Self {
            home: kit.stage.path().join("real"),
            guest,
        };
        fs::create_dir_all(real.home.join("root/run/virtfleet/ask")).unwrap();
        real.set_uuid(&real.guest.firmware.to_string());
        let host = kit.stage.plan.hosts[real.guest.host].name.clone();
        kit.stage
            .write_vmi(&real.guest, &sim::vmi(&real.guest, &host))
            .unwrap();
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  \
             listeners: [{{ name: default, address: \"{}\" }}]\n  tls: {{ enrolment: true, clientCA: {} }}\n{settings}",
            real.guest.address,
            kit.stage.ca_folder().join("clients.crt").display(),
        );
        fs::write(real.home.join("agent.yaml"), text).unwrap();
        real
    }

    /// SMBIOS is all that this guest has in sysfs.
    fn set_uuid(&self, uuid: &str) {
        fs::create_dir_all(self.home.join("sys/class/dmi/id")).unwrap();
        fs::write(self.home.join("sys/class/dmi/id/product_uuid"), uuid).unwrap();
    }

    /// A command of the agent, in this guest.
    pub(crate) fn command(&self, verb: &[&str]) -> Launch {
        Launch::new(bins::agent().unwrap())
            .args(verb)
            .arg("--config")
            .arg(self.home.join("agent.yaml"))
            .arg("--path.rootfs")
            .arg(self.home.join("root"))
            .arg("--path.sysfs")
            .arg(self.home.join("sys"))
    }

    pub(crate) fn start(&self) -> Process {
        let mut agent = self.command(&["run"]).start(&self.home).unwrap();
        agent.wait_for_port(self.guest.address, STAGE_TIMEOUT).unwrap();
        agent
    }

    pub(crate) fn stop(mut agent: Process) {
        agent.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
        agent.wait(STAGE_TIMEOUT).unwrap();
    }
}

/// The recorded key.
fn key(vm: &Value) -> String {
    vm["enrolment"]["keySha256"].as_str().unwrap().to_owned()
}

#[test]
fn the_real_agent_is_enrolled_and_keeps_its_certificate() {
    let kit = Kit::new(1);
    let real = RealGuest::new(&kit);
    let agent = real.start();
    let vm = kit.until_up(&real.guest);
    assert_eq!(vm["enrolment"]["state"], "enrolled");
    assert_eq!(
        vm["identity"]["smbiosUuid"]["verdict"], "confirmed",
        "{:#}",
        vm["identity"]
    );
    RealGuest::stop(agent);
    let agent = real.start();
    kit.let_pulls_pass(&real.guest, 2);
    let again = kit.until_up(&real.guest);
    assert_eq!(
        (key(&again), &again["enrolment"]["serial"]),
        (key(&vm), &vm["enrolment"]["serial"])
    );
    RealGuest::stop(agent);
}

#[test]
fn the_real_agent_of_another_machine_is_refused() {
    let kit = Kit::new(1);
    let real = RealGuest::new(&kit);
    real.set_uuid("8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34");
    let agent = real.start();
    kit.until_refused(&real.guest, "uuid_differs");
    RealGuest::stop(agent);
}

#[test]
fn the_real_agent_of_a_vm_that_is_created_again_gets_another_key() {
    let kit = Kit::new(1);
    let real = RealGuest::new(&kit);
    let agent = real.start();
    let before = kit.until_up(&real.guest);
    let again = kit.recreate(&real.guest, "second-uid");
    let is_new = |vm: &Value| vm["enrolment"]["uid"] == "second-uid" && vm["agent"]["status"] == "up";
    let vm = kit
        .stage
        .until_vm(&again, "it is enrolled again", is_new)
        .unwrap();
    assert_ne!(key(&vm), key(&before));
    RealGuest::stop(agent);
}

#[test]
fn the_real_agent_that_lost_its_disk_is_accepted_after_a_reset() {
    let kit = Kit::new(1);
    let real = RealGuest::new(&kit);
    let agent = real.start();
    kit.until_up(&real.guest);
    RealGuest::stop(agent);
    fs::remove_dir_all(real.home.join("root")).unwrap();
    fs::create_dir_all(real.home.join("root/run/virtfleet/ask")).unwrap();
    let agent = real.start();
    kit.until_refused(&real.guest, "second_key");
    kit.ctl(&["enrolment", "reset", &real.guest.name]);
    kit.until_up(&real.guest);
    RealGuest::stop(agent);
}
