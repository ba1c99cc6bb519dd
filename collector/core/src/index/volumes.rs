//! Volumes of the VMs that wait for them: which are to be read, and what was read.

use std::collections::BTreeMap;

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{Namespace, VmKey},
};

use super::{FleetIndex, replace};
use crate::{
    findings::CLAIMS_UNREADABLE,
    store::VmEntry,
    view::VmState,
    volumes::{
        ClaimVolume, MAX_CLAIM_VOLUMES, REREAD_AFTER_MS, ReadVolumes, SeenPlugging, VolumesToRead, WaitingVm,
        choose, wait_of,
    },
};

/// Rounds in which the claims of all VMs that run are read once, if they are not too many.
const ROUNDS_OF_RUNNING: usize = 100;
/// Maximum requests of a round for VMs that run.
const MAX_REQUESTS_FOR_RUNNING: usize = 96;
/// Maximum namespaces that a finding names.
const MAX_NAMED: usize = 5;

impl FleetIndex {
    /// The VMs whose volumes are to be read now: those that wait, with at most `max_requests`
    /// requests; then those that run, with what is left of them, or with some more, so that VMs
    /// that wait never stop these reads. Without `leads`, only those that wait: another process
    /// answers for the fleet. Forgets what was read for others. Call it every few seconds.
    pub fn take_volumes_to_read(&mut self, max_requests: usize, leads: bool) -> Vec<VolumesToRead> {
        self.check_rights(leads);
        for entry in self.store.vms.values_mut() {
            if entry.volumes.is_some() && awaited(entry).is_empty() {
                entry.volumes = None;
            }
        }
        let waiting = self.store.vms.iter().filter_map(|(vm, entry)| {
            let requests = awaited(entry).iter().map(ClaimVolume::requests).sum();
            (requests > 0).then(|| WaitingVm {
                vm,
                requests,
                read_ms: entry.volumes.as_ref().map(|read| read.at_ms),
            })
        });
        let waiting: Vec<WaitingVm<'_>> = waiting.collect();
        let chosen = choose(&waiting, self.now_ms, REREAD_AFTER_MS, max_requests);
        let sent: usize = waiting
            .iter()
            .filter(|one| chosen.contains(one.vm))
            .map(|one| one.requests)
            .sum();
        let running = if leads {
            self.running_to_read(max_requests.saturating_sub(sent))
        } else {
            Vec::new()
        };
        let awaited = |vm: &VmKey| self.store.vms.get(vm).map(|entry| awaited(entry).into());
        let waiting = chosen.into_iter().filter_map(|vm| {
            Some(VolumesToRead {
                volumes: awaited(&vm)?,
                vm,
            })
        });
        waiting.chain(running).collect()
    }

    /// The VMs that run and whose claims are to be read now, with `left` requests or more: nothing
    /// says that a PersistentVolume is gone before the VM is started again.
    fn running_to_read(&self, left: usize) -> Vec<VolumesToRead> {
        let (now_ms, vms) = (self.now_ms, self.store.vms.iter());
        let mut all_claims = 0;
        let due = vms.filter_map(|(vm, entry)| {
            let requests = claims(entry).len();
            all_claims += requests;
            let is_due = requests > 0 && now_ms >= entry.claims.due_ms && awaited(entry).is_empty();
            is_due.then_some(WaitingVm {
                vm,
                requests,
                read_ms: entry.claims.at_ms,
            })
        });
        let due: Vec<WaitingVm<'_>> = due.collect();
        let share = all_claims.div_ceil(ROUNDS_OF_RUNNING);
        let share = share.clamp(MAX_CLAIM_VOLUMES, MAX_REQUESTS_FOR_RUNNING);
        let chosen = choose(&due, now_ms, 0, left.max(share));
        let volumes = |vm: &VmKey| {
            let claims = claims(self.store.vms.get(vm)?).iter();
            // The DataVolume of a VM that runs has been filled.
            let only = |one: &ClaimVolume| ClaimVolume {
                is_data_volume: false,
                ..one.clone()
            };
            Some(claims.map(only).collect())
        };
        let chosen = chosen.into_iter().filter_map(|vm| {
            Some(VolumesToRead {
                volumes: volumes(&vm)?,
                vm,
            })
        });
        chosen.collect()
    }

    /// Updates the finding that claims of VMs that run may not be read: one for all of them.
    fn check_rights(&mut self, leads: bool) {
        let vms = self.store.vms.iter().filter(|_| leads);
        let denied = vms.filter_map(|(vm, entry)| {
            let manifest = entry.claims.denied.filter(|_| !claims(entry).is_empty())?;
            Some((&vm.namespace, manifest))
        });
        let found = unreadable(&denied.collect());
        let is_changed = replace(&mut self.claim_findings, found.into_iter().collect(), &self.now);
        self.revision += u64::from(is_changed);
    }

