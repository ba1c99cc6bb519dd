//! Input of a plan besides devices and mounts: programs, keys, the kernel's command line, users and
//! groups.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_agent_core::disks::{
    Wanted,
    known::Boot,
    mkfs, units,
    wanted::{KeySource, Owner},
};
use virtfleet_agent_host::{
    bad_key, dns::is_node, exists, find_program, owner_number, read_text, try_exists,
};
use virtfleet_wire::settings::DiskFilesystem;

use super::provisioner::DiskProvisioner;

/// Directories that kubelet creates when it starts: its default, MicroK8s's, and k0s's.
const POD_DIRECTORIES: [&str; 3] = [
    "/var/lib/kubelet/pods",
    "/var/snap/microk8s/common/var/lib/kubelet/pods",
    "/var/lib/k0s/kubelet/pods",
];

/// What the list of known disks depends on besides the disks. To be asked for after these were
/// listed.
pub(super) fn boot<'b>(provisioner: &DiskProvisioner<'b>) -> Boot<'b> {
    let roots = provisioner.roots;
    let is_there = |path: &&str| try_exists(&roots.root(path)).unwrap_or(true);
    Boot {
        vm_uuid: provisioner.vm_uuid,
        boot_id: provisioner.boot_id,
        kubelet_ran: POD_DIRECTORIES.iter().any(is_there),
        kubelet_runs: is_node(roots),
    }
}

pub(super) fn missing_tools(provisioner: &DiskProvisioner<'_>, wanted: &[Wanted]) -> BTreeSet<String> {
    let mut tools: BTreeSet<&str> = BTreeSet::new();
    for wanted in wanted {
        tools.extend([mkfs::program(wanted.filesystem), "blkid", "wipefs"]);
        if wanted.encryption.is_some() {
            tools.insert("cryptsetup");
        }
        if wanted
            .encryption
            .as_ref()
            .is_some_and(|encryption| encryption.key == KeySource::Tpm2)
        {
            tools.insert("systemd-cryptenroll");
        }
        if wanted.grow {
            tools.extend(match wanted.filesystem {
                DiskFilesystem::Ext4 => Some("resize2fs"),
                DiskFilesystem::Xfs => Some("xfs_growfs"),
                DiskFilesystem::Btrfs => Some("btrfs"),
                DiskFilesystem::Swap => None,
            });
        }
    }
    tools
        .into_iter()
        .filter(|tool| find_program(provisioner.roots, tool).is_none())
        .map(str::to_owned)
        .collect()
}

pub(super) fn bad_keys(provisioner: &DiskProvisioner<'_>, wanted: &[Wanted]) -> BTreeMap<String, String> {
    let (mut paths, mut tpm) = (BTreeSet::new(), false);
    for encryption in wanted.iter().filter_map(|wanted| wanted.encryption.as_ref()) {
        match &encryption.key {
            KeySource::File(path) => drop(paths.insert(path)),
            KeySource::Tpm2 => tpm = true,
        }
        paths.extend(&encryption.recovery);
    }
    let mut bad: BTreeMap<String, String> = paths
        .into_iter()
        .filter_map(|path| Some((path.clone(), bad_key(provisioner.roots, path)?)))
        .collect();
    // systemd-cryptenroll uses the device of the resource manager.
    if tpm && !exists(&provisioner.roots.root("/dev/tpmrm0")) {
        bad.insert(
            "tpm2".to_owned(),
            "the guest has no TPM 2.0 (/dev/tpmrm0)".to_owned(),
        );
    }
    bad
}

pub(super) fn gate_off(provisioner: &DiskProvisioner<'_>) -> bool {
    let text = read_text(&provisioner.roots.proc("cmdline"), 64 << 10).unwrap_or_default();
    text.split_ascii_whitespace().any(|word| word == units::GATE_OFF)
}

/// The numeric IDs of the users or groups that the settings name.
pub(super) fn numbers(
    provisioner: &DiskProvisioner<'_>,
    file: &'static str,
    wanted: &[Wanted],
    name: impl Fn(&Owner) -> Option<&String>,
) -> BTreeMap<String, u32> {
    let names = wanted.iter().flat_map(Wanted::owners).filter_map(name);
    names
        .filter_map(|name| {
            let number = owner_number(provisioner.roots, file, Some(name)).ok()??;
            Some((name.clone(), number))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_host::Roots;

    use super::*;
    use crate::machine::BootIdentity;

    #[test]
    fn a_kubelet_is_seen_by_its_directory_or_its_process() {
        for (path, content, ran, runs) in [
            ("var/lib/kubelet/config.yaml", "", false, false),
            ("var/lib/kubelet/pods/x", "", true, false),
            ("var/snap/microk8s/common/var/lib/kubelet/pods/x", "", true, false),
            ("var/lib/k0s/kubelet/pods/x", "", true, false),
            ("proc/7/comm", "containerd\n", false, false),
            ("proc/7/comm", "kubelet\n", false, true),
            ("proc/7/comm", "kubelite\n", false, true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let roots = Roots {
                rootfs: dir.path().to_owned(),
                procfs: dir.path().join("proc"),
                ..Roots::default()
            };
            let identity = BootIdentity::default();
            let seen = || {
                let boot = boot(&DiskProvisioner::of_guest(&roots, &identity, None));
                (boot.kubelet_ran, boot.kubelet_runs)
            };
            assert_eq!(seen(), (false, false));
            let file = dir.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, content).unwrap();
            assert_eq!(seen(), (ran, runs), "{path} {content}");
        }
        // What cannot be read may be a kubelet.
        let procfs = std::env::temp_dir().join("x".repeat(300));
        assert!(is_node(&Roots {
            procfs,
            ..Roots::default()
        }));
    }
}
