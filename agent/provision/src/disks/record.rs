//! Builds the state of each disk from the remaining plan and from what was done.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use virtfleet_agent_core::disks::{
    DiskPlan, Plan, Probe, Refusal, RefusalKind, Seen, Wanted, binds, findings,
    journal::{AuditRecord, Evidence, Journal, Progress},
    keys,
    seen::Mounted,
    state::{DiskState, DiskStatus, DisksState, FORMAT, PlaceState},
    wanted::WantedProblem,
};
use virtfleet_agent_host::{JournalStore, UNDO_DIRECTORY, clock, disks::kept_for_undo};
use virtfleet_wire::{
    finding::{Finding, Severity},
    settings::DiskSettings,
};

use super::{act::DiskOutcome, health, observe::key_words, provisioner::DiskProvisioner};

/// How long the state mentions the bytes that are kept for undo.
const UNDO_NOTE_TIME: Duration = Duration::from_hours(7 * 24);
/// Maximum number of audit records per disk in the state.
const MAX_AUDIT_RECORDS: usize = 4;
/// Number of recent audit records that are read.
const AUDIT_RECORDS_READ: usize = 500;

/// Input of the state.
pub(super) struct After<'a> {
    pub(super) declared: &'a [DiskSettings],
    pub(super) wanted: &'a [Wanted],
    pub(super) problems: &'a [WantedProblem],
    pub(super) seen: &'a Seen,
    pub(super) plan: &'a Plan,
    pub(super) journal: &'a Journal,
    pub(super) outcomes: &'a BTreeMap<String, DiskOutcome>,
    pub(super) failures: &'a [String],
    /// Disks whose container this run has opened with the recovery key.
    pub(super) recovered: &'a BTreeSet<String>,
    /// The state of the last run in this boot.
    pub(super) previous: &'a DisksState,
}

/// Adds refusals of the containers that no key opens (`refusals`, by disk). Such a disk is refused;
/// its step does not count as failed.
pub(super) fn refuse_locked(
    plan: &mut Plan,
    outcomes: &mut BTreeMap<String, DiskOutcome>,
    refusals: &BTreeMap<String, Refusal>,
) {
    for (name, refusal) in refusals {
        if let Some(plan) = plan.disks.iter_mut().find(|plan| plan.name == *name) {
            plan.steps.clear();
            plan.refusals.push(refusal.clone());
            if let Some(outcome) = outcomes.get_mut(name) {
                outcome.error = None;
            }
        }
    }
}

pub(super) fn state(provisioner: &DiskProvisioner<'_>, after: &After<'_>) -> DisksState {
    let audit = JournalStore::existing(provisioner.roots)
        .ok()
        .flatten()
        .map(|store| store.last_audit(AUDIT_RECORDS_READ))
        .unwrap_or_default();
    let mut disks: Vec<DiskState> = after
        .plan
        .disks
        .iter()
        .map(|plan| one(after, plan, &audit))
        .collect();
    for disk in &mut disks {
        disk.notes.extend(undo_note(provisioner, &disk.name));
    }
    let mut found = findings::findings(after.wanted, after.plan, after.seen);
    found.extend(disks.iter().filter_map(failure));
    found.extend(health::add(provisioner, &mut disks, after.previous));
    found.extend(disks.iter().filter_map(|disk| by_recovery(after, disk)));
    DisksState {
        v: FORMAT,
        boot_id: provisioner.boot_id.to_owned(),
        at_boottime_ns: clock().boottime_ns,
        error: (!after.failures.is_empty()).then(|| after.failures.join("; ")),
        findings: found,
        disks,
    }
}

/// Where the first bytes of a disk are kept, for a week after it was erased by approval.
fn undo_note(provisioner: &DiskProvisioner<'_>, name: &str) -> Option<String> {
    let kept = kept_for_undo(&provisioner.roots.root(UNDO_DIRECTORY), name)?;
    let age = Duration::from_nanos(clock().realtime_ns).checked_sub(Duration::from_secs(kept))?;
    (age < UNDO_NOTE_TIME).then(|| {
        format!(
            "formatted {} minutes ago by approval; first and last MiB kept in {UNDO_DIRECTORY}/{name}-{kept}-at-*.bin",
            age.as_secs() / 60
        )
    })
}

/// The state if nothing could be observed: that of the last run, with the reason.
pub(super) fn failed(provisioner: &DiskProvisioner<'_>, previous: &DisksState, reason: &str) -> DisksState {
    DisksState {
        v: FORMAT,
        boot_id: provisioner.boot_id.to_owned(),
        at_boottime_ns: clock().boottime_ns,
        error: Some(reason.to_owned()),
        ..previous.clone()
    }
}

