//! A VM whose first boot installs the agent, and the collector that pulls it: common setup of
//! scenarios, soak test and benchmark of the delivery.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::{
    guest::{Disk, Guest, Scene, Seed, Start, Suite, UUID},
    real::{self, From, Mirror},
    sim,
    stage::{Beat, Stage},
};

/// A stand-in for kubelet, enabled from the first boot on, as in a node image.
const KUBELET: &str = "\
files:
- path: /etc/systemd/system/kubelet.service
  content: |
    [Unit]
    Description=kubelet's stand-in
    [Service]
    ExecStart=/bin/sleep infinity
    [Install]
    WantedBy=multi-user.target
";

/// A collector, and a scheduled VM whose first boot installs the agent.
pub struct Delivery {
    /// The collector.
    pub stage: Stage,
    /// The VM as listed in the infra cluster.
    pub who: sim::Guest,
    /// The VM.
    pub machine: Guest,
    // Keeps the mirror alive until the guest has downloaded the agent.
    _mirror: Mirror,
}

impl Delivery {
    /// Starts a VM whose user-data installs the agent: cold, or at cloud-init's first stage in the
    /// first boot.
    pub fn begin(
        scene: &Scene,
        suite: Suite,
        seed: fn(&str) -> Seed,
        from: From,
        start: Start,
    ) -> Result<Self> {
        Self::begin_at(Beat::default(), scene, suite, seed, from, start)
    }

    /// As [`Self::begin`], with these pull settings.
    pub fn begin_at(
        beat: Beat,
        scene: &Scene,
        suite: Suite,
        seed: fn(&str) -> Seed,
        from: From,
        start: Start,
    ) -> Result<Self> {
        let stage = Stage::small_at(beat)?;
        let who = real::tenant(&stage, 1, UUID)?;
        let host = stage.plan.hosts[0].name.clone();
        real::place(&stage, &who, &host)?;
        let folder = real::agent_folder(scene.path())?;
        let input = real::input(&stage, scene, &who, &[from], "", KUBELET)?;
        let user_data = real::user_data(&input)?;
        let mirror = Mirror::of(&folder, scene.path())?;
        let mut vm = real::vm(&who)
            .suite(suite)
            .seed(seed(&who.name).user_data(user_data));
        match from {
            From::Mirror => vm = vm.mirror(80, mirror.address),
            From::Disk => vm = vm.disk(Disk::folder("agent", &folder, real::DISK_LABEL).read_only()),
        }
        let machine = scene.start(&vm, start)?;
        Ok(Self {
            stage,
            who,
            machine,
            _mirror: mirror,
        })
    }

    /// Checks the end state of every delivery, with or without faults: the collector has pulled and
    /// identified the agent, and no unit of virtfleet has failed. Returns the VM from the API, and
    /// the [`real::end_state`].
    pub fn done(&self) -> Result<(Value, String)> {
        let machine = &self.machine;
        let seen = real::until_identified(&self.stage, &self.who)?;
        machine.wait_agent(real::GUEST_TIMEOUT)?;
        machine.run_until("systemctl is-active -q virtfleet-agent", "the agent's unit")?;
        let state = real::end_state(machine)?;
        let failed = machine.run("systemctl list-units --failed --no-legend --plain 'virtfleet*'")?;
        ensure!(failed.is_empty(), "{failed}");
        Ok((seen, state))
    }
}
