//! The virtio devices (`/sys/bus/virtio/devices`; kernel: `drivers/virtio/virtio.c`).

use std::{collections::BTreeMap, fs, path::Path};

use virtfleet_agent_core::virtio::{Bus, Device, Features, Kind, Vector};

use super::{
    file_reader::{FileReader, link_name, natural, not},
    place::is_pci,
};

/// Directories below a device whose entries are its guest-visible parts.
const PARTS: [&str; 5] = ["net", "block", "virtio-ports", "input", "sound"];
const SOURCES: &str = "class/misc/hw_random/rng_available";

/// All virtio devices by number.
pub(super) fn devices(
    reader: &mut FileReader<'_>,
    mut interrupts: BTreeMap<String, Vec<Vector>>,
    offered: bool,
) -> Vec<Device> {
    let folder = reader.roots.sys("bus/virtio/devices");
    let mut all = Vec::new();
    for name in reader.names(&folder) {
        let path = folder.join(&name);
        let mark = reader.mark();
        let vectors = interrupts.remove(&name).unwrap_or_default();
        let device = device(reader, name, &path, vectors, offered);
        if fs::symlink_metadata(&path).is_ok() {
            all.push(device);
        } else {
            reader.forget(mark);
        }
    }
    sources(reader, &mut all);
    all
}

fn device(
    reader: &mut FileReader<'_>,
    name: String,
    path: &Path,
    vectors: Vec<Vector>,
    offered: bool,
) -> Device {
    let kind = hex(reader, &path.join("device")).map(Kind).unwrap_or_default();
    let status = hex(reader, &path.join("status"));
    let negotiated = reader.needed(&path.join("features")).and_then(|text| {
        let read = Features::of_sysfs(&text);
        reader.parsed(&path.join("features"), read)
    });
    let offered = offered.then(|| of_debugfs(reader, &name)).flatten();
    let (bus, address) = bus_and_address(path);
    let mut device = Device {
        kind,
        driver: link_name(&path.join("driver")),
        bus,
        address,
        status,
        negotiated: negotiated.unwrap_or_default(),
        offered,
        parts: parts(reader, path),
        name,
        ..Device::default()
    };
    device.take_vectors(vectors);
    device
}

/// Parses a hexadecimal attribute, `0x0000000f`.
fn hex(reader: &mut FileReader<'_>, path: &Path) -> Option<u32> {
    let text = reader.needed(path)?;
    let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
    let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let made = number.ok_or_else(|| not("a hexadecimal number such as 0x0001", &text));
    reader.parsed(path, made)
}

/// Features that the device offers. Kernels before 6.8, and those built without
/// `CONFIG_VIRTIO_DEBUG`, lack this file.
fn of_debugfs(reader: &mut FileReader<'_>, name: &str) -> Option<Features> {
    let path = reader
        .roots
        .sys(format!("kernel/debug/virtio/{name}/device_features"));
    let text = reader.text(&path)?;
    let read = Features::of_debugfs(&text);
    reader.parsed(&path, read)
}

/// The device's bus and address. The entry is a link to the device's directory, which is below that
/// of its parent.
fn bus_and_address(path: &Path) -> (Bus, String) {
    let target = fs::read_link(path).unwrap_or_default();
    let address = target.parent().and_then(Path::file_name);
    let address = address.and_then(|name| name.to_str()).unwrap_or_default();
    // The kernel resolves the link before `..`.
    let bus = match link_name(&path.join("../subsystem")).as_deref() {
        Some("pci") => Bus::Pci,
        Some("platform") => Bus::Mmio,
        Some("ccw") => Bus::Ccw,
        None if is_pci(address) => Bus::Pci,
        _ => Bus::Other,
    };
    (bus, address.to_owned())
}

fn parts(reader: &mut FileReader<'_>, path: &Path) -> Vec<String> {
    let mut parts = Vec::new();
    for entry in reader.names(path) {
        let host = entry
            .strip_prefix("host")
            .is_some_and(|number| number.parse::<u32>().is_ok());
        if host {
            parts.push(entry);
        } else if PARTS.contains(&entry.as_str()) {
            parts.extend(reader.names(&path.join(entry)));
        }
    }
    parts.sort_by(|one, other| natural(one).cmp(&natural(other)));
    parts
}

/// hw_random devices have no entry below their virtio device. The driver numbers them in order of
/// appearance (kernel: `drivers/char/hw_random/virtio-rng.c`), as virtio devices are numbered, so
/// the first belongs to the first.
fn sources(reader: &mut FileReader<'_>, devices: &mut [Device]) {
    let mut random = devices
        .iter_mut()
        .filter(|device| device.kind == Kind::RNG)
        .peekable();
    if random.peek().is_none() {
        return;
    }
    let path = reader.roots.sys(SOURCES);
    let text = reader.text(&path).unwrap_or_default();
    let mut names: Vec<&str> = text
        .split_whitespace()
        .filter(|name| name.starts_with("virtio_rng"))
        .collect();
    names.sort_by_key(|name| natural(name));
    for (device, name) in random.zip(names) {
        device.parts.push(name.to_owned());
    }
}
