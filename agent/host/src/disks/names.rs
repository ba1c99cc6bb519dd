//! Names by which a disk can be selected: its serial, its volume's name, its place on the bus.

use std::{collections::BTreeSet, fs, path::Path};

use virtfleet_agent_core::{
    disks::{Carried, DevNumber},
    procfs::udev,
};

use super::facts::{block, dev_number, line};
use crate::{Roots, list, read_bounded, read_text};

/// Prefix that libvirt puts before a disk's user-defined alias (`UserAliasPrefix` in KubeVirt,
/// `drive-` in libvirt).
const ALIAS: &str = "drive-ua-";
/// Maximum size of a device's udev data or VPD page in bytes.
const MAX_DATA_BYTES: usize = 64 << 10;

/// udev's data of a device; empty without udev.
pub(super) fn udev_data(roots: &Roots, number: DevNumber) -> String {
    let path = roots.udev_data.join(format!("b{number}"));
    read_text(&path, MAX_DATA_BYTES).unwrap_or_default()
}

/// The filesystem UUID that udev found on a device. Unknown until udev has processed the device.
pub(super) fn carried(udev_data: &str) -> Carried {
    // `I:` is the time at which udev first finished the device.
    if !udev_data.lines().any(|line| line.starts_with("I:")) {
        return Carried::Unknown;
    }
    let uuid = udev::properties(udev_data).find(|(key, uuid)| *key == "ID_FS_UUID" && !uuid.is_empty());
    uuid.map_or(Carried::Nothing, |(_, uuid)| Carried::Uuid(uuid.to_owned()))
}

/// The serial that udev recorded for the device `MAJOR:MINOR`; no request is sent to the device.
/// The printed serial has precedence, then that of virtio disks; a serial that is composed of
/// several values comes last.
pub(in super::super) fn udev_serial(roots: &Roots, number: &str) -> Option<String> {
    let data = udev_data(roots, dev_number(number)?);
    let known: Vec<_> = udev::properties(&data).collect();
    let of = |wanted: &str| {
        let found = known
            .iter()
            .find(|(key, value)| *key == wanted && !value.trim().is_empty());
        found.map(|(_, value)| value.trim().to_owned())
    };
    [
        "ID_SCSI_SERIAL",
        "SCSI_IDENT_SERIAL",
        "ID_SERIAL_SHORT",
        "ID_SERIAL",
    ]
    .into_iter()
    .find_map(of)
}

/// The serial from sysfs (virtio, NVMe), VPD page 0x80 (SCSI), or udev.
pub(super) fn serial(roots: &Roots, name: &str, udev_data: &str) -> Option<String> {
    let folder = block(roots, name);
    let by_udev = || {
        let mut found: Vec<_> = udev::properties(udev_data)
            .filter(|(key, _)| matches!(*key, "ID_SCSI_SERIAL" | "ID_SERIAL_SHORT"))
            .collect();
        found.sort_unstable();
        found.first().map(|(_, value)| value.trim().to_owned())
    };
    line(&folder.join("serial"))
        .or_else(|| line(&folder.join("device/serial")))
        .or_else(|| page(&folder.join("device/vpd_pg80")).and_then(|page| unit_serial(&page)))
        .or_else(by_udev)
        .filter(|serial| !serial.is_empty())
}

/// The volume's name in VPD page 0x83.
pub(super) fn volume(roots: &Roots, name: &str) -> Option<String> {
    volume_of(&page(&block(roots, name).join("device/vpd_pg83"))?)
}

/// Names in `/dev/disk/by-path`: from udev's data and from the existing links.
pub(super) fn paths(roots: &Roots, name: &str, udev_data: &str) -> Vec<String> {
    let mut names: BTreeSet<String> = udev_data
        .lines()
        .filter_map(|line| line.strip_prefix("S:disk/by-path/"))
        .map(str::to_owned)
        .collect();
    let folder = roots.root("/dev/disk/by-path");
    for link in list(&folder).unwrap_or_default() {
        let target = fs::read_link(folder.join(&link)).unwrap_or_default();
        if target.file_name().is_some_and(|target| target == name) {
            names.insert(link);
        }
    }
    names.into_iter().collect()
}

fn page(path: &Path) -> Option<Vec<u8>> {
    read_bounded(path, MAX_DATA_BYTES).ok()
}

/// The text of a VPD page: after four bytes, the last two of which are its length (SPC-4, 7.8).
fn body(page: &[u8]) -> Option<&[u8]> {
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    page.get(4..)?.get(..length)
}

/// Unit Serial Number (SPC-4, 7.8.15).
fn unit_serial(page: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body(page)?)
        .trim_matches(|c: char| c == '\0' || c.is_whitespace())
        .to_owned();
    (!text.is_empty()).then_some(text)
}

/// The first ASCII designator (SPC-4, 7.8.5) that is a user's alias.
fn volume_of(page: &[u8]) -> Option<String> {
    let mut rest = body(page)?;
    while let [code_set, _, _, length, after @ ..] = rest {
        let text = after.get(..usize::from(*length))?;
        if code_set & 0xf == 2 {
            let name = str::from_utf8(text)
                .ok()
                .and_then(|text| text.trim_end_matches('\0').strip_prefix(ALIAS));
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                return Some(name.to_owned());
            }
        }
        rest = after.get(usize::from(*length)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page83(designators: &[(u8, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (code_set, text) in designators {
            body.extend([*code_set, 0, 0, u8::try_from(text.len()).unwrap()]);
            body.extend(*text);
        }
        let mut page = vec![0, 0x83];
        page.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        page.extend(body);
        page
    }

    #[test]
    fn the_alias_is_found_among_other_designators() {
        let page = page83(&[(1, b"\x50\x01\x02"), (2, b"QEMU"), (2, b"drive-ua-data")]);
        assert_eq!(volume_of(&page).as_deref(), Some("data"));
        assert_eq!(volume_of(&page83(&[(1, b"drive-ua-data")])), None, "not ASCII");
        assert_eq!(volume_of(&page83(&[(2, b"drive-ua-")])), None);
        assert_eq!(volume_of(&page[..page.len() - 1]), None, "cut");
        assert_eq!(volume_of(b""), None);
        assert_eq!(unit_serial(b"\0\x80\0\x06 data\0"), Some("data".to_owned()));
        assert_eq!(unit_serial(b"\0\x80\0\x02  "), None);
    }
}
