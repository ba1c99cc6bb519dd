//! A schedule of events from a seed: what admins, tenants, KubeVirt and failures do to the world,
//! then the end of all faults, and the check that everything settles.

use std::{ops::Range, time::Duration};

use tokio::time::{advance, sleep};
use virtfleet_collector_core::facts::{FactKey, InventoryEvent};

use super::{
    collector::SimCollector,
    faults::Faults,
    truth::{FOREIGN, SOURCES, TARGETS, Truth, UNTOUCHED},
    world::{SharedWorld, SimWorld},
};

/// Minimum and maximum number of events of one seed.
const EVENTS: Range<usize> = 4..20;
/// Maximum time until everything has settled after the last fault: a contested label is written
/// again after ten minutes, and a refused patch is retried after up to ten minutes.
const SETTLE_SECONDS: u64 = 25 * 60;
/// Without a patch for this time, nothing more is expected: longer than any confirmation.
const QUIET_MS: u64 = 70_000;
/// Time after that in which no patch may be sent.
const STILL: Duration = Duration::from_secs(65);
/// VMs: user cluster and name. Two of different tenants have one name.
const VMS: [(&str, &str); 4] = [("alpha", "w0"), ("alpha", "w1"), ("beta", "w0"), ("beta", "w2")];
/// Keys that other writers set.
const FOREIGN_KEYS: [&str; 4] = [TARGETS[1].key, TARGETS[2].key, TARGETS[3].key, UNTOUCHED[0]];

/// A simulation of a seed.
pub(super) struct Simulation {
    pub(super) world: SharedWorld,
    collectors: Vec<SimCollector>,
    elected: bool,
    started: usize,
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Self {
        let world = SharedWorld::new(seed, Truth::new(3, &VMS), Faults::default());
        let (elected, per_mille) = {
            let rng = &mut world.lock().rng;
            (
                rng.u32(..3) == 0,
                *rng.choice([0, 50, 150, 400].iter()).unwrap_or(&0),
            )
        };
        world.lock().faults.per_mille = per_mille;
        Self {
            world,
            collectors: Vec::new(),
            elected,
            started: 0,
        }
    }

    /// Runs the schedule; what is wrong is in the world.
    pub(super) async fn run(&mut self) {
        self.start();
        if self.elected {
            self.start();
        }
        let events = self.world.lock().rng.usize(EVENTS);
        for _ in 0..events {
            let pause = self.world.lock().rng.u64(1..20_000);
            // Some events happen at once, some after a while.
            let pause = if pause.is_multiple_of(3) {
                pause / 100
            } else {
                pause
            };
            sleep(Duration::from_millis(pause)).await;
            self.event().await;
            if self.is_wrong() {
                return;
            }
        }
        self.end_faults();
        settle(&self.world).await;
        for collector in &mut self.collectors {
            collector.check();
        }
    }

    fn is_wrong(&mut self) -> bool {
        for collector in &mut self.collectors {
            collector.check();
        }
        let world = &mut *self.world.lock();
        let leaders = world.leaders();
        if leaders.len() > 1 {
            world.fail(format!("{leaders:?} lead at once"));
        }
        !world.wrong.is_empty()
    }

    fn start(&mut self) {
        self.started += 1;
        let collector = SimCollector::start(&self.world, self.started, self.elected);
        self.collectors.push(collector);
    }

    async fn event(&mut self) {
        let choice = self.world.lock().rng.u32(..100);
        match choice {
            0..=71 => world_event(&mut self.world.lock(), choice),
            72..=79 => self.restart(false).await,
            80..=82 => self.restart(true).await,
            83..=85 => {
                let step = self.world.lock().rng.u64(1..20);
                self.world.lock().note(&format!("the clock steps by {step} s"));
                advance(Duration::from_secs(step)).await;
            }
            86..=91 if self.elected => {
                let world = &mut *self.world.lock();
                let cut = world.leaders().first().copied();
                world.note(&format!("{cut:?} is cut off from the Lease"));
                world.faults.cut_from_lease = cut.into_iter().collect();
            }
            92..=93 if self.elected => self.world.lock().faults.cut_from_lease.clear(),
            _ => {
                let world = &mut *self.world.lock();
                let per_mille = *world.pick(&[0, 50, 150, 600]);
                world.note(&format!("{per_mille} of 1000 requests have a fault"));
                world.faults.per_mille = per_mille;
            }
        }
    }

    /// Restarts one collector.
    async fn restart(&mut self, gracefully: bool) {
        let at = self.world.lock().rng.usize(..self.collectors.len());
        let collector = self.collectors.remove(at);
        self.world.lock().faults.cut_from_lease.remove(&collector.number);
        if gracefully {
            collector.end().await;
        } else {
            collector.kill().await;
        }
        self.start();
    }

    /// Ends all faults, and everything that would prevent an end state.
    fn end_faults(&mut self) {
        let world = &mut *self.world.lock();
        world.note("all faults end");
        world.faults.per_mille = 0;
        world.faults.cut_from_lease.clear();
        let now = world.now();
        for host in world.truth.host_names() {
            let event = world.truth.replace_host(&host, true);
            world.publish(event);
        }
        let clusters: Vec<String> = world.servers.keys().cloned().collect();
        for name in clusters {
            let event = world.truth.set_cluster(&name, true, false, now);
            world.publish(event);
            let vms: Vec<_> = world
                .truth
                .vms
                .keys()
                .filter(|id| id.0 == name)
                .cloned()
                .collect();
            for id in vms {
                let server = world.servers.get_mut(&name).unwrap();
                server.is_up = true;
                server.set_pod(&id.1, false, now);
                if !server.nodes.contains_key(&id.1) {
                    server.register(&id.1, &[], "", now);
                }
                if world.truth.vms[&id].host.is_none() {
                    migrate(world, &id, Some("h0".to_owned()));
                }
            }
        }
    }
}

