//! Real VMs of the demonstration: cloud-init brings the agent, the collector enrols it, the agent
//! formats and mounts a blank disk, and the first VM is migrated while it runs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;
use virtfleet_tests::{
    guest::{Disk, Guest as Machine, Scene, Seed, Start, Suite, UUID, needs},
    real::{self, DISK_LABEL},
    sim::Guest,
    stage::Stage,
};

/// Index of the infra node from which the first VM is migrated, and of the one to which.
const HOSTS: [usize; 2] = [0, 1];
/// Time between the last enrolment and the migration, to look at the VMs.
const LOOK: Duration = Duration::from_secs(10);
const GIB: u64 = 1 << 30;
/// Settings of the agents: what they do with the VMs' second disk.
const SETTINGS: &str =
    "  disks:\n  - name: data\n    match: { serial: data }\n    mountPoint: /var/lib/data\n";

/// The VMs, and how far they are.
pub(crate) struct RealVms {
    vms: Vec<RealVm>,
    begun: Instant,
    progress: Progress,
    /// What has happened, a line each.
    story: Vec<String>,
    /// Removes the VMs with their files.
    _scene: Scene,
}

struct RealVm {
    who: Guest,
    machine: Machine,
    joined: bool,
}

enum Progress {
    /// Not all VMs have joined.
    Booting,
    /// All have joined, since then.
    Joined(Instant),
    /// The next step migrates.
    Migrating,
    /// Placed on the other infra node, since then; the time for which the guest stood still at
    /// most.
    Placed(Instant, Duration),
    Done,
}

impl RealVms {
    /// Number of infra nodes, from the first, that the VMs use.
    pub(crate) const HOSTS: usize = HOSTS.len();

    /// Adds so many VMs to the inventory, and starts their first boot.
    ///
    /// # Errors
    /// Without QEMU, the image of Debian 13 or the static agent; each error names the command that
    /// brings it.
    pub(crate) fn start(stage: &Stage, count: u8) -> Result<Self> {
        needs(Suite::Trixie)
            .context("real VMs need QEMU and an image of Debian 13: run `make setup` as root")?;
        let scene = Scene::open("demo")?;
        let user_data = real::pool_user_data(stage, &scene, SETTINGS)?;
        let agent = real::agent_folder(scene.path())?;
        let begun = Instant::now();
        let mut vms = Vec::new();
        for number in 1..=count {
            // With the UUID of the tests, the first VM starts from their snapshot.
            let uuid = match number {
                1 => UUID.to_owned(),
                _ => format!("6d0c7be1-a902-4b0e-8a49-{number:012}"),
            };
            let who = real::tenant(stage, number, &uuid)?;
            real::place(stage, &who, &stage.plan.hosts[HOSTS[0]].name)?;
            let vm = real::vm(&who)
                .seed(Seed::no_cloud(&who.name).user_data(user_data.as_str()))
                .disk(Disk::folder("agent", &agent, DISK_LABEL).read_only())
                .disk(Disk::blank("data", GIB).serial("data"));
            let machine = scene.start(&vm, Start::BeforeCloudInit)?;
            vms.push(RealVm {
                who,
                machine,
                joined: false,
            });
        }
        Ok(Self {
            vms,
            begun,
            progress: Progress::Booting,
            story: Vec::new(),
            _scene: scene,
        })
    }

    /// What has happened so far.
    pub(crate) fn story(&self) -> &[String] {
        &self.story
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done)
    }

    /// Does what is due, and notes what has happened. The migration takes seconds.
    pub(crate) fn advance(&mut self, stage: &Stage) -> Result<()> {
        match self.progress {
            Progress::Booting => self.note_joined(stage),
            Progress::Joined(since) if since.elapsed() >= LOOK => {
                let [from, to] = HOSTS.map(|index| &stage.plan.hosts[index]);
                self.note(format!(
                    "{}: live migration from {} ({}) to {} ({}) begins",
                    self.first().who.name,
                    from.name,
                    from.zone,
                    to.name,
                    to.zone
                ));
                self.progress = Progress::Migrating;
            }
            Progress::Migrating => self.migrate(stage)?,
            Progress::Placed(since, stood_still) => self.note_followed(stage, since, stood_still)?,
            Progress::Joined(_) | Progress::Done => {}
        }
        Ok(())
    }

    fn first(&self) -> &RealVm {
        &self.vms[0]
    }

    fn note(&mut self, what: String) {
        let seconds = self.begun.elapsed().as_secs();
        self.story.push(format!("{seconds:>4} s  {what}"));
    }

    fn note_joined(&mut self, stage: &Stage) {
        for index in 0..self.vms.len() {
            let RealVm { who, joined, .. } = &self.vms[index];
            if *joined {
                continue;
            }
            // Until the collector has read its manifest, it does not know the VM.
            let vm = state(stage, who).unwrap_or_default();
            let disk = &vm["report"]["sections"]["storage"]["items"][0];
            let has_joined = vm["agent"]["status"] == "up"
                && vm["enrolment"]["state"] == "enrolled"
                && vm["identity"]["smbiosUuid"]["verdict"] == "confirmed"
                && disk["state"] == "ready";
            if has_joined {
                self.note(format!(
                    "{}: enrolled with a key of its own; its blank disk {} is formatted and mounted at {}",
                    who.name,
                    disk["device"].as_str().unwrap_or_default(),
                    disk["mountPoint"].as_str().unwrap_or_default()
                ));
                self.vms[index].joined = true;
            }
        }
        if self.vms.iter().all(|vm| vm.joined) {
            self.progress = Progress::Joined(Instant::now());
        }
    }

    fn migrate(&mut self, stage: &Stage) -> Result<()> {
        let RealVm { who, machine, .. } = self.first();
        let begun = Instant::now();
        machine.migrate(Duration::ZERO)?;
        let stood_still = begun.elapsed();
        real::place(stage, who, &stage.plan.hosts[HOSTS[1]].name)?;
        self.progress = Progress::Placed(Instant::now(), stood_still);
        Ok(())
    }

    fn note_followed(&mut self, stage: &Stage, since: Instant, stood_still: Duration) -> Result<()> {
        let who = self.first().who.clone();
        let vm = state(stage, &who)?;
        let host = &stage.plan.hosts[HOSTS[1]];
        if vm["infraNode"] != *host.name || vm["agent"]["status"] != "up" {
            return Ok(());
        }
        let took = since.elapsed();
        let placement = stage.text("/metrics/fleet")?;
        let series = format!("name=\"{}\"", who.name);
        let is_there = |line: &&str| {
            line.starts_with("virtfleet_vm_placement_info{")
                && line.contains(&series)
                && line.contains(&*host.name)
        };
        if placement.lines().find(is_there).is_none() {
            return Ok(());
        }
        self.note(format!(
            "{}: on {} ({}); its guest stood still for at most {:.1} s; fleet and metrics followed within {:.1} s",
            who.name,
            host.name,
            host.zone,
            stood_still.as_secs_f64(),
            took.as_secs_f64()
        ));
        self.progress = Progress::Done;
        Ok(())
    }
}

/// The VM as the collector shows it.
fn state(stage: &Stage, who: &Guest) -> Result<Value> {
    stage.json(&format!("/api/v1/vms/{}/{}", who.cluster, who.name))
}
