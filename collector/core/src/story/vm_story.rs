//! What happened to one VM.

use std::net::IpAddr;

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{NodeName, VmKey},
};

use super::{
    changes::{self, ShownVerdict},
    clock_event::{ClockEventKind, ClockEvents},
    entry::{TimelineEntry, TimelineKind},
    migration::{MigrationPhase, MigrationView, StoryView},
    record::{self, MigrationRecord},
    storm::MigrationStart,
    timeline::Timeline,
};
use crate::{
    facts::{Migration, VmiMove},
    findings::{self, MIGRATION_REPEATS},
    health::HealthView,
    pull_result::UnixMs,
};

/// Time in which migrations of one VM are counted, in milliseconds: 1 hour.
pub const REPEAT_INTERVAL_MS: u64 = 3_600_000;
/// Migrations of one VM within [`REPEAT_INTERVAL_MS`] that are a finding.
pub const REPEAT_MIGRATIONS: usize = 3;
/// Maximum migrations that are kept of a VM. KubeVirt keeps five of its objects.
const MAX_RECORDS: usize = 8;
/// Maximum addresses that are compared.
const MAX_ADDRESSES: usize = 8;
/// Difference between two readings of one event's time, in milliseconds.
const SAME_EVENT_MS: u64 = 1_000;

/// Timeline, migrations, and what the next change is compared with.
#[derive(Debug, Clone, Default)]
pub(crate) struct VmStory {
    timeline: Timeline,
    records: Vec<MigrationRecord>,
    verdict: Option<ShownVerdict>,
    boot_id: Box<str>,
    /// By the guest's boot clock, the last event that is in the timeline.
    last_clock_event_ms: Option<u64>,
    addresses: Box<[IpAddr]>,
    /// `migration-repeats`.
    finding: Option<Finding>,
    failures: FailedMigrations,
    due_ms: Option<UnixMs>,
}

/// Migrations that have failed within [`REPEAT_INTERVAL_MS`], since the last one that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FailedMigrations {
    pub(crate) count: usize,
    /// Why the last one has failed, as KubeVirt says.
    pub(crate) why: Option<Box<str>>,
}

