//! A stage whose collector issues certificates, and agents to enrol.

use std::{
    fs, io,
    net::{Shutdown, TcpStream},
    thread,
    time::Duration,
};

use serde_json::Value;
use virtfleet_collector::ca::{Authorities, CaStore, Csr, read_csr};
use virtfleet_runtime::tls::{Validity, VmIdentity};
use virtfleet_tests::{
    pki::TRUST_DOMAIN,
    process::Process,
    sim::{
        self, Guest, Options,
        enrol::{AgentDisk, AgentHost, AgentSpec, EnrolFault, RunningAgent},
    },
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

/// Pulls every second.
pub(crate) fn beat() -> Beat {
    Beat {
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
    }
}

/// Pulls with a timeout that a busy machine meets, for tests which count what is done only once
/// unless a pull comes too late.
pub(crate) fn patient() -> Beat {
    Beat {
        interval: Duration::from_secs(4),
        timeout: Duration::from_secs(4),
    }
}

/// The stage.
pub(crate) struct Kit {
    // Before the stage, whose folder its agents read.
    pub(crate) host: AgentHost,
    pub(crate) stage: Stage,
    beat: Beat,
}

impl Kit {
    /// So many VMs in two user clusters, no agent yet, and a running collector.
    pub(crate) fn new(guests: usize) -> Self {
        Self::with(guests, beat())
    }

    /// The same with these pull settings.
    pub(crate) fn with(guests: usize, beat: Beat) -> Self {
        let options = Options {
            guests,
            hosts: 4,
            zones: 2,
            clusters: 2.min(guests),
            ..Options::default()
        };
        Self::on(Stage::enrolling(options, "24h").unwrap(), beat)
    }

    /// Starts the collector of a stage.
    pub(crate) fn on(mut stage: Stage, beat: Beat) -> Self {
        stage.start_collector(beat).unwrap();
        Self {
            host: stage.agent_host().unwrap(),
            stage,
            beat,
        }
    }

    pub(crate) fn guest(&self, index: usize) -> Guest {
        self.stage.plan.guests[index].clone()
    }

    /// Runs an honest agent in every VM.
    pub(crate) fn run_all(&mut self) -> Vec<RunningAgent> {
        let guests = self.stage.plan.guests.clone();
        let run = |guest: &Guest| self.run(AgentSpec::honest(guest).unwrap());
        guests.iter().map(run).collect()
    }

    pub(crate) fn run(&self, spec: AgentSpec) -> RunningAgent {
        self.host.run(spec).unwrap()
    }

    /// Runs an agent with a fault in a VM.
    pub(crate) fn attack(&self, guest: &Guest, fault: EnrolFault) -> RunningAgent {
        self.run(AgentSpec::honest(guest).unwrap().with_fault(fault))
    }

    pub(crate) fn vm(&self, guest: &Guest) -> Value {
        let path = format!("/api/v1/vms/{}/{}", guest.cluster, guest.name);
        self.stage.json(&path).unwrap()
    }

    /// Waits until the agent of a VM answers.
    pub(crate) fn until_up(&self, guest: &Guest) -> Value {
        let up = |vm: &Value| vm["agent"]["status"] == "up";
        self.stage.until_vm(guest, "its agent is up", up).unwrap()
    }

    /// Waits until pulls of a VM fail with this class.
    pub(crate) fn until_class(&self, guest: &Guest, class: &str) -> Value {
        let fails = |vm: &Value| vm["agent"]["failure"]["class"] == class;
        let what = format!("{} fails with {class}", guest.name);
        self.stage.until_vm(guest, &what, fails).unwrap()
    }

    /// Waits until a VM is refused a certificate for this reason.
    pub(crate) fn until_refused(&self, guest: &Guest, reason: &str) -> Value {
        let refused = |vm: &Value| {
            let failure = &vm["agent"]["failure"];
            failure["class"] == "enrolment" && failure["enrolment"] == reason
        };
        let what = format!("{} is refused: {reason}", guest.name);
        self.stage.until_vm(guest, &what, refused).unwrap()
    }

    /// Waits until a VM was pulled so many times.
    pub(crate) fn let_pulls_pass(&self, guest: &Guest, count: usize) {
        let last = || self.vm(guest)["agent"]["lastTryMs"].as_u64();
        for _ in 0..count {
            let before = last();
            wait::until(STAGE_TIMEOUT, "another pull", || last() != before).unwrap();
        }
    }

    /// The finding of this id about a VM, if there is one.
    pub(crate) fn finding(&self, guest: &Guest, id: &str) -> Option<Value> {
        let vm = self.vm(guest);
        let findings = vm["findingsList"].as_array().unwrap();
        findings.iter().find(|finding| finding["id"] == id).cloned()
    }

    /// Waits for a finding, and returns it.
    pub(crate) fn until_finding(&self, guest: &Guest, id: &str) -> Value {
        wait::eventually(STAGE_TIMEOUT, id, || {
            self.finding(guest, id)
                .ok_or_else(|| anyhow::anyhow!("no finding {id}: {:#}", self.vm(guest)))
        })
        .unwrap()
    }

    /// The output of virtfleetctl.
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        self.stage.ctl().unwrap().args(args).text(STAGE_TIMEOUT).unwrap()
    }

    /// Writes the VMI with another UID, as after the VM was created again or restarted.
    pub(crate) fn recreate(&self, guest: &Guest, uid: &str) -> Guest {
        let again = Guest {
            uid: uid.to_owned(),
            ..guest.clone()
        };
        let host = self.stage.plan.hosts[guest.host].name.clone();
        self.stage.write_vmi(&again, &sim::vmi(&again, &host)).unwrap();
        again
    }

    /// Writes the VMI with a VirtualMachine that controls it, and waits until the collector has
    /// read it.
    pub(crate) fn own(&self, guest: &Guest, vm_uid: &str) {
        let host = self.stage.plan.hosts[guest.host].name.clone();
        let owned = format!(
            "  ownerReferences:\n  - {{ apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: {}, uid: {vm_uid}, \
             controller: true }}\n  labels:\n    written: {}\n",
            guest.name, guest.uid
        );
        let text = sim::vmi(guest, &host).replacen("  labels:\n", &owned, 1);
        self.stage.write_vmi(guest, &text).unwrap();
        let is_read = |vm: &Value| vm["labels"]["written"] == *guest.uid;
        self.stage.until_vm(guest, "the VMI is read", is_read).unwrap();
    }

    /// Removes the VMI.
    pub(crate) fn delete(&self, guest: &Guest) {
        fs::remove_file(self.stage.manifest(guest)).unwrap();
        wait::until(STAGE_TIMEOUT, "the VM is gone", || {
            let list = self.stage.json("/api/v1/vms").unwrap();
            let items = list["items"].as_array().unwrap();
            items
                .iter()
                .all(|vm| vm["name"] != *guest.name || vm["namespace"] != *guest.cluster)
        })
        .unwrap();
    }

    /// Restarts the collector with the same settings.
    pub(crate) fn restart_collector(&mut self) {
        self.stop_collector();
        self.stage.start_collector(self.beat).unwrap();
    }

    pub(crate) fn stop_collector(&mut self) {
        let mut collector: Process = self.stage.take_collector().unwrap();
        collector.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
        collector.wait(STAGE_TIMEOUT).unwrap();
    }

    /// The fleet's authority.
    pub(crate) fn authorities(&self) -> Authorities {
        let store = CaStore::folder(self.stage.ca_folder(), TRUST_DOMAIN);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(store.read(now())).unwrap()
    }
}

