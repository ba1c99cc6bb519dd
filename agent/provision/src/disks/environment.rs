//! Input of a plan besides devices and mounts: programs, keys, the kernel's command line, users and
//! groups.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_agent_core::disks::{
    Wanted, mkfs, units,
    wanted::{KeySource, Owner},
};
use virtfleet_agent_host::{bad_key, exists, find_program, owner_number, read_text};
use virtfleet_wire::settings::DiskFilesystem;

use super::provisioner::DiskProvisioner;

pub(super) fn missing_tools(provisioner: &DiskProvisioner<'_>, wanted: &[Wanted]) -> BTreeSet<String> {
    let mut tools: BTreeSet<&str> = BTreeSet::new();
    for wanted in wanted {
        tools.extend([mkfs::program(wanted.filesystem), "blkid"]);
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
