//! Computes the plan. Pure: equal settings, observations and journal yield an equal plan.

#![expect(clippy::result_large_err, reason = "at most one refusal per disk and run")]

mod approval;
mod binds;
mod case;
mod clone;
mod content;
mod content_refusals;
mod files;
mod foreign;
mod luks;
mod luks_key;
mod options;
mod partition;
mod placing;
mod tend;
mod uses;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    journal::{FORMAT, Journal},
    matching::{Selection, select},
    plan::{DiskPlan, DiskStep, Plan, Refusal, RefusalKind},
    seen::Seen,
    units::{FSTAB, disk_of, gate_files, is_gates},
    wanted::{Wanted, WantedProblem},
};
use case::Case;

/// Returns the plan. It has no steps if everything is as requested.
pub fn plan(wanted: &[Wanted], problems: &[WantedProblem], seen: &Seen, journal: &Journal) -> Plan {
    let mut run = Run {
        wanted,
        seen,
        journal,
        fstab: seen.files.get(FSTAB).cloned().unwrap_or_default(),
        placed: BTreeSet::new(),
        named: BTreeMap::new(),
        refused_places: Vec::new(),
    };
    let mut disks: Vec<DiskPlan> = wanted
        .iter()
        .zip(select(wanted, &seen.devices, &seen.vm_uuid))
        .map(|(disk, selection)| run.disk(disk, selection))
        .collect();
    disks.extend(refused_settings(problems));
    Plan {
        disks,
        common: if seen.systemd {
            gate(required(wanted, problems), &seen.files, &seen.agent)
        } else {
            Vec::new()
        },
    }
}

/// Whether containerd and kubelet wait for a declared disk: one is required, including disks with
/// invalid settings.
pub fn required(wanted: &[Wanted], problems: &[WantedProblem]) -> bool {
    wanted.iter().any(|disk| disk.required) || problems.iter().any(|problem| problem.required)
}

/// State that the planning of one disk passes on to the next.
pub(super) struct Run<'a> {
    wanted: &'a [Wanted],
    seen: &'a Seen,
    journal: &'a Journal,
    /// Content of fstab after the steps so far.
    fstab: String,
    /// Mount points where the disk is mounted, or will be after its steps.
    placed: BTreeSet<&'a str>,
    /// By UUID, the first disk whose files for the next boot contain it. A second disk with that
    /// UUID would overwrite these files, and the next run would change them back.
    named: BTreeMap<String, &'a str>,
    /// Refusals for single places of the current disk; its other steps remain.
    refused_places: Vec<Refusal>,
}

impl<'a> Run<'a> {
    fn disk(&mut self, disk: &'a Wanted, selection: Selection) -> DiskPlan {
        let mut plan = empty(&disk.name);
        let (key, index) = match selection.found {
            Ok(found) => found,
            Err(mut refusal) => {
                if refusal.kind == RefusalKind::CameLater {
                    refusal = refusal.in_boot(&self.seen.boot_id);
                }
                if refusal.kind == RefusalKind::Missing && !disk.required {
                    plan.notes
                        .push(format!("{}; it may be plugged in later", refusal.message));
                } else {
                    plan.device.clone_from(&refusal.device);
                    plan.refusals.push(refusal);
                }
                return plan;
            }
        };
        let device = &self.seen.devices[index];
        plan.key = Some(key.clone());
        plan.device = Some(device.id.clone());
        let case = Case::new(disk, key, device, self.seen, self.journal);
        let steps = match broken(&disk.name, self.journal) {
            Some(reason) => Err(no_journal(&case, &reason)),
            None => self.steps(&case, &mut plan.notes),
        };
        match steps {
            Ok(steps) => {
                plan.steps = steps;
                if let Some(path) = disk.mount_point.as_deref() {
                    self.placed.insert(path);
                }
            }
            Err(refusal) => {
                // A mounted disk can carry mounts below it, even if something else about it is
                // refused.
                if let Some(path) = disk.mount_point.as_deref().filter(|_| case.in_place()) {
                    self.placed.insert(path);
                }
                plan.refusals.push(refusal);
            }
        }
        plan.refusals.append(&mut self.refused_places);
        plan
    }

    fn steps(&mut self, case: &Case<'a>, notes: &mut Vec<String>) -> Result<Vec<DiskStep>, Refusal> {
        let objection = partition::objection(case);
        if case.in_place() {
            // A mounted filesystem stays in use; a changed partition table matters before the next
            // mount.
            notes.extend(objection.map(partition::Objection::note));
            self.tend(case, notes)
        } else {
            if let Some(objection) = objection {
                return Err(objection.refusal(case));
            }
            case.one_device()?;
            case.free()?;
            if case.disk.encryption.is_some() {
                self.encrypted(case, notes)
            } else {
                self.plain(case, notes)
            }
        }
    }
}

fn empty(name: &str) -> DiskPlan {
    DiskPlan {
        name: name.to_owned(),
        key: None,
        device: None,
        steps: Vec::new(),
        refusals: Vec::new(),
        notes: Vec::new(),
    }
}

/// Returns the reason why the journal of a disk is unusable, if it is.
fn broken(name: &str, journal: &Journal) -> Option<String> {
    let unreadable = journal
        .broken
        .iter()
        .find(|(whose, _)| whose.is_empty() || whose == name);
    let newer = journal
        .entries
        .iter()
        .find(|entry| entry.name == name && entry.format > FORMAT);
    unreadable.map(|(_, reason)| reason.clone()).or_else(|| {
        newer.map(|entry| format!("its entry has format {} of a newer agent version", entry.format))
    })
}

fn no_journal(case: &Case<'_>, reason: &str) -> Refusal {
    case.refuse(
        RefusalKind::NoJournal,
        format!("the history of this disk is unknown: {reason}"),
        "repair /var/lib/virtfleet/journal; do not remove an entry: it prevents the disk from being formatted",
        vec![("reason", reason.to_owned())],
    )
}

/// Returns a plan without steps for each disk with invalid settings; `*` stands for the whole
/// section.
fn refused_settings(problems: &[WantedProblem]) -> Vec<DiskPlan> {
    let mut plans: Vec<DiskPlan> = Vec::new();
    for problem in problems {
        let name = problem.plan();
        let refusal = Refusal::new(
            RefusalKind::Settings,
            None,
            problem.to_string(),
            "`virtfleet-agent check-config` shows file and line",
            vec![("required", problem.required.to_string())],
        );
        if let Some(plan) = plans.iter_mut().find(|plan| plan.name == name) {
            plan.refusals.push(refusal);
        } else {
            let mut plan = empty(name);
            plan.refusals.push(refusal);
            plans.push(plan);
        }
    }
    plans
}

/// Returns the steps for the files of the start gate: written if a disk is required, removed if
/// none is. A file that is not the agent's is not changed. Devices and journal are not needed:
/// `files` are those of [`Seen::files`], `agent` is [`Seen::agent`].
pub fn gate(required: bool, files: &BTreeMap<String, String>, agent: &str) -> Vec<DiskStep> {
    if required {
        let wrong = |(path, text): &(String, String)| match files.get(path) {
            Some(there) => there != text && is_gates(there),
            None => true,
        };
        let missing = gate_files(agent).into_iter().filter(wrong);
        return missing
            .map(|(path, text)| DiskStep::WriteFile { path, text })
            .collect();
    }
    let ours = files
        .iter()
        .filter(|(_, text)| is_gates(text) && disk_of(text).is_none());
    ours.map(|(path, _)| DiskStep::RemoveFile { path: path.clone() })
        .collect()
}

#[cfg(test)]
mod tests;
