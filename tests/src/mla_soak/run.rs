//! The run: starts everything, makes it fail, and collects what is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    SoakOptions,
    check::{Counted, Expected, check},
    disk::SmallDisk,
    manifest,
    overflow::{Overflow, lost},
    proxy::{Proxy, ProxyKind, ProxyMode},
    receiver::{Receiver, ReceiverKind},
    report::{Report, TenantRow},
    schedule::{SoakFault, schedule},
};
use crate::{
    sim::{Fault, Guest, Options, raise_file_limit},
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

/// Size of the filesystem of the queues in MiB.
const DISK_MEBIBYTES: usize = 256;
/// Time from a sample until it is on the disk: the flush and sync intervals of the settings below,
/// twice, and a page that is being pulled.
const UNWRITTEN: Duration = Duration::from_millis(2500);
/// Time beside the interval within which the series of a deleted VM end.
const STALE_SLACK: Duration = Duration::from_secs(4);
/// Maximum time for all queues to be sent at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(5);
/// Polls in a row that must agree that nothing is left: the status is published each second.
const QUIET_POLLS: usize = 3;

/// A running soak.
pub(super) struct Soak {
    pub(super) options: SoakOptions,
    pub(super) stage: Stage,
    pub(super) proxies: Vec<Proxy>,
    receivers: Vec<Receiver>,
    counts: BTreeMap<String, Counted>,
    pub(super) outages: Vec<(i64, i64)>,
    /// Samples that the last life has put into requests and not dropped, by user cluster.
    kept: BTreeMap<String, u64>,
    pub(super) overflow: Option<Overflow>,
    deleted: BTreeMap<(String, String), i64>,
    migrated: BTreeSet<(String, String)>,
    report: Report,
    began: Instant,
    // Last, so that its users end first.
    disk: SmallDisk,
}

/// Ends of faults.
struct FaultEnds {
    receivers: Vec<Option<Instant>>,
    proxies: Vec<Option<Instant>>,
    disk: Option<Instant>,
    /// When the disk became full.
    full_since: Option<i64>,
}

impl Soak {
    /// Starts guests, receivers, proxies and the collector, and waits for the healthy guests.
    pub(super) fn start(options: SoakOptions) -> Result<Self> {
        let began = Instant::now();
        raise_file_limit()?;
        let guests = options.tenants * options.vms;
        let hostile = [
            Fault::Forge,
            Fault::Garbage,
            Fault::Claims,
            Fault::Http500,
            Fault::Silent,
            Fault::Endless,
            Fault::WrongVm,
            Fault::Slow,
        ];
        let kinds = hostile.len().min(guests / 4);
        let mut stage = Stage::new(Options {
            guests,
            hosts: 8,
            zones: 3,
            clusters: options.tenants,
            seed: options.seed,
            faults: hostile[..kinds]
                .iter()
                .map(|fault| (*fault, guests.div_ceil(200)))
                .collect(),
            ..Options::default()
        })?;
        let disk = SmallDisk::mount(DISK_MEBIBYTES)?;
        stage.set_settings(format!(
            "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  flush: {{ interval: 500ms, sync: 500ms }}\n",
            disk.queues().display()
        ));
        let mut receivers = Vec::new();
        for number in 0..options.prometheus {
            let name = format!("prometheus-{number}");
            receivers.push(Receiver::start(ReceiverKind::Prometheus, &name, stage.path())?);
        }
        receivers.push(Receiver::start(
            ReceiverKind::VictoriaMetrics,
            "victoria",
            stage.path(),
        )?);
        let mut proxies = Vec::new();
        for (tenant, cluster) in stage.plan.clusters.iter().enumerate() {
            let receiver = &receivers[tenant % receivers.len()];
            let kind = receiver.proxy_kind();
            let proxy = Proxy::start(receiver.address, kind)?;
            manifest::write(&stage, cluster, (proxy.address, kind), "")?;
            proxies.push(proxy);
        }
        stage.start_collector(beat(&options))?;
        let healthy = stage.plan.healthy().count();
        wait::eventually(4 * STAGE_TIMEOUT, "the healthy guests are up", || {
            let targets = items(&stage, "/api/v1/targets?limit=5000")?;
            let up = targets.iter().filter(|target| target["error"].is_null()).count();
            ensure!(up >= healthy, "{up} of {healthy}");
            Ok(())
        })?;
        Ok(Self {
            options,
            stage,
            proxies,
            receivers,
            counts: BTreeMap::new(),
            outages: Vec::new(),
            kept: BTreeMap::new(),
            overflow: None,
            deleted: BTreeMap::new(),
            migrated: BTreeSet::new(),
            report: Report::default(),
            began,
            disk,
        })
    }

    /// Migrates and deletes a VM of each tenant while nothing fails.
    pub(super) fn quiet_phase(&mut self) -> Result<()> {
        self.note("all guests are up");
        self.pause(3)?;
        for cluster in self.stage.plan.clusters.clone() {
            let healthy = self.stage.plan.healthy().filter(|guest| guest.cluster == cluster);
            let healthy: Vec<Guest> = healthy.cloned().collect();
            if let Some(guest) = healthy.first() {
                let hosts = &self.stage.plan.hosts;
                let host = hosts[(guest.host + 1) % hosts.len()].name.clone();
                self.stage.move_to(guest, &host)?;
                self.migrated.insert((cluster.clone(), guest.name.clone()));
            }
            if let Some(guest) = healthy.get(1) {
                fs::remove_file(self.stage.manifest(guest))?;
                let until = now_ms() + millis(self.options.interval + STALE_SLACK);
                self.deleted.insert((cluster, guest.name.clone()), until);
            }
        }
        self.pause(5)
    }

    /// How the proxy of a tenant tells it.
    pub(super) fn kind_of(&self, tenant: usize) -> ProxyKind {
        self.receivers[tenant % self.receivers.len()].proxy_kind()
    }

    /// Prints what happens, if the options say so.
    pub(super) fn note(&self, what: &str) {
        if self.options.verbose {
            println!("{:>6.1} s  {what}", self.began.elapsed().as_secs_f64());
        }
    }

    fn pause(&self, intervals: u32) -> Result<()> {
        wait::measure(self.options.interval * intervals, || Ok(()))
    }

    /// Runs the schedule of faults, and ends all of them.
    pub(super) fn fail(&mut self) -> Result<()> {
        let options = &self.options;
        let (tenants, receivers) = (options.tenants, self.receivers.len());
        let events = schedule(options.seed, options.kills, tenants, receivers, options.length);
        let mut ends = FaultEnds {
            receivers: vec![None; receivers],
            proxies: vec![None; tenants],
            disk: None,
            full_since: None,
        };
        let started = Instant::now();
        let mut events = events.into_iter().peekable();
        loop {
            self.end_faults(&mut ends)?;
            while let Some(event) = events.next_if(|event| event.at <= started.elapsed()) {
                self.note(&format!(
                    "{:?} for {:.1} s",
                    event.fault,
                    event.lasts.as_secs_f64()
                ));
                self.begin(event.fault, Instant::now() + event.lasts, &mut ends)?;
            }
            let idle = ends.receivers.iter().chain(&ends.proxies).all(Option::is_none);
            if events.peek().is_none()
                && idle
                && ends.disk.is_none()
                && started.elapsed() >= self.options.length
            {
                return Ok(());
            }
            wait::measure(Duration::from_millis(100), || Ok(()))?;
        }
    }

    fn begin(&mut self, fault: SoakFault, until: Instant, ends: &mut FaultEnds) -> Result<()> {
        let kind = match fault {
            SoakFault::KillCollector => {
                self.kill_collector(ends.full_since)?;
                "kills of the collector".to_owned()
            }
            SoakFault::KillReceiver(index) => {
                if ends.receivers[index].replace(until).is_none() {
                    self.receivers[index].kill()?;
                }
                "kills of receivers".to_owned()
            }
            SoakFault::Network(tenant, mode) => {
                ends.proxies[tenant] = Some(until);
                self.proxies[tenant].set(mode);
                format!("network {mode:?}")
            }
            SoakFault::FullDisk => {
                if ends.disk.replace(until).is_none() {
                    ends.full_since = Some(now_ms());
                    self.disk.fill()?;
                }
                "full disks".to_owned()
            }
        };
        match self.report.faults.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => self.report.faults.push((kind, 1)),
        }
        Ok(())
    }

    fn end_faults(&mut self, ends: &mut FaultEnds) -> Result<()> {
        let now = Instant::now();
        let is_over = |end: &Option<Instant>| end.is_some_and(|end| end <= now);
        for (receiver, end) in self.receivers.iter_mut().zip(&mut ends.receivers) {
            if is_over(end) {
                receiver.restart()?;
                *end = None;
            }
        }
        for (proxy, end) in self.proxies.iter().zip(&mut ends.proxies) {
            if is_over(end) {
                proxy.set(ProxyMode::Pass);
                *end = None;
            }
        }
        if is_over(&ends.disk) {
            self.disk.make_room()?;
            (ends.disk, ends.full_since) = (None, None);
        }
        Ok(())
    }

    /// Kills the collector and starts it again. What it had not written is lost: samples of the
    /// last seconds, or since the disk has been full.
    fn kill_collector(&mut self, full_since: Option<i64>) -> Result<()> {
        self.end_life_now()?;
        let mut collector = self.stage.take_collector()?;
        let killed = now_ms() - millis(UNWRITTEN);
        collector.signal(Signal::SIGKILL)?;
        collector.wait(STAGE_TIMEOUT)?;
        self.stage.start_collector(beat(&self.options))?;
        let until = now_ms() + millis(3 * self.options.interval);
        let since = full_since.map_or(killed, |full| killed.min(full - millis(UNWRITTEN)));
        self.outages.push((since, until));
        Ok(())
    }

    /// Adds the present counters of the collector, which ends now.
    pub(super) fn end_life_now(&mut self) -> Result<()> {
        let streams = self.streams()?.into_iter();
        let life = streams.map(|(cluster, stream)| (cluster, counted(&stream)));
        self.end_life(life.collect());
        Ok(())
    }

    fn end_life(&mut self, life: BTreeMap<String, Counted>) {
        for (cluster, counted) in life {
            self.counts.entry(cluster).or_default().add(counted);
        }
    }

    /// The streams of tenants by their user cluster.
    pub(super) fn streams(&self) -> Result<Vec<(String, Value)>> {
        let all = items(&self.stage, "/api/v1/queues?limit=1000")?;
        let named = all.into_iter().filter_map(|stream| {
            let cluster = stream["stream"].as_str()?.strip_prefix("cluster/")?.to_owned();
            Some((cluster, stream))
        });
        Ok(named.collect())
    }

    /// Deletes all VMs, waits until everything is sent, and checks what the receivers have.
    pub(super) fn finish(mut self) -> Result<Report> {
        self.note("deleting all VMs");
        self.pause(3)?;
        for guest in self.stage.plan.guests.clone() {
            let key = (guest.cluster.clone(), guest.name.clone());
            if !self.deleted.contains_key(&key) {
                fs::remove_file(self.stage.manifest(&guest))?;
            }
        }
        self.pause(1)?;
        self.note("waiting for the queues");
        let drained = self.wait_until_drained()?;
        self.end_life(drained);
        let stopped = self.stage.take_collector()?.terminate(STAGE_TIMEOUT)?;
        if !stopped.success() {
            self.report
                .violations
                .push(format!("the collector ended with {stopped}"));
        }
        self.note("checking what the receivers have");
        self.check_isolation()?;
        for (tenant, cluster) in self.stage.plan.clusters.clone().into_iter().enumerate() {
            let expected = self.expected(&cluster);
            let index = tenant % self.receivers.len();
            let receiver = &self.receivers[index];
            let stored = receiver.dump(&cluster).with_context(|| receiver.name.clone())?;
            self.report.tenants.push(TenantRow {
                found: check(&expected, &stored),
                counted: expected.counted,
                receiver: self.receivers[index].name.clone(),
                cluster,
            });
        }
        self.note("checked");
        Ok(self.report)
    }

    /// Waits until all queues are empty and nothing more comes; returns the counters.
    fn wait_until_drained(&mut self) -> Result<BTreeMap<String, Counted>> {
        let mut quiet = 0;
        let mut last = Vec::new();
        let streams = wait::eventually(DRAIN_TIMEOUT, "all queues are sent", || {
            wait::measure(Duration::from_millis(1100), || Ok(()))?;
            let streams = self.streams()?;
            let left: u64 = streams.iter().map(|(_, stream)| number(&stream["samples"])).sum();
            let scraped: Vec<u64> = streams
                .iter()
                .map(|(_, stream)| number(&stream["scrapedSamples"]))
                .collect();
            quiet = if left == 0 && scraped == last {
                quiet + 1
            } else {
                0
            };
            last = scraped;
            ensure!(
                quiet >= QUIET_POLLS,
                "{left} samples are queued; {last:?} scraped"
            );
            Ok(streams)
        })?;
        let mut life = BTreeMap::new();
        for (cluster, stream) in streams {
            let counted = counted(&stream);
            let scraped = number(&stream["scrapedSamples"]);
            if scraped > counted.accepted + counted.dropped {
                let text = format!("{cluster}: {scraped} samples scraped, but {counted:?}");
                self.report.violations.push(text);
            }
            let kept = scraped.saturating_sub(lost(&stream) + counted.refused);
            self.kept.insert(cluster.clone(), kept);
            life.insert(cluster, counted);
        }
        Ok(life)
    }

    /// Each receiver has series of its own tenants only, and each tenant those of its cluster.
    fn check_isolation(&mut self) -> Result<()> {
        let clusters = &self.stage.plan.clusters;
        for (index, receiver) in self.receivers.iter().enumerate() {
            let name = &receiver.name;
            let own = clusters.iter().enumerate();
            let own: BTreeSet<String> = own
                .filter(|(tenant, _)| tenant % self.receivers.len() == index)
                .map(|(_, cluster)| cluster.clone())
                .collect();
            for label in ["tenant", "cluster"] {
                let found: BTreeSet<String> = receiver
                    .label_values(label, "{__name__=~\".+\"}")?
                    .into_iter()
                    .collect();
                if found != own {
                    let text = format!("{name}: {label} has {found:?}, expected {own:?}");
                    self.report.violations.push(text);
                }
            }
            for cluster in &own {
                let found = receiver.label_values("cluster", &format!("{{tenant=\"{cluster}\"}}"))?;
                if found != [cluster.clone()] {
                    let text = format!("{name}: tenant {cluster} has series of {found:?}");
                    self.report.violations.push(text);
                }
            }
            let unnamed = receiver.label_values("__name__", "{tenant=\"\",__name__=~\".+\"}")?;
            if !unnamed.is_empty() {
                let text = format!("{name}: series without a tenant: {unnamed:?}");
                self.report.violations.push(text);
            }
        }
        Ok(())
    }

    fn expected(&self, cluster: &str) -> Expected {
        let guests = self.stage.plan.guests.iter();
        let own = guests.filter(|guest| guest.cluster == cluster);
        let deleted = self.deleted.iter().filter(|((of, _), _)| of == cluster);
        let migrated = self.migrated.iter().filter(|(of, _)| of == cluster);
        let mut outages = self.outages.clone();
        let overflow = self.overflow.as_ref().filter(|one| one.cluster == cluster);
        outages.extend(overflow.map(|one| one.outage));
        Expected {
            exact: overflow.map(|one| (one.since_ms, self.kept.get(cluster).copied().unwrap_or_default())),
            cluster: cluster.to_owned(),
            vms: own.map(|guest| guest.name.clone()).collect(),
            counted: self.counts.get(cluster).copied().unwrap_or_default(),
            max_gap_ms: millis(3 * self.options.interval),
            outages,
            deleted: deleted.map(|((_, name), until)| (name.clone(), *until)).collect(),
            migrated: migrated.map(|(_, name)| name.clone()).collect(),
        }
    }
}

pub(super) fn beat(options: &SoakOptions) -> Beat {
    Beat {
        interval: options.interval,
        timeout: options.interval.min(Duration::from_secs(5)),
    }
}

fn items(stage: &Stage, path: &str) -> Result<Vec<Value>> {
    let list = stage.json(path)?;
    let items = list["items"].as_array().context("no items")?;
    Ok(items.clone())
}

fn counted(stream: &Value) -> Counted {
    let refused = stream["refused"].as_object().into_iter().flatten();
    Counted {
        accepted: number(&stream["acceptedSamples"]),
        dropped: lost(stream),
        refused: refused.map(|(_, count)| number(count)).sum(),
    }
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn now_ms() -> i64 {
    millis(
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    )
}
