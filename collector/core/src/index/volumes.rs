//! Volumes of the VMs that wait for them: which are to be read, and what was read.

use virtfleet_wire::ids::VmKey;

use super::FleetIndex;
use crate::{
    store::VmEntry,
    volumes::{ClaimVolume, ReadVolumes, VolumesToRead, WaitingVm, choose, wait_of},
};

impl FleetIndex {
    /// The VMs whose volumes are to be read now, with at most `max_requests` requests. Forgets what
    /// was read for VMs that no longer wait. Call it every few seconds.
    pub fn take_volumes_to_read(&mut self, max_requests: usize) -> Vec<VolumesToRead> {
        for entry in self.store.vms.values_mut() {
            if entry.volumes.is_some() && awaited(entry).is_empty() {
                entry.volumes = None;
            }
        }
        let vms = self.store.vms.iter();
        let waiting: Vec<WaitingVm<'_>> = vms
            .filter_map(|(vm, entry)| {
                let requests = awaited(entry).iter().map(ClaimVolume::requests).sum();
                (requests > 0).then(|| WaitingVm {
                    vm,
                    requests,
                    read_ms: entry.volumes.as_ref().map(|read| read.at_ms),
                })
            })
            .collect();
        let chosen = choose(&waiting, self.now_ms, max_requests);
        let volumes = |vm: &VmKey| self.store.vms.get(vm).map(|entry| awaited(entry).into());
        chosen
            .into_iter()
            .filter_map(|vm| {
                Some(VolumesToRead {
                    volumes: volumes(&vm)?,
                    vm,
                })
            })
            .collect()
    }

    /// Records what was read of a VM's volumes. What belongs to a VM that no longer waits is
    /// dropped.
    pub fn record_volumes(&mut self, vm: &VmKey, mut read: ReadVolumes) {
        let now_ms = self.now_ms;
        let Some(entry) = self
            .store
            .vms
            .get_mut(vm)
            .filter(|entry| !awaited(entry).is_empty())
        else {
            return;
        };
        read.at_ms = now_ms;
        entry.volumes = Some(Box::new(read.after(entry.volumes.as_deref())));
        self.refresh_health(vm);
    }
}

/// The volumes that a VM waits for; empty if it waits for none.
fn awaited(entry: &VmEntry) -> &[ClaimVolume] {
    let vmi = entry.vmi.as_deref();
    if wait_of(entry.vm.as_ref(), vmi, entry.state()).is_none() {
        return &[];
    }
    let of_vm = entry.vm.as_ref().map(|vm| &*vm.volumes);
    // A VMI also has the volumes that were hot-plugged.
    let of_vmi = vmi.map(|vmi| &*vmi.volumes);
    of_vmi.or(of_vm).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::{Fact, Vm},
        health::HealthVerdict,
        index::tests::apply,
        store::tests::{key, vm},
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
        ReadVolumes {
            at_ms: 0,
            volumes: [ReadVolume {
                volume: waiting("a", "").volumes[0].clone(),
                claim: ReadAnswer::Found(ClaimState::new(Some(phase), None, false)),
                data_volume: None,
                since_ms: 0,
            }]
            .into(),
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
        let asked = index.take_volumes_to_read(10);
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
        assert_eq!(index.take_volumes_to_read(10), [], "it was read just now");

        apply(&mut index, [Fact::Vm(waiting("a", "Stopped"))]);
        index.take_volumes_to_read(10);
        assert!(
            index.store.vms[&key("ns", "a")].volumes.is_none(),
            "it waits no more"
        );
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
