//! The guest's report: identity, claims, what the machine is made of, how the settings came out, and findings.
//!
//! Reads small files of procfs and sysfs afresh each time; nothing in it waits for a device or starts a process, so it may
//! be asked every few seconds. `docs/report.md` lists the sections.

mod disks;
mod files;
mod findings;
mod nics;
mod system;

use std::collections::BTreeMap;

pub(crate) use findings::remedy;
use jiff::Timestamp;
use serde_json::{Value, json};
use virtfleet_wire::{
    finding::{Finding, Subject},
    report::{AgentInfo, Clock, GuestReport, REPORT_API_VERSION, REPORT_KIND, Section, SectionStatus},
};

use crate::{
    host::{Roots, clock},
    identity::Observer,
    settings::LoadedSettings,
};

/// What this agent can do, sorted.
const FEATURES: [&str; 2] = ["metrics", "report"];

/// Makes the reports of one process.
#[derive(Debug)]
pub struct Reporter {
    roots: Roots,
    version: String,
    seq: u64,
    observer: Observer,
    settings: Section,
    /// Of the settings: they do not change while the process runs.
    standing: Vec<Finding>,
    since: BTreeMap<(String, Subject), String>,
}

impl Reporter {
    /// A reporter of the agent `version` (as in `0.1.0`) that runs with these settings.
    pub fn new(roots: Roots, version: &str, settings: &LoadedSettings) -> Self {
        Self {
            roots,
            version: version.to_owned(),
            seq: 0,
            observer: Observer::default(),
            settings: settings_section(settings),
            standing: findings::of_settings(&settings.problems),
            since: BTreeMap::new(),
        }
    }

    /// The next report.
    pub fn report(&mut self) -> GuestReport {
        self.report_at(clock())
    }

    /// The same at a given time. A finding keeps the time at which this process saw it first, as long as it is seen.
    pub fn report_at(&mut self, clock: Clock) -> GuestReport {
        self.seq += 1;
        let observed = self.observer.observe(&self.roots, clock.boottime_ns);
        let mut findings = self.standing.clone();
        findings.extend(findings::of_identity(&observed.identity.missing));
        self.date(&mut findings, clock.realtime_ns);
        let sections = [
            ("system", system::read(&self.roots)),
            ("disks", disks::read(&self.roots)),
            ("nics", nics::read(&self.roots)),
            ("settings", self.settings.clone()),
        ];
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
            sections: sections.map(|(name, section)| (name.to_owned(), section)).into(),
            findings,
        }
    }

    fn date(&mut self, findings: &mut [Finding], realtime_ns: u64) {
        let now = i64::try_from(realtime_ns / 1_000_000_000)
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .map_or_else(String::new, |time| time.to_string());
        let mut seen = BTreeMap::new();
        for finding in findings {
            let key = (finding.id.clone(), finding.subject.clone());
            let since = self.since.remove(&key).unwrap_or_else(|| now.clone());
            finding.since.clone_from(&since);
            seen.insert(key, since);
        }
        self.since = seen;
    }
}

/// One item a file, then one a problem.
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
            .take(findings::MOST)
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
        truncated: settings.problems.len() > findings::MOST,
    }
}

#[cfg(test)]
mod tests;
