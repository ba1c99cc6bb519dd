//! Compares the VMs of one infra node: does the node, or a neighbour, take what a VM needs, or is
//! it the VM alone?

use virtfleet_wire::ids::VmKey;

use crate::usage::GuestUsage;

/// Steal of another VM, in thousandths, from which it is affected as well.
const SHARED_STEAL_MILLI: u16 = 50;
/// I/O pressure of another VM, in thousandths, from which it is affected as well.
const SHARED_IO_MILLI: u16 = 200;
/// One of so many measured VMs must be affected as well, or the problem is the VM's own.
const SHARED_ONE_OF: usize = 3;
/// Minimum use, in thousandths of a CPU, of a VM that is named as a heavy neighbour.
const MIN_HEAVY_CPU_MILLI: u64 = 500;
/// Maximum neighbours that are named.
const MAX_HEAVY: usize = 3;

/// A VM on the infra node.
#[derive(Debug, Clone, Copy)]
pub struct NeighbourVm<'a> {
    pub key: &'a VmKey,
    /// Its number of vCPUs.
    pub vcpus: u64,
    /// Its use between the last two pulls; none if it is not known.
    pub usage: Option<GuestUsage>,
}

impl NeighbourVm<'_> {
    /// CPU that it uses, in thousandths of a CPU.
    pub fn used_cpu_milli(&self) -> u64 {
        let used = self.usage.and_then(|usage| usage.cpu_used);
        self.vcpus.saturating_mul(GuestUsage::milli(used).into())
    }
}

/// What the other VMs of an infra node show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostContention {
    /// Other VMs whose CPU use is known.
    pub measured: usize,
    /// Of these, VMs with steal.
    pub with_steal: usize,
    /// Of the others whose pressure is known, VMs with I/O pressure.
    pub with_io_pressure: usize,
    /// Other VMs whose I/O pressure is known.
    pub measured_io: usize,
    /// vCPUs of all VMs.
    pub vcpus: u64,
    /// CPU of the infra node that pods may request, in thousandths; none if it is not known.
    pub host_cpu_milli: Option<u64>,
    /// The other VMs that use most CPU, with that use in thousandths of a CPU.
    pub heaviest: Vec<(VmKey, u64)>,
}

impl HostContention {
    /// Compares `own` with the VMs of its infra node, itself included or not.
    pub fn of<'a>(
        own: &NeighbourVm<'_>,
        host_cpu_milli: Option<u64>,
        vms: impl Iterator<Item = NeighbourVm<'a>>,
    ) -> Self {
        let mut found = Self {
            vcpus: own.vcpus,
            host_cpu_milli,
            ..Self::default()
        };
        for other in vms.filter(|other| other.key != own.key) {
            found.vcpus = found.vcpus.saturating_add(other.vcpus);
            let Some(usage) = other.usage else { continue };
            if let Some(steal) = usage.cpu_steal {
                found.measured += 1;
                found.with_steal += usize::from(steal.milli() >= SHARED_STEAL_MILLI);
            }
            if let Some(io) = usage.io_pressure {
                found.measured_io += 1;
                found.with_io_pressure += usize::from(io.milli() >= SHARED_IO_MILLI);
            }
            let used = other.used_cpu_milli();
            if used >= MIN_HEAVY_CPU_MILLI {
                found.heaviest.push((other.key.clone(), used));
            }
        }
        found
            .heaviest
            .sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        found.heaviest.truncate(MAX_HEAVY);
        found
    }

    /// Whether other VMs have steal as well. True if none is measured: then it cannot be told.
    pub fn is_steal_shared(&self) -> bool {
        is_shared(self.with_steal, self.measured)
    }

    /// Whether other VMs have I/O pressure as well; false if none is measured.
    pub fn is_io_shared(&self) -> bool {
        self.measured_io > 0 && is_shared(self.with_io_pressure, self.measured_io)
    }

    /// Whether the VMs together have more vCPUs than the infra node has CPU; none if that is not
    /// known.
    pub fn is_overcommitted(&self) -> Option<bool> {
        let host = self.host_cpu_milli?;
        Some(self.vcpus.saturating_mul(1000) > host)
    }
}

fn is_shared(affected: usize, measured: usize) -> bool {
    measured == 0 || affected > 0 && affected * SHARED_ONE_OF >= measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::tests::key, usage::Share};

    fn usage(steal: u64, used: u64) -> GuestUsage {
        GuestUsage {
            cpu_steal: Some(Share::of(steal, 100)),
            cpu_used: Some(Share::of(used, 100)),
            io_pressure: Some(Share::of(steal * 4, 100)),
            ..GuestUsage::default()
        }
    }

    #[test]
    fn others_decide_whether_a_problem_is_shared() {
        let own = key("ns", "own");
        let keys: Vec<VmKey> = (0..8).map(|n| key("ns", &format!("o{n}"))).collect();
        for (why, others, shared, heaviest) in [
            ("nothing to compare with", vec![None; 3], (true, false), 0),
            ("all steal", vec![Some((20, 60)); 4], (true, true), 3),
            ("none steals", vec![Some((0, 60)); 4], (false, false), 3),
            (
                "one of three",
                vec![Some((8, 5)), Some((0, 5)), Some((0, 5))],
                (true, true),
                0,
            ),
            (
                "one of four",
                vec![Some((8, 5)), Some((0, 5)), Some((0, 5)), Some((0, 5))],
                (false, false),
                0,
            ),
            (
                "only one is measured",
                vec![Some((20, 90)), None, None],
                (true, true),
                1,
            ),
        ] {
            let vm = |(key, one): (_, &Option<(u64, u64)>)| NeighbourVm {
                key,
                vcpus: 4,
                usage: one.map(|(steal, used)| usage(steal, used)),
            };
            let all: Vec<NeighbourVm<'_>> = keys.iter().zip(&others).map(vm).collect();
            let own = NeighbourVm {
                key: &own,
                vcpus: 4,
                usage: Some(usage(30, 90)),
            };
            let found = HostContention::of(&own, Some(15_999), all.iter().copied().chain([own]));
            assert_eq!((found.is_steal_shared(), found.is_io_shared()), shared, "{why}");
            assert_eq!(found.heaviest.len(), heaviest, "{why}");
            let total = 4 * (others.len() as u64 + 1);
            assert_eq!(found.vcpus, total, "the VM itself counts once");
            assert_eq!(found.is_overcommitted(), Some(total >= 16), "{why}");
        }
    }

    #[test]
    fn the_heaviest_are_those_that_use_most_cpu() {
        let (own, keys) = (key("ns", "own"), [key("a", "x"), key("a", "y"), key("b", "z")]);
        let vms = keys.iter().zip([(2, 100), (8, 50), (16, 2)]);
        let vms = vms.map(|(key, (vcpus, used))| NeighbourVm {
            key,
            vcpus,
            usage: Some(usage(10, used)),
        });
        let own = NeighbourVm {
            key: &own,
            vcpus: 1,
            usage: None,
        };
        let found = HostContention::of(&own, None, vms);
        assert_eq!(found.heaviest, [(key("a", "y"), 4000), (key("a", "x"), 2000)]);
        assert_eq!(found.is_overcommitted(), None);
    }
}
