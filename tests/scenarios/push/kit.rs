//! A stage whose collector accepts connections of agents.

use std::net::SocketAddr;

use serde_json::Value;
use virtfleet_tests::{
    ports,
    sim::{
        Guest, Options,
        enrol::{AgentDisk, AgentSpec, RunningAgent},
    },
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

use crate::{
    enrolment::kit::{Kit, beat, signed},
    relay::Relay,
};

/// The stage.
pub(crate) struct PushKit {
    pub(crate) kit: Kit,
    /// Where agents connect.
    pub(crate) ingest: SocketAddr,
}

impl PushKit {
    /// So many VMs in two user clusters, and a collector with these settings of `ingest`.
    pub(crate) fn new(guests: usize, settings: &str) -> Self {
        Self::build(guests, settings, beat(), |_| {})
    }

    /// The same with these pull settings.
    pub(crate) fn pulling(guests: usize, settings: &str, beat: Beat) -> Self {
        Self::build(guests, settings, beat, |_| {})
    }

    /// The same as [`Self::new`] with a changed stage.
    pub(crate) fn with(guests: usize, settings: &str, change: impl FnOnce(&mut Stage)) -> Self {
        Self::build(guests, settings, beat(), change)
    }

    fn build(guests: usize, settings: &str, beat: Beat, change: impl FnOnce(&mut Stage)) -> Self {
        let options = Options {
            guests,
            hosts: 4,
            zones: 2,
            clusters: 2.min(guests),
            ..Options::default()
        };
        let ingest = ports::free().unwrap();
        let mut stage = Stage::enrolling(options, "24h").unwrap();
        stage.set_settings(format!("ingest: {{ address: '{ingest}'{settings} }}\n"));
        change(&mut stage);
        Self {
            kit: Kit::on(stage, beat),
            ingest,
        }
    }

    /// Runs an agent in a VM that cannot be dialled.
    pub(crate) fn push(&self, guest: &Guest) -> RunningAgent {
        self.run(AgentSpec::honest(guest).unwrap().pushing(self.ingest))
    }

    pub(crate) fn run(&self, spec: AgentSpec) -> RunningAgent {
        self.kit.run(spec)
    }

    /// A disk with a certificate of the fleet's authority for a VM. Its key is not recorded.
    pub(crate) fn enrolled(&self, guest: &Guest) -> AgentDisk {
        let mut disk = AgentDisk::new().unwrap();
        signed(&self.kit.authorities(), &mut disk, guest, -60, 3600);
        disk
    }

    /// A relay that passes connections to the collector.
    pub(crate) fn relay(&self) -> Relay {
        let collector = format!("--forward.collector={}", self.ingest);
        Relay::start(self.kit.stage.path(), 1, &[&collector])
    }

    /// Waits until a VM is up by a way.
    pub(crate) fn until_way(&self, guest: &Guest, kind: &str) -> Value {
        let by_way = |vm: &Value| vm["agent"]["way"]["kind"] == kind && vm["agent"]["status"] == "up";
        let what = format!("{} is up by {kind}", guest.name);
        self.kit.stage.until_vm(guest, &what, by_way).unwrap()
    }

    /// A metric of the port.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        self.value(&format!("virtfleet_collector_ingest_{name} "))
    }

    /// Number of connections with this result.
    pub(crate) fn results(&self, result: &str) -> u64 {
        self.value(&format!(
            "virtfleet_collector_ingest_connections_total{{result=\"{result}\"}} "
        ))
    }

    /// Number of pulls without an answer.
    pub(crate) fn pulls_failed(&self) -> u64 {
        let classes = [
            "connect",
            "timeout",
            "tls",
            "no_address",
            "not_allowed",
            "wrong_vm",
        ];
        let of_class =
            |class: &str| self.value(&format!("virtfleet_collector_pulls_total{{result=\"{class}\"}} "));
        classes.map(of_class).iter().sum()
    }

    fn value(&self, start: &str) -> u64 {
        let page = self.kit.stage.text("/metrics").unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("{start} in {page}"))
            .parse()
            .unwrap()
    }

    /// What became of connections and enrolments, for a failure.
    pub(crate) fn outcomes(&self) -> String {
        let page = self.kit.stage.text("/metrics").unwrap();
        let counted = page.lines().filter(|line| {
            let is_outcome = ["_ingest_connections_total{", "_enrolments_total{"];
            is_outcome.iter().any(|part| line.contains(part)) && !line.ends_with(" 0")
        });
        counted.collect::<Vec<_>>().join("\n")
    }

    /// Waits until connections were closed for this reason.
    pub(crate) fn until_closed(&self, result: &str) {
        let what = format!("a connection is closed: {result}");
        let counted = wait::until(STAGE_TIMEOUT, &what, || self.results(result) >= 1);
        counted.unwrap_or_else(|error| panic!("{error:#}\n{}", self.outcomes()));
    }
}

/// Asserts that a VM is up by push.
pub(crate) fn pushed(vm: &Value) {
    assert_eq!(vm["agent"]["way"]["kind"], "push", "{vm:#}");
}