fn one(after: &After<'_>, plan: &DiskPlan, audit: &[AuditRecord]) -> DiskState {
    let wanted = after.wanted.iter().find(|wanted| wanted.name == plan.name);
    let declared = after.declared.iter().find(|declared| declared.name == plan.name);
    let outcome = after.outcomes.get(&plan.name).cloned().unwrap_or_default();
    let mount_point = declared.and_then(binds::mount_point);
    let mounted = after
        .seen
        .mounts
        .iter()
        .rev()
        .find(|mount| mount_point.as_ref() == Some(&mount.mount_point));
    let uuid = match after.seen.probes.get(&plan.name) {
        // The state names the filesystem's UUID, by which admins look for it, not that of the LUKS
        // header.
        Some(Probe::HasData(content)) if content.kind != "crypto_LUKS" => content.uuid.clone(),
        _ => None,
    };
    let journaled = || {
        let entry = after.journal.entries.iter().find(|entry| entry.name == plan.name);
        entry.map(|entry| entry.uuid.clone())
    };
    let lines = audit.iter().filter(|record| record.name == plan.name);
    let mut lines: Vec<AuditRecord> = lines.cloned().collect();
    DiskState {
        name: plan.name.clone(),
        standing: standing(plan, &outcome),
        key: key_words(plan.key.as_ref()),
        device: plan
            .device
            .as_ref()
            .map(|device| device.name.clone())
            .unwrap_or_default(),
        serial: plan
            .device
            .as_ref()
            .and_then(|device| device.serial.clone())
            .unwrap_or_default(),
        size_bytes: plan.device.as_ref().map_or(0, |device| device.size),
        filesystem: declared
            .map(|declared| declared.filesystem.word().to_owned())
            .unwrap_or_default(),
        uuid: uuid.or_else(journaled).unwrap_or_default(),
        mount_point: mount_point.unwrap_or_default(),
        places: wanted
            .map(|wanted| places(wanted, mounted, after.seen))
            .unwrap_or_default(),
        filesystem_bytes: mounted.and_then(|mounted| mounted.filesystem_bytes),
        required: declared.is_some_and(|declared| declared.required)
            || after
                .problems
                .iter()
                .any(|problem| problem.required && problem.plan() == plan.name),
        opened_by_recovery: recovered(after, plan, &outcome),
        discard: wanted.is_some_and(|wanted| wanted.discard),
        refusals: plan.refusals.clone(),
        notes: plan.notes.clone(),
        proof: proof(after, plan),
        health: None,
        error: outcome.error,
        done: outcome.done,
        audit: lines.split_off(lines.len().saturating_sub(MAX_AUDIT_RECORDS)),
    }
}

/// The places of a disk that has several. `whole` is the mount of its filesystem.
fn places(wanted: &Wanted, whole: Option<&Mounted>, seen: &Seen) -> Vec<PlaceState> {
    let one = |bind: &binds::Bind| {
        let mut mounts = seen.mounts.iter().rev();
        let there = mounts.find(|mount| mount.mount_point == bind.path);
        PlaceState {
            path: bind.path.clone(),
            directory: bind.directory.clone(),
            mounted: there
                .zip(whole)
                .is_some_and(|(there, whole)| bind.is(there, whole)),
        }
    };
    wanted.binds.iter().map(one).collect()
}

/// How much was proven blank when the disk was formatted, from the journal.
fn proof(after: &After<'_>, plan: &DiskPlan) -> String {
    let entry = after.journal.entries.iter().find(|entry| entry.name == plan.name);
    match entry.map(|entry| (&entry.evidence, entry.progress > Progress::Intended)) {
        Some((Evidence::Blank(blank), true)) if blank.size > 0 => {
            format!("before it was formatted: {}", blank.words())
        }
        _ => String::new(),
    }
}

fn standing(plan: &DiskPlan, outcome: &DiskOutcome) -> DiskStatus {
    let missing = |kind: RefusalKind| kind == RefusalKind::Missing;
    if outcome.error.is_some() {
        DiskStatus::Failed
    } else if plan.refusals.iter().any(|refusal| missing(refusal.kind)) {
        DiskStatus::Missing
    } else if !plan.refusals.is_empty() {
        DiskStatus::Refused
    } else if plan.device.is_none() {
        DiskStatus::Missing
    } else if plan.steps.is_empty() {
        DiskStatus::Ready
    } else {
        DiskStatus::Pending
    }
}

/// True if the open container was opened with the recovery key, by this run or an earlier one.
fn recovered(after: &After<'_>, plan: &DiskPlan, outcome: &DiskOutcome) -> bool {
    let before = || {
        let before = after.previous.disks.iter().find(|disk| disk.name == plan.name);
        before.is_some_and(|disk| disk.opened_by_recovery)
            && after.seen.mappings.contains_key(&keys::mapping(&plan.name))
            && !outcome.done.iter().any(|word| word == "open")
    };
    after.recovered.contains(&plan.name) || before()
}

fn by_recovery(after: &After<'_>, disk: &DiskState) -> Option<Finding> {
    let wanted = after.wanted.iter().find(|wanted| wanted.name == disk.name)?;
    let encryption = wanted.encryption.as_ref().filter(|_| disk.opened_by_recovery)?;
    let mapping = after.seen.mappings.get(&keys::mapping(&disk.name))?;
    let plan = after.plan.disks.iter().find(|plan| plan.name == disk.name)?;
    let shut = keys::Shut {
        name: &disk.name,
        device: plan.device.as_ref()?,
        luks_uuid: &mapping.luks_uuid,
        encryption,
    };
    Some(keys::opened_by_recovery(&disk.name, encryption, shut.remedy()))
}

fn failure(disk: &DiskState) -> Option<Finding> {
    let error = disk.error.as_ref()?;
    let severity = if disk.required {
        Severity::Critical
    } else {
        Severity::Warning
    };
    Some(
        Finding::new(
            "disk-step-failed",
            severity,
            ("Disk", &disk.name),
            "StepFailed",
            format!("disk {}: {error}", disk.name),
        )
        .with("device", &disk.device)
        .remedy(disk.next()),
    )
}