impl FailedMigrations {
    fn of(all: &[MigrationView], now_ms: UnixMs) -> Self {
        let succeeded = all.iter().rposition(|one| one.phase == MigrationPhase::Succeeded);
        let since = all.iter().skip(succeeded.map_or(0, |at| at + 1));
        let is_late = |at: UnixMs| now_ms.saturating_sub(at) < REPEAT_INTERVAL_MS;
        let failed: Vec<_> = since.filter(|one| one.failed_ms().is_some_and(is_late)).collect();
        let why = failed.last().and_then(|one| one.failure_reason.as_deref());
        Self {
            count: failed.len(),
            why: why.map(Into::into),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportChange<'a> {
    /// Time of the answer.
    pub(crate) at_ms: UnixMs,
    pub(crate) boot_id: &'a str,
    pub(crate) clock: &'a ClockEvents,
    /// The guest's findings in the report before; none if this is the first one.
    pub(crate) findings_before: Option<&'a [Finding]>,
    pub(crate) findings: &'a [Finding],
}

impl VmStory {
    pub(crate) fn add(&mut self, entry: TimelineEntry) {
        self.timeline.add(entry);
    }

    /// Takes the present `migrationState`. Returns a migration that has begun.
    pub(crate) fn observe_migration(
        &mut self,
        key: &VmKey,
        state: &Migration,
        now_ms: UnixMs,
    ) -> Option<MigrationStart> {
        let known = self.records.iter().rposition(|one| one.is_same(state));
        if let Some(record) = known.and_then(|at| self.records.get_mut(at)) {
            if record.update(state, now_ms) {
                self.timeline.add(changes::migration_ends(record, now_ms));
            }
            return None;
        }
        let record = MigrationRecord::new(state, &self.addresses, now_ms);
        if state.in_progress() || state.start_ms.is_some() {
            self.timeline.add(changes::migration_begins(&record));
        }
        if !state.in_progress() {
            self.timeline.add(changes::migration_ends(&record, now_ms));
        }
        let start = MigrationStart {
            at_ms: record.start_ms(),
            vm: key.clone(),
            source: state.source.clone(),
            target: state.target.clone(),
        };
        // A migration that has ended without times may be of any age.
        let is_dated = state.in_progress() || state.start_ms.is_some();
        if self.records.len() >= MAX_RECORDS {
            self.records.remove(0);
        }
        self.records.push(record);
        is_dated.then_some(start)
    }

    /// Takes the present addresses of a running VM.
    pub(crate) fn observe_addresses(&mut self, now: Vec<IpAddr>, is_migrating: bool, now_ms: UnixMs) {
        let mut now = now;
        now.sort_unstable();
        now.dedup();
        now.truncate(MAX_ADDRESSES);
        // During a migration, KubeVirt may show those of either pod.
        if is_migrating {
            return;
        }
        if let Some(last) = self.records.last_mut() {
            last.record_addresses(&now, now_ms);
        }
        if *self.addresses == *now {
            return;
        }
        if !self.addresses.is_empty() {
            let migration = self.records.last().filter(|one| one.explains(now_ms));
            let migration = migration.map(|one| &one.known);
            let entry = changes::addresses(&self.addresses, &now, now_ms, migration);
            self.timeline.add(entry);
        }
        self.addresses = now.into();
    }

    /// Takes a report of the agent.
    pub(crate) fn observe_report(&mut self, report: ReportChange<'_>) {
        let at_ms = report.at_ms;
        if !report.boot_id.is_empty() && *self.boot_id != *report.boot_id {
            if !self.boot_id.is_empty() {
                self.observe_restart(at_ms);
            }
            self.boot_id = report.boot_id.into();
            self.last_clock_event_ms = None;
        }
        self.observe_clock(report.clock, at_ms);
        for record in &mut self.records {
            record.record_report(at_ms, report.clock.detects_pauses);
        }
        if let Some(before) = report.findings_before {
            for entry in changes::findings(before, report.findings, at_ms) {
                self.timeline.add(entry);
            }
        }
    }

    fn observe_restart(&mut self, at_ms: UnixMs) {
        let record = self.records.last_mut().filter(|one| one.explains(at_ms));
        let migration = record.map(|record| {
            record.felt.is_restarted = true;
            &record.known
        });
        self.timeline.add(changes::restart(at_ms, migration));
    }

    fn observe_clock(&mut self, clock: &ClockEvents, at_ms: UnixMs) {
        let known = self.last_clock_event_ms;
        for event in &clock.events {
            let by_boot_clock = clock.boottime_ms.saturating_sub(event.age_ms);
            if known.is_some_and(|known| by_boot_clock <= known.saturating_add(SAME_EVENT_MS)) {
                continue;
            }
            self.last_clock_event_ms = self.last_clock_event_ms.max(Some(by_boot_clock));
            let event_ms = at_ms.saturating_sub(event.age_ms);
            // A suspend is the guest's own.
            let is_felt = event.kind != ClockEventKind::Suspend;
            let record = self.records.iter_mut().rev();
            let record = record
                .filter(|_| is_felt)
                .find(|record| record.explains(event_ms));
            let migration = record.map(|record| {
                record.feel(event);
                &record.known
            });
            self.timeline.add(changes::clock(event, event_ms, migration));
        }
    }

    /// Takes the health as it is shown.
    pub(crate) fn observe_health(&mut self, health: &HealthView, now_ms: UnixMs) {
        if health.is_undecided {
            return;
        }
        if let Some(entry) = changes::verdict(self.verdict.as_ref(), health, now_ms) {
            self.timeline.add(entry);
        }
        self.verdict = Some(ShownVerdict::of(health));
    }

    /// Takes the collector's findings.
    pub(crate) fn observe_findings(&mut self, before: &[Finding], now: &[Finding], now_ms: UnixMs) {
        for entry in changes::findings(before, now, now_ms) {
            self.timeline.add(entry);
        }
    }

    /// The VM is on another infra node.
    pub(crate) fn observe_host(&mut self, before: Option<&NodeName>, now: &NodeName, now_ms: UnixMs) {
        let text = match before {
            Some(before) => format!("the VM runs on {now}, was on {before}"),
            None => format!("the VM is placed on {now}"),
        };
        let entry = TimelineEntry::new(now_ms, TimelineKind::Placement, text);
        self.timeline.add(entry.naming(before.into_iter().chain([now])));
    }

    /// Updates `migration-repeats`; `moves` are the migration objects of the VM.
    pub(crate) fn count_migrations<'a>(
        &mut self,
        key: &VmKey,
        moves: impl Iterator<Item = &'a VmiMove>,
        now_ms: UnixMs,
    ) {
        let all = self.migrations(moves);
        // One that waits has not been tried. One that failed may never have started.
        let time = |one: &MigrationView| one.start_ms.or_else(|| one.failed_ms());
        let is_late = |at: &UnixMs| now_ms.saturating_sub(*at) < REPEAT_INTERVAL_MS;
        let lately = all.iter().filter(|one| time(one).as_ref().is_some_and(is_late));
        let lately: Vec<&MigrationView> = lately.collect();
        self.finding = (lately.len() >= REPEAT_MIGRATIONS).then(|| repeats(key, &lately));
        self.failures = FailedMigrations::of(&all, now_ms);
        let times = lately.iter().filter_map(|one| time(one));
        let failed = all.iter().filter_map(MigrationView::failed_ms).filter(is_late);
        let earliest = times.chain(failed).min();
        let is_counted = self.finding.is_some() || self.failures.count > 1;
        self.due_ms = earliest
            .filter(|_| is_counted)
            .map(|at| at.saturating_add(REPEAT_INTERVAL_MS));
    }

    pub(crate) fn failures(&self) -> &FailedMigrations {
        &self.failures
    }

    /// `migration-repeats`.
    pub(crate) fn finding(&self) -> Option<&Finding> {
        self.finding.as_ref()
    }

    /// When the time alone changes the finding.
    pub(crate) fn due_ms(&self) -> Option<UnixMs> {
        self.due_ms
    }

    /// All known migrations, oldest first: those observed, and those whose objects exist.
    fn migrations<'a>(&self, moves: impl Iterator<Item = &'a VmiMove>) -> Vec<MigrationView> {
        let mut all: Vec<MigrationView> = self.records.iter().map(MigrationRecord::view).collect();
        for object in moves {
            let object = record::of_object(object);
            let known = all.iter_mut().rev();
            match known
                .filter(|one| one.object.is_none())
                .find(|one| record::is_of(&object, one))
            {
                Some(known) => {
                    known.object = object.object;
                    known.created_ms = object.created_ms;
                }
                None => all.push(object),
            }
        }
        all.sort_by(|a, b| (a.at_ms(), &a.object).cmp(&(b.at_ms(), &b.object)));
        all
    }

