//! The real agent as one VM of a stage with a real collector.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use virtfleet_tests::{
    agent_home::AgentHome,
    process::{Launch, Process},
    sim::{self, Guest},
    stage::{STAGE_TIMEOUT, Stage},
    this_machine,
};

/// A guest on this machine, with folders of its own.
pub(crate) struct RealGuest {
    pub(crate) guest: Guest,
    pub(crate) home: AgentHome,
}

impl RealGuest {
    pub(crate) fn new(stage: &Stage) -> Self {
        Self::with(stage, "")
    }

    /// With further lines of settings.
    pub(crate) fn with(stage: &Stage, settings: &str) -> Self {
        let guest = this_machine::as_guest(stage).unwrap();
        let uuid = guest.firmware.to_string();
        let home = AgentHome::new(stage.path().join("real"), guest.address, &uuid).unwrap();
        let host = stage.plan.hosts[guest.host].name.clone();
        stage.write_vmi(&guest, &sim::vmi(&guest, &host)).unwrap();
        let client_ca = stage.ca_folder().join("clients.crt");
        home.configure(&client_ca, "", settings).unwrap();
        Self { guest, home }
    }

    /// A command of the agent, in this guest.
    pub(crate) fn command(&self, verb: &[&str]) -> Launch {
        self.home.command(verb).unwrap()
    }

    pub(crate) fn start(&self) -> Process {
        self.home.start(self.command(&["run"])).unwrap()
    }

    pub(crate) fn stop(agent: Process) {
        agent.terminate(STAGE_TIMEOUT).unwrap();
    }
}
