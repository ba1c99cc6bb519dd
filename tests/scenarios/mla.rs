//! The collector sends the pages of guests to a real Prometheus for each tenant, which receives
//! remote write.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{fs, net::SocketAddr, path::PathBuf, time::SystemTime};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use virtfleet_tests::{
    parts, ports,
    process::{Launch, Process},
    prometheus::{encode, query},
    scrape::Client,
    sim::{Fault, Guest, Options},
    skip,
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

const TIER: u8 = 3;

/// A Prometheus that receives remote write.
struct Receiver {
    program: PathBuf,
    folder: PathBuf,
    address: SocketAddr,
    process: Option<Process>,
}

impl Receiver {
    fn start(stage: &Stage, program: PathBuf, name: &str) -> Result<Self> {
        let folder = stage.path().join(format!("receiver-{name}"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("prometheus.yml"), "global: {}\n")?;
        let mut receiver = Self {
            program,
            folder,
            address: ports::free()?,
            process: None,
        };
        receiver.restart()?;
        Ok(receiver)
    }

    fn restart(&mut self) -> Result<()> {
        let folder = &self.folder;
        let mut process = Launch::new(&self.program)
            .arg(format!("--config.file={}/prometheus.yml", folder.display()))
            .arg(format!("--storage.tsdb.path={}/data", folder.display()))
            .arg(format!("--web.listen-address={}", self.address))
            .arg("--web.enable-remote-write-receiver")
            .start(folder)?;
        process.wait_for_port(self.address, STAGE_TIMEOUT)?;
        self.process = Some(process);
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the receiver is not running")?;
        process.signal(Signal::SIGKILL)?;
        process.wait(STAGE_TIMEOUT)?;
        Ok(())
    }

    fn query(&self, promql: &str) -> Result<Vec<Value>> {
        let encoded = encode(promql);
        let answer = Client::plain(self.address, STAGE_TIMEOUT)?
            .get(&format!("/api/v1/query?query={encoded}"))?
            .ok()?
            .json()?;
        Ok(answer["data"]["result"].as_array().context("no result")?.clone())
    }

    /// Number of samples of all series in the ten minutes before a time in seconds.
    fn stored(&self, before: f64) -> Result<u64> {
        let promql = encode("{__name__=~\".+\"}[10m]");
        let answer = Client::plain(self.address, STAGE_TIMEOUT)?
            .get(&format!("/api/v1/query?query={promql}&time={before}"))?
            .ok()?
            .json()?;
        let series = answer["data"]["result"].as_array().context("no result")?;
        let samples = series
            .iter()
            .map(|one| one["values"].as_array().map_or(0, Vec::len));
        Ok(u64::try_from(samples.sum::<usize>())?)
    }

    /// Times of the samples of the last two minutes, in seconds.
    fn times(&self, series: &str) -> Result<Vec<f64>> {
        let found = self.query(&format!("{series}[2m]"))?;
        ensure!(found.len() == 1, "{found:?}");
        let values = found[0]["values"].as_array().context("no values")?;
        Ok(values.iter().filter_map(|value| value[0].as_f64()).collect())
    }
}

/// The time in seconds.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Sends the samples of the user cluster to `receiver`.
fn send_to(stage: &Stage, cluster: &str, receiver: SocketAddr, more: &str) -> Result<()> {
    let name = format!("clusters/{cluster}/cluster.yaml");
    let text = fs::read_to_string(stage.manifests().join(&name))?;
    let spec = text.split("\n  mla:").next().unwrap_or_default().trim_end();
    let mla = format!("  mla:\n    remoteWrite: {{ url: \"http://{receiver}/api/v1/write\" }}\n{more}");
    stage.write_manifest(&name, &format!("{spec}\n{mla}"))
}

struct Scene {
    stage: Stage,
    receivers: Vec<Receiver>,
}

/// Two tenants with two guests each, one of which forges series of the platform.
fn scene(program: PathBuf) -> Scene {
    let options = Options {
        guests: 4,
        hosts: 2,
        zones: 2,
        clusters: 2,
        faults: vec![(Fault::Forge, 1)],
        ..Options::default()
    };
    let mut stage = Stage::new(options).unwrap();
    let queues = stage.path().join("queues");
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  flush: {{ interval: 200ms, sync: 200ms }}\n",
        queues.display()
    ));
    let clusters = stage.plan.clusters.clone();
    let receivers: Vec<_> = clusters
        .iter()
        .map(|cluster| {
            let receiver = Receiver::start(&stage, program.clone(), cluster).unwrap();
            send_to(&stage, cluster, receiver.address, "").unwrap();
            receiver
        })
        .collect();
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(4).unwrap();
    Scene { stage, receivers }
}

impl Scene {
    fn guests(&self, tenant: usize) -> Vec<&Guest> {
        let cluster = &self.stage.plan.clusters[tenant];
        let all = self.stage.plan.guests.iter();
        all.filter(|guest| guest.cluster == *cluster).collect()
    }

    /// The state of a tenant's queue.
    fn queue(&self, tenant: usize) -> Result<Value> {
        let cluster = &self.stage.plan.clusters[tenant];
        let list = self.stage.json(&format!("/api/v1/queues?cluster={cluster}"))?;
        Ok(list["items"][0].clone())
    }

