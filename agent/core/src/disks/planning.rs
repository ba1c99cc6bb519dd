//! Making the plan. Pure: the same settings, observation and journal give the same plan.

#![expect(clippy::result_large_err, reason = "a refusal is made once a pass for a disk")]

mod approval;
mod binds;
mod case;
mod clone;
mod content;
mod files;
mod foreign;
mod luks;
mod options;
mod partition;
mod placing;
mod tend;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    journal::{FORMAT, Journal},
    matching::{Selection, select},
    plan::{DiskPlan, Plan, Refusal, RefusalKind, Step},
    seen::Seen,
    units::{FSTAB, disk_of, gate_files, is_gates},
    wanted::{Wanted, WantedProblem},
};
use case::Case;

/// What is to be done. Deterministic, and empty of steps when everything is as asked for.
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

/// Whether containerd and kubelet wait for any of the declared disks: one is required, or its settings say so and are wrong.
pub fn required(wanted: &[Wanted], problems: &[WantedProblem]) -> bool {
    wanted.iter().any(|disk| disk.required) || problems.iter().any(|problem| problem.required)
}

/// What the planning of one disk leaves for the next.
pub(super) struct Run<'a> {
    wanted: &'a [Wanted],
    seen: &'a Seen,
    journal: &'a Journal,
    /// fstab as the steps so far leave it.
    fstab: String,
    /// Mount points where the disk is, or will be after its steps.
    placed: BTreeSet<&'a str>,
    /// By UUID, the first disk whose files for the next boot name it. A second disk with that UUID
    /// would overwrite these files, and the first one overwrite them again.
    named: BTreeMap<String, &'a str>,
    /// Refusals of single places of the disk that is being planned; the rest of its steps stay.
    refused_places: Vec<Refusal>,
}

impl<'a> Run<'a> {
    fn disk(&mut self, disk: &'a Wanted, selection: Selection) -> DiskPlan {
        let mut plan = empty(&disk.name);
        let (key, index) = match selection.found {
            Ok(found) => found,
            Err(refusal) => {
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
                // Mounted is mounted, whatever else is refused.
                if let Some(path) = disk.mount_point.as_deref().filter(|_| case.in_place()) {
                    self.placed.insert(path);
                }
                plan.refusals.push(refusal);
            }
        }
        plan.refusals.append(&mut self.refused_places);
        plan
    }

    fn steps(&mut self, case: &Case<'a>, notes: &mut Vec<String>) -> Result<Vec<Step>, Refusal> {
        let objection = partition::objection(case);
        if case.in_place() {
            // A mounted filesystem stays in use; a changed table matters before the next format or mount.
            notes.extend(objection.map(partition::Objection::note));
            self.tend(case, notes)
        } else {
            if let Some(objection) = objection {
                return Err(objection.refusal(case));
            }
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

/// Why the journal says nothing about a disk that could be relied on.
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
        newer.map(|entry| format!("its entry has format {}, which a newer agent wrote", entry.format))
    })
}

fn no_journal(case: &Case<'_>, reason: &str) -> Refusal {
    case.refuse(
        RefusalKind::NoJournal,
        format!("what was done with this disk before is not known: {reason}"),
        "put /var/lib/virtfleet/journal right; do not remove an entry, it is what keeps the disk from being formatted",
        vec![("reason", reason.to_owned())],
    )
}

/// A plan without steps for each disk whose settings make no sense; `*` where the whole section does not.
fn refused_settings(problems: &[WantedProblem]) -> Vec<DiskPlan> {
    let mut plans: Vec<DiskPlan> = Vec::new();
    for problem in problems {
        let name = problem.plan();
        let refusal = Refusal::new(
            RefusalKind::Settings,
            None,
            problem.to_string(),
            "`virtfleet-agent check-config` names file and line",
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

/// The files of the gate, written when a disk is required and removed when none is. A file that is not ours is left alone. It needs neither devices nor journal:
/// `files` are those of [`Seen::files`], `agent` is [`Seen::agent`].
pub fn gate(required: bool, files: &BTreeMap<String, String>, agent: &str) -> Vec<Step> {
    if required {
        let wrong = |(path, text): &(String, String)| match files.get(path) {
            Some(there) => there != text && is_gates(there),
            None => true,
        };
        let missing = gate_files(agent).into_iter().filter(wrong);
        return missing
            .map(|(path, text)| Step::WriteFile { path, text })
            .collect();
    }
    let ours = files
        .iter()
        .filter(|(_, text)| is_gates(text) && disk_of(text).is_none());
    ours.map(|(path, _)| Step::RemoveFile { path: path.clone() })
        .collect()
}

#[cfg(test)]
mod tests;
