//! The guest's report: identity, claims, hardware, the state of the settings, and findings.
//!
//! Each report reads small files of procfs and sysfs again. It waits for no device and starts no
//! process, so it can be requested every few seconds. `docs/report.md` lists the sections.

mod disks;
mod dns;
mod enrolment;
mod files;
mod findings;
mod hardware;
mod nics;
mod provision;
mod second_exporter;
mod storage;
mod system;
mod virtio;
mod way;

use std::collections::BTreeMap;

pub(crate) use findings::remedy;
use jiff::Timestamp;
use serde_json::{Value, json};
use virtfleet_agent_core::disks::duplicates;
use virtfleet_agent_host::{Roots, clock, identified, references};
use virtfleet_agent_state::{DnsHistory, identity::Observer, settings::LoadedSettings};
use virtfleet_wire::{
    finding::{Finding, Subject},
    report::{AgentInfo, Clock, GuestReport, REPORT_API_VERSION, REPORT_KIND, Section, SectionStatus},
    settings::{DnsManage, NicSettings},
};
pub use virtio::state as device_state;

use self::{enrolment::EnrolmentSource, second_exporter::SecondExporter, way::WaySource};
use crate::{enrolment::Enrolment, pause::ClockWatch, push::WayTracker};

/// What this agent can do, sorted.
const FEATURES: [&str; 2] = ["metrics", "report"];

/// Builds the reports of one process.
#[derive(Debug)]
pub struct Reporter {
    roots: Roots,
    version: String,
    seq: u64,
    observer: Observer,
    settings: Section,
    declares_disks: bool,
    dns_manage: DnsManage,
    nic: NicSettings,
    history: DnsHistory,
    enrolment: EnrolmentSource,
    way: WaySource,
    second_exporter: SecondExporter,
    /// Findings of the settings. They do not change while the process runs.
    standing: Vec<Finding>,
    since: BTreeMap<(String, Subject), Since>,
}

/// When a finding was first observed, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Since {
    boottime: u64,
    /// By the wall clock, since 1970.
    realtime: u64,
    /// Total length of the guest's pauses until then.
    paused: u64,
}

/// How far a date may be off before it is corrected, in nanoseconds: slewing, and the time between
/// reading two clocks.
const DATE_TOLERANCE_NS: u64 = 1_000_000_000;
/// The same after a pause, whose length is less precise.
const DATE_TOLERANCE_AFTER_PAUSE_NS: u64 = 5 * DATE_TOLERANCE_NS;

impl Reporter {
    /// A reporter of the agent `version` (as in `0.1.0`) that runs with these settings.
    pub fn new(roots: Roots, version: &str, settings: &LoadedSettings) -> Self {
        Self {
            roots,
            version: version.to_owned(),
            seq: 0,
            observer: Observer::default(),
            settings: settings_section(settings),
            declares_disks: !settings.config.disks.is_empty(),
            dns_manage: settings.config.dns.manage,
            nic: settings.config.nic.clone(),
            history: DnsHistory::default(),
            enrolment: EnrolmentSource::of_settings(&settings.config.server.tls),
            way: WaySource::Stored,
            second_exporter: SecondExporter::new(&settings.config.server.listeners),
            standing: findings::of_settings(&settings.problems)
                .into_iter()
                .chain(findings::of_ignored(&settings.ignored))
                .collect(),
            since: BTreeMap::new(),
        }
    }

    /// Adds the results of the DNS watch.
    #[must_use]
    pub fn with_history(mut self, history: DnsHistory) -> Self {
        self.history = history;
        self
    }

    /// Reports the enrolment of this process instead of the stored one.
    #[must_use]
    pub fn with_enrolment(mut self, enrolment: Option<Enrolment>) -> Self {
        if let Some(enrolment) = enrolment {
            self.enrolment = EnrolmentSource::Running(enrolment);
        }
        self
    }

    /// Reports how collectors reach this process instead of what is stored.
    #[must_use]
    pub fn with_tracker(mut self, tracker: WayTracker) -> Self {
        self.way = WaySource::Running(tracker);
        self
    }

    /// Queries the kernel for a listener on node_exporter's port.
    #[must_use]
    pub fn with_listener_query(mut self) -> Self {
        self.second_exporter.query_kernel();
        self
    }

    /// Builds the next report, with the events of the clock watch.
    pub fn report(&mut self, watch: &ClockWatch) -> GuestReport {
        self.report_at(clock(), watch)
    }