    /// Takes the hot-plugged volumes of a VM that are not ready, before its view is made.
    pub(super) fn observe_plugging(&mut self, vm: &VmKey) {
        let Some(entry) = self.store.vms.get_mut(vm) else {
            return;
        };
        let is_first = !self.holds || entry.view.is_none();
        let now = entry.vmi.as_deref().map_or(&[][..], |vmi| &vmi.plugging);
        entry.plugging = SeenPlugging::after(&entry.plugging, now, self.now_ms, is_first);
    }

    /// Records what was read of a VM's volumes. Of a VM that runs and waits for none, it is kept
    /// only if a claim is lost. What belongs to another VM is dropped.
    pub fn record_volumes(&mut self, vm: &VmKey, mut read: ReadVolumes) {
        let now_ms = self.now_ms;
        let Some(entry) = self.store.vms.get_mut(vm) else {
            return;
        };
        let runs = !claims(entry).is_empty();
        if runs {
            entry.claims = entry.claims.then(&read, now_ms);
        }
        if awaited(entry).is_empty() && !(runs && read.lost().is_some()) {
            return;
        }
        read.at_ms = now_ms;
        entry.volumes = Some(Box::new(read.after(entry.volumes.as_deref())));
        self.refresh_health(vm);
    }
}

/// The finding that claims may not be read in these namespaces, with the manifests that grant it;
/// none without namespaces.
fn unreadable(denied: &BTreeMap<&Namespace, &str>) -> Option<Finding> {
    let manifest = denied.values().next()?;
    let names = denied.keys().take(MAX_NAMED);
    let mut names: Vec<String> = names.map(|name| name.as_str().to_owned()).collect();
    let more = denied.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let what = if denied.len() == 1 {
        "namespace"
    } else {
        "namespaces"
    };
    let message = format!(
        "the collector may not get persistentvolumeclaims in the {what} {}, so it does not notice that a claim of a VM that runs \
         is Lost",
        names.join(", ")
    );
    let subject = ("PersistentVolumeClaims", "VMs that run");
    let found = Finding::new(
        CLAIMS_UNREADABLE,
        Severity::Warning,
        subject,
        "ClaimsUnreadable",
        message,
    );
    Some(found.with("namespaces", denied.len()).remedy(format!(
        "grant it: kubectl apply -f packaging/collector/kubernetes/{manifest}; the collector tries again within ten minutes"
    )))
}

/// The volumes of a VM that runs.
fn claims(entry: &VmEntry) -> &[ClaimVolume] {
    let vmi = entry.vmi.as_deref();
    let vmi = vmi.filter(|_| {
        let state = entry.state();
        matches!(state, VmState::Running | VmState::Migrating | VmState::Paused)
    });
    vmi.map(|vmi| &*vmi.volumes).unwrap_or_default()
}

