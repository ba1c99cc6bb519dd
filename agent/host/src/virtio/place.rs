//! Position of a device in sysfs: its directory is below those of its parents.

use std::path::Path;

use super::file_reader::link_name;

/// What is found on the path from a device upward.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The first driver.
    pub(super) driver: String,
    /// The virtio device, e.g. `virtio2`.
    pub(super) virtio: Option<String>,
    /// The PCI address, else the name of the directory with the driver or above the virtio device.
    pub(super) address: String,
}

/// Walks up from a device's resolved directory.
pub(super) fn place(folder: &Path) -> Place {
    let mut place = Place::default();
    let (mut above_virtio, mut holder) = (None, None);
    for folder in folder.ancestors() {
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else {
            break;
        };
        if name == "devices" {
            break;
        }
        if place.virtio.is_some() && above_virtio.is_none() {
            above_virtio = Some(name);
        }
        if holder.is_none()
            && let Some(driver) = link_name(&folder.join("driver"))
        {
            place.driver = driver;
            holder = Some(name);
        }
        if place.virtio.is_none() && is_virtio(name) {
            place.virtio = Some(name.to_owned());
        }
        if is_pci(name) {
            name.clone_into(&mut place.address);
            break;
        }
    }
    if place.address.is_empty() {
        above_virtio
            .or(holder)
            .unwrap_or_default()
            .clone_into(&mut place.address);
    }
    place
}

/// True for the name of a virtio device.
fn is_virtio(name: &str) -> bool {
    let number = name.strip_prefix("virtio");
    number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True for a PCI address such as `0000:00:03.0`.
pub(super) fn is_pci(name: &str) -> bool {
    let hex = |text: &str, least: usize| {
        text.len() >= least && text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts = name.split(':');
    let (Some(domain), Some(bus), Some(slot), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let slot = slot.split_once('.');
    hex(domain, 4) && hex(bus, 2) && slot.is_some_and(|(slot, function)| hex(slot, 2) && hex(function, 1))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn pci_addresses_and_virtio_names_are_recognized() {
        for (name, is) in [
            ("0000:00:03.0", true),
            ("10000:e1:1f.7", true),
            ("0000:00:03", false),
            ("0:00:03.0", false),
            ("2:0:0:0", false),
            ("pci0000:00", false),
            ("0000:00:0x.0", false),
            ("", false),
        ] {
            assert_eq!(is_pci(name), is, "{name}");
        }
        assert!(is_virtio("virtio0") && !is_virtio("virtio") && !is_virtio("virtio-ports"));
    }

    #[test]
    fn drivers_and_addresses_are_found_on_the_path_upward() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = dir.path().join("devices").join(path);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let pci = at("pci0000:00/0000:00:02.0");
        symlink("../../../drivers/virtio-pci", pci.join("driver")).unwrap();
        let virtio = at("pci0000:00/0000:00:02.0/virtio1");
        symlink("x/virtio_scsi", virtio.join("driver")).unwrap();
        let host = at("pci0000:00/0000:00:02.0/virtio1/host2");
        let found = place(&host);
        assert_eq!(
            (found.driver.as_str(), found.address.as_str()),
            ("virtio_scsi", "0000:00:02.0")
        );
        assert_eq!(found.virtio.as_deref(), Some("virtio1"));
        assert_eq!(place(&pci).driver, "virtio-pci");
        let mapped = place(&at("platform/a003e00.virtio_mmio/virtio0"));
        assert_eq!(
            (mapped.address.as_str(), mapped.driver.as_str()),
            ("a003e00.virtio_mmio", "")
        );
        let usb = at("platform/usb/1-1:1.0");
        symlink("x/usb-storage", usb.join("driver")).unwrap();
        assert_eq!(place(&usb.join("host6")).address, "1-1:1.0");
    }
}