/// Waits until every Node has the labels that the truth demands and no patch is sent any more.
pub(super) async fn settle(world: &SharedWorld) {
    let begin = world.lock().now();
    loop {
        sleep(Duration::from_secs(5)).await;
        let world = &mut *world.lock();
        if !world.wrong.is_empty() {
            return;
        }
        let now = world.now();
        let unsettled = world.unsettled();
        if unsettled.is_empty() && now - world.last_patch_ms > QUIET_MS {
            break;
        }
        if now - begin > SETTLE_SECONDS * 1000 {
            let last = world.last_patch_ms;
            world.fail(format!(
                "not settled {SETTLE_SECONDS} s after the last fault (last patch at {last} ms): {unsettled:#?}"
            ));
            return;
        }
    }
    let last = world.lock().last_patch_ms;
    world.lock().note("settled");
    sleep(STILL).await;
    let world = &mut *world.lock();
    if world.last_patch_ms != last {
        world.fail("a patch after everything had settled".to_owned());
    }
    for text in world.unsettled() {
        world.fail(text);
    }
}

fn migrate(world: &mut SimWorld, id: &(String, String), host: Option<String>) {
    let now = world.now();
    for fact in world.truth.migrate(id, host, now) {
        world.publish(InventoryEvent::Apply(fact));
    }
}

fn world_event(world: &mut SimWorld, choice: u32) {
    let now = world.now();
    let hosts = world.truth.host_names();
    let host = world.pick(&hosts).clone();
    let vm = world.pick_vm();
    let cluster = world.pick_cluster();
    match choice {
        0..=12 => {
            let placed = world.rng.u32(..8) > 0;
            migrate(world, &vm, Some(host).filter(|_| placed));
        }
        13..=22 => {
            let (key, set) = (*world.pick(&SOURCES), world.rng.u32(..4) > 0);
            if let Some(fact) = world.truth.relabel(&host, key, set, now) {
                world.publish(InventoryEvent::Apply(fact));
            }
        }
        23..=35 => {
            let (key, set) = (*world.pick(&FOREIGN_KEYS), world.rng.u32(..3) > 0);
            world.note(&format!("others: {vm:?} {key} set={set}"));
            let value = set.then_some(FOREIGN);
            if let Some(server) = world.servers.get_mut(&vm.0) {
                server.write_as_other(&vm.1, key, value, now);
            }
        }
        36..=41 => recreate_node(world, &vm),
        42..=44 => {
            world.publish(InventoryEvent::Delete(FactKey::Vmi(
                super::super::harness::vm_key(&vm.0, &vm.1),
            )));
            if let Some(fact) = world.truth.recreate_vm(&vm, &host, now) {
                world.publish(InventoryEvent::Apply(fact));
            }
            if world.rng.bool() {
                recreate_node(world, &vm);
            }
        }
        45..=52 => edit_policy(world),
        53..=56 => {
            let (exists, suspended) = (world.rng.u32(..3) > 0, world.rng.u32(..4) == 0);
            let event = world.truth.set_cluster(&cluster, exists, suspended, now);
            world.publish(event);
        }
        57..=60 => {
            let is_up = world.rng.bool();
            world.note(&format!("{cluster} is up: {is_up}"));
            if let Some(server) = world.servers.get_mut(&cluster) {
                server.is_up = is_up;
                server.cut(false);
            }
        }
        61..=63 => {
            let compact = world.rng.bool();
            world.note(&format!("{cluster}: watches end, compacted={compact}"));
            if let Some(server) = world.servers.get_mut(&cluster) {
                server.cut(compact);
            }
        }
        64..=65 => {
            world.note(&format!("{cluster} is created again from manifests"));
            let foreign = world.rng.bool();
            let labels: &[&str] = if foreign { &FOREIGN_KEYS } else { &[] };
            if let Some(server) = world.servers.get_mut(&cluster) {
                server.restore(labels, FOREIGN, now);
            }
        }
        66..=69 => {
            let runs = world.rng.u32(..3) > 0;
            world.note(&format!("a pod requires the zone of {vm:?}: {runs}"));
            if let Some(server) = world.servers.get_mut(&vm.0) {
                server.set_pod(&vm.1, runs, now);
            }
        }
        _ => {
            let exists = world.rng.u32(..3) > 0;
            let event = world.truth.replace_host(&host, exists);
            world.publish(event);
        }
    }
}

/// The Node is deleted, and registers again with another UID.
fn recreate_node(world: &mut SimWorld, vm: &(String, String)) {
    let now = world.now();
    world.note(&format!("{vm:?} registers again"));
    let foreign = world.rng.bool();
    let labels: &[&str] = if foreign { &FOREIGN_KEYS } else { &[] };
    if let Some(server) = world.servers.get_mut(&vm.0) {
        server.delete(&vm.1, now);
        server.register(&vm.1, labels, FOREIGN, now);
    }
}

fn edit_policy(world: &mut SimWorld) {
    let (name, edit, cluster) = (world.pick_policy(), world.rng.u32(..8), world.pick_cluster());
    let policy = world.truth.policies.get_mut(name).unwrap();
    match edit {
        0..=2 => policy.exists = !policy.exists,
        3 => policy.dry_run = !policy.dry_run,
        4..=5 => policy.only = policy.only.is_none().then_some(cluster),
        _ => policy.follow = !policy.follow,
    }
    let follows = policy.follow && name == "zone";
    world.truth.zone_followed |= follows;
    let event = world.truth.policy_event(name);
    world.publish(event);
}
