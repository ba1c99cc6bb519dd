//! What is true of every VM and was, and a seeded generator that keeps changing it.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Result;
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::json;
use virtfleet_tests::cluster::{self, scene::Scene};

/// What the policy asks for, with the beta name that goes with the zone.
pub(crate) const WANTED: [&str; 4] = [
    "rack",
    "place.example.com/row",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];
const HOSTS: usize = 8;
const VMS: usize = 40;

/// A cluster, a Node of it, and a key.
pub(crate) type Label = (usize, String, String);

/// A value that was true from before the change until after the next one, by the clock of this
/// machine.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) value: String,
    pub(crate) from: Timestamp,
    pub(crate) until: Option<Timestamp>,
}

struct Host {
    name: String,
    rack: String,
    row: String,
    zone: String,
}

pub(crate) struct World {
    hosts: Vec<Host>,
    /// Cluster, name, host.
    vms: Vec<(usize, String, usize)>,
    pub(crate) truth: BTreeMap<Label, Vec<Span>>,
    /// How many of each kind happened.
    pub(crate) moves: usize,
    pub(crate) relabels: usize,
    pub(crate) failed_moves: usize,
}

impl Host {
    fn labels(&self) -> [(&'static str, &str); 4] {
        let values = [&self.rack, &self.row, &self.zone, &self.zone];
        let mut labels = WANTED.map(|key| (key, ""));
        for (label, value) in labels.iter_mut().zip(values) {
            label.1 = value;
        }
        labels
    }

    fn apply(&self, scene: &Scene) -> Result<()> {
        let labels = [
            ("rack", self.rack.as_str()),
            ("row", &self.row),
            ("topology.kubernetes.io/zone", &self.zone),
        ];
        scene.host(&self.name, &labels)
    }
}

impl World {
    /// Makes hosts, VMs and their Nodes; the VMs in turn in each cluster, with the same names in
    /// all.
    pub(crate) fn new(scene: &Scene) -> Result<Self> {
        let rules = json!([
            { "key": "rack", "mode": "Follow" },
            { "key": "row", "target": "place.example.com/row", "mode": "Follow" },
            { "key": "topology.kubernetes.io/zone", "mode": "FollowIfSafe" },
        ]);
        scene.policy("places", &rules)?;
        let hosts = (0..HOSTS).map(|n| Host {
            name: format!("host-{n}"),
            rack: format!("rack-{n}"),
            row: format!("row-{}", n / 2),
            zone: format!("zone-{}", n / 4),
        });
        let mut world = Self {
            hosts: hosts.collect(),
            vms: Vec::new(),
            truth: BTreeMap::new(),
            moves: 0,
            relabels: 0,
            failed_moves: 0,
        };
        for host in &world.hosts {
            host.apply(scene)?;
        }
        let clusters = scene.tenants.len();
        for n in 0..VMS {
            let (cluster, name, host) = (n % clusters, format!("vm-{}", n / clusters), n % HOSTS);
            let before = Timestamp::now();
            scene.vmi(&scene.tenants[cluster].name, &name, &world.hosts[host].name)?;
            world.vms.push((cluster, name.clone(), host));
            world.note(before);
            scene.tenants[cluster].node(&name, &[])?;
        }
        Ok(world)
    }

    /// Writes down what is true since a change that began at `before` and has just ended.
    fn note(&mut self, before: Timestamp) {
        let now = Timestamp::now();
        for (cluster, name, host) in &self.vms {
            for (key, value) in self.hosts[*host].labels() {
                let spans = self
                    .truth
                    .entry((*cluster, name.clone(), key.to_owned()))
                    .or_default();
                let last = spans.last_mut();
                if last.as_ref().is_some_and(|last| last.value == value) {
                    continue;
                }
                if let Some(last) = last {
                    last.until = Some(now);
                }
                spans.push(Span {
                    value: value.to_owned(),
                    from: before,
                    until: None,
                });
            }
        }
    }

    fn step(&mut self, scene: &Scene, rng: &mut Rng) -> Result<()> {
        let before = Timestamp::now();
        let vm = rng.usize(..self.vms.len());
        let to = rng.usize(..HOSTS);
        let (cluster, name, from) = self.vms[vm].clone();
        let vmi = cluster::vmi(&scene.tenants[cluster].name, &name);
        let (source, target) = (&self.hosts[from].name, &self.hosts[to].name);
        let ended = |completed: bool| {
            json!({ "sourceNode": source, "targetNode": target, "completed": completed, "failed": !completed,
                "startTimestamp": before.strftime("%FT%TZ").to_string(), "endTimestamp": before.strftime("%FT%TZ").to_string() })
        };
        match rng.u8(..10) {
            0 => {
                let host = rng.usize(..HOSTS);
                let host = &mut self.hosts[host];
                match rng.u8(..3) {
                    0 => host.rack = format!("rack-{}", rng.u8(..20)),
                    1 => host.row = format!("row-{}", rng.u8(..9)),
                    _ => host.zone = format!("zone-{}", rng.u8(..4)),
                }
                host.apply(scene)?;
                self.relabels += 1;
            }
            1 | 2 => {
                scene
                    .infra
                    .merge(&vmi, &json!({ "status": { "migrationState": ended(false) } }))?;
                self.failed_moves += 1;
            }
            _ => {
                let status = json!({ "nodeName": target, "migrationState": ended(true) });
                scene.infra.merge(&vmi, &json!({ "status": status, "metadata": { "labels": { "kubevirt.io/nodeName": target } } }))?;
                self.vms[vm].2 = to;
                self.moves += 1;
            }
        }
        self.note(before);
        Ok(())
    }
}

/// Changes the world until `stop`.
pub(crate) fn churn(scene: &Scene, world: &Mutex<World>, seed: u64, stop: &AtomicBool) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        world.lock().unwrap().step(scene, &mut rng)?;
        thread::park_timeout(Duration::from_millis(rng.u64(20..150)));
    }
    Ok(())
}

/// Another user of the user clusters: labels and annotations of its own, and a kubelet's
/// heartbeats. Returns what it has written last, and how often.
pub(crate) fn meddle(
    scene: &Scene,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(BTreeMap<Label, Option<String>>, usize)> {
    let mut rng = Rng::with_seed(seed);
    let mut last = BTreeMap::new();
    let mut edits = 0;
    while !stop.load(Ordering::Relaxed) {
        let cluster = rng.usize(..scene.tenants.len());
        let tenant = &scene.tenants[cluster];
        let name = format!("vm-{}", rng.usize(..VMS / scene.tenants.len()));
        if rng.bool() {
            let node = cluster::user_node(&name, "", &[], &[]);
            let beat = json!({ "status": { "nodeInfo": { "bootID": format!("{}", rng.u64(..)) } } });
            tenant.server.merge_status(&node, &beat)?;
        } else {
            let key = format!("team.example.com/{}", rng.char('a'..='d'));
            let value = (rng.u8(..4) > 0).then(|| format!("v{}", rng.u16(..)));
            let annotations = json!({ "team.example.com/note": format!("{}", rng.u16(..)) });
            tenant.edit(
                &name,
                &json!({ "labels": { &key: value }, "annotations": annotations }),
            )?;
            last.insert((cluster, name, key), value);
        }
        edits += 1;
        thread::park_timeout(Duration::from_millis(rng.u64(10..120)));
    }
    Ok((last, edits))
}