/// Passes on what each of two connections receives, until one of them ends.
pub(crate) fn join(one: TcpStream, other: TcpStream) {
    for (mut reader, mut writer) in [
        (one.try_clone().unwrap(), other.try_clone().unwrap()),
        (other, one),
    ] {
        thread::spawn(move || {
            // Its errors are one side closing the connection.
            drop(io::copy(&mut reader, &mut writer));
            drop(writer.shutdown(Shutdown::Both));
        });
    }
}

/// A certificate of the fleet's authority for the VM of `guest`, from and until so many seconds
/// from now.
pub(crate) fn signed(authorities: &Authorities, disk: &mut AgentDisk, guest: &Guest, from: i64, until: i64) {
    let pem = authorities
        .sign_agent(csr(disk).key(), &identity(guest), validity(from, until))
        .unwrap()
        .chain_pem;
    disk.accept(&pem).unwrap();
}

pub(crate) fn csr(disk: &AgentDisk) -> Csr {
    let nonce = virtfleet_wire::enrolment::Nonce::from_bytes([0; 32]);
    read_csr(&disk.csr(&nonce, &[]).unwrap()).unwrap()
}

pub(crate) fn identity(guest: &Guest) -> VmIdentity {
    VmIdentity {
        trust_domain: TRUST_DOMAIN.to_owned(),
        namespace: guest.cluster.parse().unwrap(),
        name: guest.name.parse().unwrap(),
        uid: guest.uid.parse().unwrap(),
    }
}

pub(crate) fn validity(from: i64, until: i64) -> Validity {
    Validity {
        not_before: now().saturating_add_signed(from),
        not_after: now().saturating_add_signed(until),
    }
}

pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}
