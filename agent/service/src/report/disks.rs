//! `disks`: the block devices of `/sys/block` that are disks of the VM.

use virtfleet_agent_core::identity::dmi::clean;
use virtfleet_agent_host::{Roots, link_name, list};
use virtfleet_wire::report::{Section, SectionStatus};

use super::files::{flag, line, number, object};

/// Prefixes of block devices that live in memory or in other files.
const NO_DISKS: [&str; 4] = ["loop", "ram", "zram", "nbd"];

pub(super) fn read(roots: &Roots) -> Section {
    let Ok(names) = list(&roots.sys("block")) else {
        return Section {
            status: SectionStatus::Failed,
            ..Section::default()
        };
    };
    let mut status = SectionStatus::Ok;
    let disks = names.into_iter().filter(|name| {
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        !NO_DISKS.contains(&kind)
    });
    let items = disks
        .map(|name| {
            let at = |path: &str| roots.sys(format!("block/{name}/{path}"));
            // The kernel counts in units of 512 bytes, whatever the device's own block size.
            let size = number::<u64>(&at("size")).and_then(|sectors| sectors.checked_mul(512));
            if size.is_none() {
                status = SectionStatus::Partial;
            }
            let serial = line(&at("serial")).or_else(|| line(&at("device/serial")));
            let wwid = line(&at("wwid")).or_else(|| line(&at("device/wwid")));
            object([
                ("name", Some(name.clone().into())),
                ("sizeBytes", size.map(Into::into)),
                ("serial", serial.and_then(|serial| clean(&serial)).map(Into::into)),
                ("wwid", wwid.map(Into::into)),
                ("model", line(&at("device/model")).map(Into::into)),
                ("driver", link_name(&at("device/driver")).map(Into::into)),
                ("removable", flag(&at("removable")).map(Into::into)),
                ("readOnly", flag(&at("ro")).map(Into::into)),
                ("rotational", flag(&at("queue/rotational")).map(Into::into)),
            ])
        })
        .collect();
    Section {
        status,
        items,
        ..Section::default()
    }
}