    /// Waits until the pages of all guests of a tenant have arrived.
    fn wait_for_pages(&self, tenant: usize) {
        let receiver = &self.receivers[tenant];
        let guests = self.guests(tenant);
        wait::eventually(STAGE_TIMEOUT, "the pages of all guests have arrived", || {
            let loads = query(receiver.address, "node_load1", "name")?;
            let up = query(receiver.address, "up == 1", "name")?;
            let placed = query(receiver.address, "virtfleet_vm_placement_info", "name")?;
            let counts = (loads.len(), up.len(), placed.len());
            ensure!(counts == (guests.len(), guests.len(), guests.len()), "{counts:?}");
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn tier3_each_tenant_receives_the_series_of_its_own_guests() {
    let test = "tier3_each_tenant_receives_the_series_of_its_own_guests";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let mut scene = scene(program);
    for tenant in 0..2 {
        scene.wait_for_pages(tenant);
        let receiver = &scene.receivers[tenant];
        let cluster = &scene.stage.plan.clusters[tenant];
        let other = receiver
            .query(&format!("count({{__name__=~\".+\",cluster!=\"{cluster}\"}})"))
            .unwrap();
        assert!(other.is_empty(), "series of another tenant: {other:?}");
        let forged =
            "virtfleet_vm_placement_info{zone=\"forged\"} or virtfleet_vm_placement_info{job=\"node\"}";
        assert!(receiver.query(forged).unwrap().is_empty());
        let guest = scene.guests(tenant)[0];
        let series = format!("node_load1{{name=\"{}\"}}", guest.name);
        // A pull that comes too late ends a series for a moment.
        let found = wait::eventually(STAGE_TIMEOUT, "a series of a guest", || {
            let found = receiver.query(&series)?;
            found.into_iter().next().context("nothing is found")
        })
        .unwrap();
        let labels = &found["metric"];
        for (name, value) in [
            ("cluster", cluster.as_str()),
            ("namespace", &guest.cluster),
            ("name", &guest.name),
            ("instance", &guest.name),
            ("job", "node"),
        ] {
            assert_eq!(labels[name], value, "{labels}");
        }
        let joined = "sum by (zone) (node_memory_MemAvailable_bytes * on (cluster, namespace, name) \
                      group_left (zone) virtfleet_vm_placement_info)";
        wait::eventually(STAGE_TIMEOUT, "memory by zone", || {
            ensure!(!receiver.query(joined)?.is_empty(), "nothing is found");
            Ok(())
        })
        .unwrap();
    }
    // Settings change without a restart, and what a rule drops ends at once.
    let rule = "    relabel: [{ sourceLabels: [__name__], regex: node_load1, action: drop }]\n    \
                externalLabels: { datacenter: d1 }\n";
    let receiver = &scene.receivers[0];
    send_to(
        &scene.stage,
        &scene.stage.plan.clusters[0],
        receiver.address,
        rule,
    )
    .unwrap();
    wait::eventually(STAGE_TIMEOUT, "the new rule is used", || {
        let load = receiver.query("node_load1")?;
        let labelled = receiver.query("up{datacenter=\"d1\"} == 1")?;
        let former = receiver.query("up{datacenter=\"\"}")?;
        ensure!(
            load.is_empty() && labelled.len() == scene.guests(0).len() && former.is_empty(),
            "{load:?} {labelled:?} {former:?}"
        );
        Ok(())
    })
    .unwrap();
    // A VM that is deleted.
    let gone = scene.guests(1)[0].clone();
    fs::remove_file(scene.stage.manifest(&gone)).unwrap();
    let receiver = &scene.receivers[1];
    let series = format!("{{name=\"{}\",__name__!~\"virtfleet_.*\"}}", gone.name);
    // Without staleness markers they would end five minutes later, which this does not wait for.
    wait::eventually(STAGE_TIMEOUT, "the series of a deleted VM have ended", || {
        let left = receiver.query(&series)?;
        ensure!(left.is_empty(), "{} series", left.len());
        Ok(())
    })
    .unwrap();
    let stopped = scene
        .stage
        .take_collector()
        .unwrap()
        .terminate(STAGE_TIMEOUT)
        .unwrap();
    assert!(stopped.success(), "{stopped}");
}

#[test]
fn tier3_samples_survive_a_dead_receiver_and_a_killed_collector() {
    let test = "tier3_samples_survive_a_dead_receiver_and_a_killed_collector";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let mut scene = scene(program);
    scene.wait_for_pages(0);
    scene.wait_for_pages(1);
    scene.receivers[0].kill().unwrap();
    let outage = now();
    let other = format!("up{{name=\"{}\"}}", scene.guests(1)[0].name);
    wait::eventually(STAGE_TIMEOUT, "the other tenant's samples still arrive", || {
        let times = scene.receivers[1].times(&other)?;
        let arrived = times.iter().filter(|at| **at > outage).count();
        ensure!(arrived >= 4, "{arrived} since the outage");
        Ok(())
    })
    .unwrap();
    let accepted = wait::eventually(STAGE_TIMEOUT, "samples are queued", || {
        let queue = scene.queue(0)?;
        ensure!(queue["samples"].as_u64() > Some(0), "{queue:#}");
        queue["acceptedSamples"]
            .as_u64()
            .with_context(|| format!("{queue:#}"))
    })
    .unwrap();
    let mut collector = scene.stage.take_collector().unwrap();
    collector.signal(Signal::SIGKILL).unwrap();
    collector.wait(STAGE_TIMEOUT).unwrap();
    let killed = now();
    scene.stage.start_collector(Beat::default()).unwrap();
    scene.receivers[0].restart().unwrap();
    wait::eventually(STAGE_TIMEOUT, "what was accepted has arrived", || {
        let stored = scene.receivers[0].stored(killed)?;
        ensure!(stored >= accepted, "{stored} of {accepted} samples");
        Ok(())
    })
    .unwrap();
    let series = format!("up{{name=\"{}\"}}", scene.guests(0)[0].name);
    wait::eventually(STAGE_TIMEOUT, "new samples arrive after the backlog", || {
        let times = scene.receivers[0].times(&series)?;
        ensure!(times.last() > Some(&killed), "{times:?}");
        Ok(())
    })
    .unwrap();
}
