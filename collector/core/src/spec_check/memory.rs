//! Memory of the guest.

use super::{
    check::{NOT_REPORTED, SpecCheck},
    value::{SpecPath, SpecValue},
};
use crate::{
    facts::Vmi, guest_hardware::GuestHardware, health::HealthCause, reported::ReportedStatus,
    vmi_spec::VmiSpec,
};

/// Memory that a kernel keeps for itself, whatever the size: its image, the firmware, and 64 MiB
/// for devices that reach 32 bits only. Linux 6.1 and 6.12 of Debian keep 40 to 105 MiB.
const RESERVED_BYTES: u64 = 128 << 20;
/// What it keeps beside that is at most one part of so many. Page descriptors and the like are a
/// 58th; the buffer of a confidential VM is 6 % of the memory.
const RESERVED_PART: u64 = 16;
/// The same for large guests, where the buffer of a confidential VM has reached its maximum.
const LARGE_RESERVED_PART: u64 = 40;
/// That maximum (Linux, `mem_encrypt_setup_arch`).
const MAX_CONFIDENTIAL_BUFFER_BYTES: u64 = 1 << 30;
/// What a crash kernel above 4 GiB has below it, which older kernels do not count.
const CRASH_KERNEL_LOW_BYTES: u64 = 256 << 20;
/// Agents that do not report the size of the crash kernel: with it, at most this, and one part of
/// so many. Ubuntu's crash kernel of a guest with 4 GiB is an 8th (`crashkernel=4G-32G:512M`).
const UNKNOWN_RESERVED: (u64, u64) = (256 << 20, 8);
/// How much more than asked counts as equal: QEMU rounds up to huge pages.
const ROUNDING_BYTES: u64 = 16 << 20;

/// Maximum memory that a guest does not see of what it was given. The guest says how much its
/// crash kernel has, so it can hide a difference, from itself only.
fn reserved(asked: u64, crash_kernel: Option<u64>) -> u64 {
    let Some(crash_kernel) = crash_kernel else {
        let (bytes, part) = UNKNOWN_RESERVED;
        return bytes + asked / part;
    };
    let crash_kernel = match crash_kernel {
        0 => 0,
        size => size.saturating_add(CRASH_KERNEL_LOW_BYTES),
    };
    let large = asked / LARGE_RESERVED_PART + MAX_CONFIDENTIAL_BUFFER_BYTES;
    let share = (asked / RESERVED_PART).min(large);
    crash_kernel.saturating_add(RESERVED_BYTES + share)
}

pub(super) fn checks(vmi: &Vmi, spec: &VmiSpec, guest: &GuestHardware, all: &mut Vec<SpecCheck<'_>>) {
    let Some(memory) = spec.memory else {
        let path = SpecPath::Field("spec.domain.memory.guest");
        let why = "the VMI does not say how much memory it has";
        all.push(SpecCheck::not_seen(path, SpecValue::Text("-"), why).required());
        return;
    };
    let (path, asked) = (SpecPath::Field(memory.field), memory.bytes);
    let Some(seen) = guest.memory_bytes else {
        all.push(SpecCheck::not_seen(path, SpecValue::Bytes(asked), NOT_REPORTED).required());
        return;
    };
    if vmi
        .conditions
        .with_status("HotMemoryChange", ReportedStatus::True)
        .is_some()
    {
        let why = "KubeVirt adds or removes memory at present (condition HotMemoryChange)";
        all.push(SpecCheck::not_seen(path, SpecValue::Bytes(asked), why).required());
        return;
    }
    let is_less = seen.saturating_add(reserved(asked, guest.crash_kernel_bytes)) < asked;
    let is_more = seen > asked.saturating_add(ROUNDING_BYTES);
    let is_plugged = memory.current_bytes.is_some_and(|current| current >= asked);
    let (cause, why) = match () {
        () if is_more => (
            HealthCause::Vm,
            "the VM has more memory than it asks for, until it is restarted",
        ),
        () if is_plugged => (
            HealthCause::Guest,
            "KubeVirt has given it (status.memory.guestCurrent), and the guest does not use it: look at mem= on its \
             kernel's command line, at its balloon, and at memory blocks that are offline",
        ),
        () => (HealthCause::Vm, "the guest has less memory than the VM was given"),
    };
    let agrees = !is_less && !is_more;
    let check = SpecCheck::new(path, SpecValue::Bytes(asked), SpecValue::Bytes(seen), agrees, why).required();
    all.push(if is_less {
        check.matters(cause, "LessMemory")
    } else {
        check
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Whether less than the maximum is missing, in MiB.
    fn is_normal(asked: u64, seen: u64, crash_kernel: Option<u64>) -> bool {
        seen * MIB + reserved(asked * MIB, crash_kernel.map(|size| size * MIB)) >= asked * MIB
    }

    /// Measured on Debian 12 (Linux 6.1) and 13 (Linux 6.12), and computed for a confidential VM
    /// and for 64 GiB.
    #[test]
    fn a_normal_kernel_keeps_less_than_the_rule_allows() {
        for (asked, seen, crash_kernel) in [
            (512, 469, 0),
            (512, 464, 0),
            (1024, 973, 0),
            (1024, 967, 0),
            (2048, 1974, 0),
            (2048, 1782, 192),
            (4096, 3927, 0),
            (4096, 3922, 0),
            (8192, 7436, 512),
            // `crashkernel=512M,high`, with and without the part below 4 GiB.
            (8192, 7180, 768),
            (8192, 7180, 512),
            (16_384, 16_000, 0),
            (65_536, 64_300, 0),
            (4096, 3740, 0),
            (65_536, 63_340, 0),
        ] {
            assert!(is_normal(asked, seen, Some(crash_kernel)), "{asked} MiB");
        }
        for (asked, seen) in [(512, 455), (2048, 1620), (4096, 3440), (65_536, 62_100)] {
            assert!(is_normal(asked, seen, None), "{asked} MiB");
        }
    }

    #[test]
    fn more_is_missing_memory() {
        for (asked, seen, crash_kernel) in [
            (1024, 512, 0),
            (2048, 1536, 0),
            (4096, 3584 - 174, 0),
            (8192, 7168, 0),
            (65_536, 61_440, 0),
            (8192, 6000, 512),
        ] {
            assert!(!is_normal(asked, seen, Some(crash_kernel)), "{asked} MiB");
        }
        for (asked, seen) in [(1024, 512), (4096, 3072), (65_536, 49_152)] {
            assert!(!is_normal(asked, seen, None), "{asked} MiB");
        }
        assert_eq!(reserved(MIB, Some(u64::MAX)), u64::MAX);
    }
}