    /// Timeline and migrations; `moves` are the migration objects of the VM.
    pub(crate) fn view<'a>(&self, moves: impl Iterator<Item = &'a VmiMove>) -> StoryView {
        StoryView {
            timeline: self.timeline.entries().to_vec(),
            migrations: self.migrations(moves),
        }
    }
}

fn repeats(key: &VmKey, lately: &[&MigrationView]) -> Finding {
    let failed = lately.iter().filter(|one| one.failed_ms().is_some()).count();
    let mut hosts: Vec<&str> = lately
        .iter()
        .flat_map(|one| [&one.source, &one.target])
        .filter_map(|node| node.as_ref().map(NodeName::as_str))
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let message = format!(
        "{key} has been live-migrated {} times within an hour",
        lately.len()
    );
    findings::vm(
        MIGRATION_REPEATS,
        Severity::Warning,
        key,
        "MigrationRepeats",
        message,
    )
    .with("migrations", lately.len())
    .with("failed", failed)
    .with("infraNodes", hosts.join(", "))
    .remedy(format!(
        "find out what moves it: kubectl -n {} get vmim -l kubevirt.io/vmi-name={} --sort-by=.metadata.creationTimestamp; \
         usual causes are a descheduler, repeated drains, and a migration that fails and is retried",
        key.namespace, key.name
    ))
}