/// The volumes that a VM waits for; of one that runs, if one was lost or is being plugged in. Empty
/// if there are none.
fn awaited(entry: &VmEntry) -> &[ClaimVolume] {
    let vmi = entry.vmi.as_deref();
    let waits = wait_of(entry.vm.as_ref(), vmi, entry.state()).is_some();
    let is_lost = entry.volumes.as_ref().is_some_and(|read| read.lost().is_some());
    if !waits {
        let is_read = is_lost || !entry.plugging.is_empty();
        return if is_read { claims(entry) } else { &[] };
    }
    let of_vm = entry.vm.as_ref().map(|vm| &*vm.volumes);
    // A VMI also has the volumes that were hot-plugged.
    let of_vmi = vmi.map(|vmi| &*vmi.volumes);
    of_vmi.or(of_vm).unwrap_or_default()
}

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::{Fact, Vm},
        health::HealthVerdict,
        index::tests::apply,
        store::tests::{key, vm, vmi},
        volumes::{ClaimState, ReadAnswer, ReadVolume},
    };

    fn waiting(name: &str, printable: &str) -> Vm {
        let mut made = vm("ns", name);
        made.printable_status = Some(printable.to_owned());
        made.volumes = [ClaimVolume {
            claim: "root".parse().unwrap(),
            is_data_volume: false,
        }]
        .into();
        made
    }

    fn read(phase: &str) -> ReadVolumes {
        let claim = ReadAnswer::Found(ClaimState::new(Some(phase), None, false));
        ReadVolumes {
            at_ms: 0,
            volumes: [ReadVolume::new(waiting("a", "").volumes[0].clone(), claim, None)].into(),
            manifest: "infra/rbac.yaml",
        }
    }

    #[test]
    fn only_volumes_of_vms_that_wait_are_read_and_kept() {
        let mut index = FleetIndex::default();
        index.set_time(String::new(), 1_000_000);
        apply(
            &mut index,
            [
                Fact::Vm(waiting("a", "WaitingForVolumeBinding")),
                Fact::Vm(waiting("b", "Stopped")),
                Fact::Vm(waiting("c", "Running")),
            ],
        );
        let asked = index.take_volumes_to_read(10, true);
        assert_eq!(asked.len(), 1);
        assert_eq!((&asked[0].vm, asked[0].volumes.len()), (&key("ns", "a"), 1));

        index.record_volumes(&key("ns", "a"), read("Lost"));
        index.record_volumes(&key("ns", "b"), read("Lost"));
        let health = |index: &FleetIndex, name| index.detail(&key("ns", name)).unwrap().vm.health;
        assert_eq!(health(&index, "a").verdict, HealthVerdict::Critical);
        assert_eq!(health(&index, "a").reason, "PvcLost");
        assert_eq!(
            health(&index, "b").verdict,
            HealthVerdict::Unknown,
            "it does not wait"
        );
        assert_eq!(index.take_volumes_to_read(10, true), [], "it was read just now");

        apply(&mut index, [Fact::Vm(waiting("a", "Stopped"))]);
        index.take_volumes_to_read(10, true);
        assert!(
            index.store.vms[&key("ns", "a")].volumes.is_none(),
            "it waits no more"
        );
    }

    #[test]
    fn the_claims_of_vms_that_run_are_read_now_and_then() {
        let mut index = FleetIndex::default();
        let start_ms = 1_000_000;
        index.set_time(String::new(), start_ms);
        let running = |name: &str| {
            let mut made = vmi("ns", name);
            made.volumes = waiting(name, "").volumes;
            Fact::Vmi(Box::new(made))
        };
        apply(&mut index, [running("a"), running("b")]);
        apply(&mut index, [Fact::Vm(waiting("c", "WaitingForVolumeBinding"))]);
        let asked = |index: &mut FleetIndex, max| {
            let asked = index.take_volumes_to_read(max, true);
            asked
                .into_iter()
                .map(|one| one.vm.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            asked(&mut index, 32),
            ["c", "a", "b"],
            "one that waits comes first"
        );
        for (name, phase) in [("a", "Lost"), ("b", "Bound"), ("c", "Pending")] {
            index.record_volumes(&key("ns", name), read(phase));
        }
        let is_kept = |index: &FleetIndex, name| index.store.vms[&key("ns", name)].volumes.is_some();
        assert!(
            is_kept(&index, "a") && !is_kept(&index, "b"),
            "a bound claim costs no memory"
        );
        let reason = |index: &FleetIndex| {
            let detail = index.detail(&key("ns", "a")).unwrap();
            let disks = detail.conditions.into_iter().find(|one| one.kind == "DisksReady");
            disks.unwrap().reason
        };
        index.set_time(String::new(), start_ms + 30_000);
        index.settle();
        assert_eq!(reason(&index), "PvcLost");
        assert_eq!(asked(&mut index, 32), ["a", "c"], "b was read a moment ago");
        index.record_volumes(&key("ns", "a"), read("Bound"));
        index.set_time(String::new(), start_ms + 100_000);
        index.settle();
        assert_ne!(reason(&index), "PvcLost");
        assert_eq!(asked(&mut index, 32), ["c"]);
        assert!(!is_kept(&index, "a"));
        index.set_time(String::new(), start_ms + 600_000);
        assert_eq!(asked(&mut index, 32), ["c", "b"]);
        let mut denied = read("Bound");
        denied.volumes[0].claim = ReadAnswer::Denied;
        index.record_volumes(&key("ns", "b"), denied);
        index.set_time(String::new(), start_ms + 1_300_000);
        assert_eq!(asked(&mut index, 32), ["c", "a", "b"], "the right may be granted");
    }

    #[test]
    fn what_was_read_expires() {
        let mut index = FleetIndex::default();
        let start_ms = 1_000_000;
        index.set_time(String::new(), start_ms);
        apply(&mut index, [Fact::Vm(waiting("a", "WaitingForVolumeBinding"))]);
        index.record_volumes(&key("ns", "a"), read("Lost"));
        let reason = |index: &FleetIndex| index.detail(&key("ns", "a")).unwrap().vm.health.reason;
        index.set_time(String::new(), start_ms + 300_000);
        index.settle();
        assert_eq!(reason(&index), "PvcLost");
        for after in [300_001, 331_000] {
            index.set_time(String::new(), start_ms + after);
            index.settle();
        }
        assert_eq!(reason(&index), "PvcPending", "KubeVirt's word alone");
    }
}
