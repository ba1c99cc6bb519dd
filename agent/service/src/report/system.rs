//! `system`: one item with the guest's operating system, kernel and size.

use std::{collections::BTreeMap, path::Path};

use virtfleet_agent_core::identity::{dmi::clean, unit::environment_file};
use virtfleet_agent_host::{Roots, read_text};
use virtfleet_wire::report::{Section, SectionStatus};

use super::files::{line, object};

pub(super) fn read(roots: &Roots) -> Section {
    let release = os_release(roots);
    let os = |key: &str| release.get(key).cloned().map(Into::into);
    let cpus = |name: &str| {
        line(&roots.sys(format!("devices/system/cpu/{name}"))).and_then(|list| count_cpus(&list))
    };
    let memory = first_number(&roots.proc("meminfo"), "MemTotal:").and_then(|kib| kib.checked_mul(1024));
    let boot_time = first_number(&roots.proc("stat"), "btime ");
    let kernel = line(&roots.proc("sys/kernel/osrelease"));
    let vendor = line(&roots.sys("class/dmi/id/sys_vendor")).and_then(|vendor| clean(&vendor));
    let virtualization = match vendor.as_deref() {
        Some("KubeVirt") => Some("kubevirt"),
        Some("QEMU") => Some("qemu"),
        _ => None,
    };
    let online = cpus("online");
    let complete = kernel.is_some() && online.is_some() && memory.is_some() && boot_time.is_some();
    let architecture =
        line(&roots.proc("sys/kernel/arch")).unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let item = object([
        ("osId", os("ID")),
        ("osVersion", os("VERSION_ID")),
        ("osName", os("PRETTY_NAME")),
        ("kernel", kernel.map(Into::into)),
        ("architecture", Some(architecture.into())),
        ("virtualization", virtualization.map(Into::into)),
        ("cpusOnline", online.map(Into::into)),
        ("cpusPossible", cpus("possible").map(Into::into)),
        ("memoryTotalBytes", memory.map(Into::into)),
        ("bootTimeUnix", boot_time.map(Into::into)),
    ]);
    Section {
        status: if complete {
            SectionStatus::Ok
        } else {
            SectionStatus::Partial
        },
        items: vec![item],
        ..Section::default()
    }
}

/// os-release(5): `/etc/os-release`, else `/usr/lib/os-release`. It is quoted like an environment
/// file.
fn os_release(roots: &Roots) -> BTreeMap<String, String> {
    ["/etc/os-release", "/usr/lib/os-release"]
        .iter()
        .find_map(|path| read_text(&roots.root(path), 64 * 1024).ok())
        .map(|text| environment_file(&text))
        .unwrap_or_default()
}

/// Number of CPUs in a kernel list such as `0-3,8`.
fn count_cpus(list: &str) -> Option<u64> {
    list.split(',').try_fold(0u64, |sum, range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        sum.checked_add(to.checked_sub(from)?.checked_add(1)?)
    })
}

/// The number in the first line that starts with `key`.
fn first_number(path: &Path, key: &str) -> Option<u64> {
    let text = read_text(path, 4 << 20).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        for (list, count) in [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-1", None),
            ("x", None),
            ("0-18446744073709551615", None),
        ] {
            assert_eq!(count_cpus(list), count, "{list}");
        }
    }
}
