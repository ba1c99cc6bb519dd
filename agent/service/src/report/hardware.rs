//! `hardware`: one item with the CPUs and the TPM that the hypervisor shows to the guest, and the
//! memory that the kernel keeps for a crash kernel.

use std::collections::BTreeSet;

use virtfleet_agent_core::{
    identity::dmi::clean,
    procfs::{cpuinfo, cpulist},
};
use virtfleet_agent_host::{Roots, exists, first_processor, is_directory, list};
use virtfleet_wire::report::{Section, SectionStatus};

use super::files::{line, number, object};

/// Maximum number of CPUs whose topology is read. KubeVirt allows fewer.
const MAX_CPUS: usize = 1024;
/// ACPI devices that are a TPM: TPM 2.0 and TPM 1.2.
const TPM_DEVICES: [&str; 2] = ["MSFT0101:00", "PNP0C31:00"];

/// Sockets, cores of a socket and threads of a core, of the CPUs that are online.
#[derive(Debug, PartialEq, Eq)]
struct Topology {
    sockets: usize,
    cores: usize,
    threads: usize,
}

pub(super) fn read(roots: &Roots) -> Section {
    let cpus = |name: &str| {
        let list = line(&roots.sys(format!("devices/system/cpu/{name}")))?;
        cpulist::cpus(&list).ok().filter(|cpus| !cpus.is_empty())
    };
    let (online, present) = (cpus("online"), cpus("present"));
    let topology = online.as_deref().and_then(|online| topology(roots, online));
    let text = first_processor(roots).unwrap_or_default();
    let (model, flags) = processor(&text);
    let has_all = online.is_some() && present.is_some() && topology.is_some() && flags.is_some();
    let count = |cpus: Option<Vec<u32>>| cpus.map(|cpus| cpus.len().into());
    let part = |value: fn(&Topology) -> usize| topology.as_ref().map(|one| value(one).into());
    let item = object([
        ("cpusOnline", count(online)),
        ("cpusPresent", count(present)),
        ("sockets", part(|one| one.sockets)),
        ("coresPerSocket", part(|one| one.cores)),
        ("threadsPerCore", part(|one| one.threads)),
        ("cpuModel", model.map(Into::into)),
        ("cpuFlags", flags.map(Into::into)),
        ("tpm", has_tpm(roots).map(Into::into)),
        (
            "crashKernelBytes",
            number::<u64>(&roots.sys("kernel/kexec_crash_size")).map(Into::into),
        ),
    ]);
    Section {
        status: if has_all {
            SectionStatus::Ok
        } else {
            SectionStatus::Partial
        },
        items: vec![item],
        ..Section::default()
    }
}

fn topology(roots: &Roots, online: &[u32]) -> Option<Topology> {
    let places = online.iter().take(MAX_CPUS + 1).map(|cpu| {
        let at = |name: &str| roots.sys(format!("devices/system/cpu/cpu{cpu}/topology/{name}"));
        Some((
            number::<i64>(&at("physical_package_id"))?,
            line(&at("thread_siblings_list"))?,
        ))
    });
    regular(&places.collect::<Option<Vec<_>>>()?)
}

/// The topology of CPUs, each with its package and the list of CPUs of its core; `None` if they
/// are not the same for each socket and each core, e.g. because a CPU is offline.
fn regular(places: &[(i64, String)]) -> Option<Topology> {
    if places.is_empty() || places.len() > MAX_CPUS {
        return None;
    }
    let sockets = places
        .iter()
        .map(|(package, _)| package)
        .collect::<BTreeSet<_>>()
        .len();
    let cores = places.iter().collect::<BTreeSet<_>>().len();
    let found = Topology {
        sockets,
        cores: cores / sockets,
        threads: places.len() / cores,
    };
    (found.sockets * found.cores * found.threads == places.len()).then_some(found)
}

/// Model and features of the first CPU.
fn processor(text: &str) -> (Option<String>, Option<String>) {
    // What follows the first CPU may be cut.
    let first = text.split("\n\n").next().unwrap_or_default();
    let Some(Ok(cpu)) = cpuinfo::cpus(first).into_iter().next() else {
        return (None, None);
    };
    let flags = Some(cpu.flags).filter(|flags| !flags.is_empty());
    (clean(cpu.model_name), flags.map(str::to_owned))
}

/// Whether there is a TPM; `None` if this cannot be said, because the kernel shows neither ACPI
/// devices nor TPMs.
fn has_tpm(roots: &Roots) -> Option<bool> {
    let class = list(&roots.sys("class/tpm")).ok();
    if class.as_ref().is_some_and(|names| !names.is_empty()) {
        return Some(true);
    }
    let acpi = roots.sys("bus/acpi/devices");
    if TPM_DEVICES.iter().any(|name| exists(&acpi.join(name))) {
        return Some(true);
    }
    (class.is_some() || is_directory(&acpi)).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: &[(i64, &str)]) -> Vec<(i64, String)> {
        let all = all.iter();
        all.map(|(package, core)| (*package, (*core).to_owned()))
            .collect()
    }

    #[test]
    fn a_regular_topology_is_counted() {
        let topology = |sockets, cores, threads| {
            Some(Topology {
                sockets,
                cores,
                threads,
            })
        };
        for (cpus, expected) in [
            (&[(0, "0")][..], topology(1, 1, 1)),
            (&[(0, "0"), (1, "1")], topology(2, 1, 1)),
            (
                &[(0, "0-1"), (0, "0-1"), (0, "2-3"), (0, "2-3")],
                topology(1, 2, 2),
            ),
            (&[(0, "0"), (0, "1"), (1, "2"), (1, "3")], topology(2, 2, 1)),
            // One thread of the second core is offline.
            (&[(0, "0-1"), (0, "0-1"), (0, "2")], None),
            (&[], None),
        ] {
            assert_eq!(regular(&places(cpus)), expected, "{cpus:?}");
        }
        assert_eq!(regular(&vec![(0, String::new()); MAX_CPUS + 1]), None);
    }

    #[test]
    fn the_first_processor_of_a_cut_text_is_complete() {
        let text = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu vmx\n\nprocessor\t: 1\nmod";
        let (model, flags) = processor(text);
        assert_eq!(
            (model.as_deref(), flags.as_deref()),
            (Some("Some CPU"), Some("fpu vmx"))
        );
        assert_eq!(processor(""), (None, None));
    }

    #[test]
    fn a_tpm_is_found_with_and_without_driver() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            sysfs: dir.path().to_owned(),
            ..Roots::default()
        };
        assert_eq!(has_tpm(&roots), None, "nothing is known");
        std::fs::create_dir_all(roots.sys("bus/acpi/devices/PNP0A08:00")).unwrap();
        assert_eq!(has_tpm(&roots), Some(false));
        std::fs::create_dir_all(roots.sys("bus/acpi/devices/MSFT0101:00")).unwrap();
        assert_eq!(has_tpm(&roots), Some(true));
        std::fs::remove_dir_all(roots.sys("bus")).unwrap();
        std::fs::create_dir_all(roots.sys("class/tpm/tpm0")).unwrap();
        assert_eq!(has_tpm(&roots), Some(true));
    }
}