    /// Builds the report at a given time. A finding keeps the time at which this process observed
    /// it first, until it disappears.
    pub fn report_at(&mut self, clock: Clock, watch: &ClockWatch) -> GuestReport {
        self.seq += 1;
        let observed = self.observer.observe(&self.roots, clock.boottime_ns);
        let mut findings = self.standing.clone();
        findings.extend(findings::of_identity(&observed.identity.missing));
        let passes = provision::read(&self.roots, &observed.boot_id, &clock);
        findings.extend(passes.findings);
        let storage = storage::read(&self.roots, &observed.boot_id, &clock, self.declares_disks);
        findings.extend(storage.findings);
        let (devices, references) = (identified(&self.roots), references(&self.roots));
        findings.extend(duplicates::findings(&devices, &references));
        let names = dns::read(
            &self.roots,
            &observed.boot_id,
            &clock,
            &self.history,
            self.dns_manage,
        );
        findings.extend(names.findings);
        // The agent runs without privileges: what devices offer was recorded by root's last
        // reconcile run.
        let devices =
            virtfleet_agent_state::virtio::inspect(&self.roots, &observed.boot_id, &self.nic, false);
        findings.extend_from_slice(&devices.findings);
        let certificate = self.enrolment.read(&self.roots, &clock);
        findings.extend(certificate.findings);
        let way = self.way.read(&self.roots, &clock);
        findings.extend(way.findings);
        findings.extend(watch.finding(&clock));
        findings.extend(self.second_exporter.finding(clock.boottime_ns));
        self.date(&mut findings, &clock, watch.paused_ns());
        let sections = [
            ("system", system::read(&self.roots)),
            ("hardware", hardware::read(&self.roots)),
            ("disks", disks::read(&self.roots)),
            ("nics", nics::read(&self.roots, &devices)),
            ("settings", self.settings.clone()),
            ("provision", passes.section),
            ("storage", storage.section),
            ("dns", names.section),
            ("virtio", virtio::section(&devices)),
            ("clock", watch.section(&clock)),
            ("way", way.section),
        ];
        let sections = sections.into_iter().chain(certificate.section);
        GuestReport {
            api_version: REPORT_API_VERSION.to_owned(),
            kind: REPORT_KIND.to_owned(),
            agent: AgentInfo {
                version: self.version.clone(),
                features: FEATURES.map(str::to_owned).to_vec(),
            },
            boot_id: observed.boot_id,
            seq: self.seq,
            clock,
            identity: observed.identity,
            claims: observed.claims,
            sections: sections
                .map(|(name, section)| (name.to_owned(), section))
                .collect(),
            findings,
        }
    }

    /// Corrects the dates of findings. If the wall clock is set, a finding keeps its age, not its
    /// date: a guest that boots with a wrong clock would otherwise report wrong dates as long as
    /// the agent runs. A clock that is corrected after a pause, which no clock of the guest
    /// counted, changes no date.
    fn date(&mut self, findings: &mut [Finding], now: &Clock, paused_ns: u64) {
        let mut seen = BTreeMap::new();
        for finding in findings {
            let key = (finding.id.clone(), finding.subject.clone());
            let mut since = self.since.remove(&key).unwrap_or(Since {
                boottime: now.boottime_ns,
                realtime: now.realtime_ns,
                paused: paused_ns,
            });
            let age = now.boottime_ns.saturating_sub(since.boottime);
            let by_age = now.realtime_ns.saturating_sub(age);
            let by_age_and_pauses = by_age.saturating_sub(paused_ns.saturating_sub(since.paused));
            if by_age.abs_diff(since.realtime) > DATE_TOLERANCE_NS
                && by_age_and_pauses.abs_diff(since.realtime) > DATE_TOLERANCE_AFTER_PAUSE_NS
            {
                since.realtime = by_age;
            }
            finding.since = i64::try_from(since.realtime / 1_000_000_000)
                .ok()
                .and_then(|seconds| Timestamp::from_second(seconds).ok())
                .map_or_else(String::new, |time| time.to_string());
            seen.insert(key, since);
        }
        self.since = seen;
    }
}

/// One item per file, then one per problem.
fn settings_section(settings: &LoadedSettings) -> Section {
    let state = |files: &[String], state: &str| {
        files
            .iter()
            .map(|file| json!({"file": file, "state": state}))
            .collect::<Vec<Value>>()
    };
    let mut items = state(&settings.files, "applied");
    items.extend(state(&settings.skipped, "skipped"));
    items.extend(state(&settings.masked, "masked"));
    items.extend(
        settings
            .problems
            .iter()
            .take(findings::MAX_SETTINGS_FINDINGS)
            .filter_map(|problem| {
                let mut item = serde_json::to_value(problem).ok()?;
                item["state"] = "problem".into();
                Some(item)
            }),
    );
    Section {
        status: if settings.problems.is_empty() {
            SectionStatus::Ok
        } else {
            SectionStatus::Partial
        },
        age_ms: 0,
        items,
        truncated: settings.problems.len() > findings::MAX_SETTINGS_FINDINGS,
    }
}

#[cfg(test)]
mod tests;
