//! The virtio devices (`/sys/bus/virtio/devices`; kernel: `drivers/virtio/virtio.c`).

use std::{collections::BTreeMap, fs, path::Path};

use virtfleet_agent_core::virtio::{Bus, Device, Features, Kind, Vector};

use super::{
    look::{Look, link_name, natural, not},
    place::is_pci,
};

/// Folders below a device whose entries are what the guest sees of it.
const PARTS: [&str; 5] = ["net", "block", "virtio-ports", "input", "sound"];
/// The sources of random numbers.
const SOURCES: &str = "class/misc/hw_random/rng_available";

/// All of them, by number.
pub(super) fn devices(
    look: &mut Look<'_>,
    mut interrupts: BTreeMap<String, Vec<Vector>>,
    offered: bool,
) -> Vec<Device> {
    let folder = look.roots.sys("bus/virtio/devices");
    let mut all = Vec::new();
    for name in look.names(&folder) {
        let path = folder.join(&name);
        let mark = look.mark();
        let vectors = interrupts.remove(&name).unwrap_or_default();
        let device = device(look, name, &path, vectors, offered);
        if fs::symlink_metadata(&path).is_ok() {
            all.push(device);
        } else {
            look.forget(mark);
        }
    }
    sources(look, &mut all);
    all
}

fn device(look: &mut Look<'_>, name: String, path: &Path, vectors: Vec<Vector>, offered: bool) -> Device {
    let kind = hex(look, &path.join("device")).map(Kind).unwrap_or_default();
    let status = hex(look, &path.join("status"));
    let negotiated = look.needed(&path.join("features")).and_then(|text| {
        let read = Features::of_sysfs(&text);
        look.parsed(&path.join("features"), read)
    });
    let offered = offered.then(|| of_debugfs(look, &name)).flatten();
    let (bus, address) = seat(path);
    let mut device = Device {
        kind,
        driver: link_name(&path.join("driver")),
        bus,
        address,
        status,
        negotiated: negotiated.unwrap_or_default(),
        offered,
        parts: parts(look, path),
        name,
        ..Device::default()
    };
    device.take_vectors(vectors);
    device
}

/// A number as these files have it, `0x0000000f`.
fn hex(look: &mut Look<'_>, path: &Path) -> Option<u32> {
    let text = look.needed(path)?;
    let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
    let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let made = number.ok_or_else(|| not("a hexadecimal number such as 0x0001", &text));
    look.parsed(path, made)
}

/// What the device offers. Kernels before 6.8, and those built without `CONFIG_VIRTIO_DEBUG`, have no such file.
fn of_debugfs(look: &mut Look<'_>, name: &str) -> Option<Features> {
    let path = look
        .roots
        .sys(format!("kernel/debug/virtio/{name}/device_features"));
    let text = look.text(&path)?;
    let read = Features::of_debugfs(&text);
    look.parsed(&path, read)
}

/// What the device is attached to, and where. The entry is a link to the device's folder, which lies below that of what it is attached to.
fn seat(path: &Path) -> (Bus, String) {
    let target = fs::read_link(path).unwrap_or_default();
    let address = target.parent().and_then(Path::file_name);
    let address = address.and_then(|name| name.to_str()).unwrap_or_default();
    // The kernel follows the link before it goes up.
    let bus = match link_name(&path.join("../subsystem")).as_deref() {
        Some("pci") => Bus::Pci,
        Some("platform") => Bus::Mmio,
        Some("ccw") => Bus::Ccw,
        None if is_pci(address) => Bus::Pci,
        _ => Bus::Other,
    };
    (bus, address.to_owned())
}

fn parts(look: &mut Look<'_>, path: &Path) -> Vec<String> {
    let mut parts = Vec::new();
    for entry in look.names(path) {
        let host = entry
            .strip_prefix("host")
            .is_some_and(|number| number.parse::<u32>().is_ok());
        if host {
            parts.push(entry);
        } else if PARTS.contains(&entry.as_str()) {
            parts.extend(look.names(&path.join(entry)));
        }
    }
    parts.sort_by(|one, other| natural(one).cmp(&natural(other)));
    parts
}

/// Sources of random numbers are no entries below their device. The driver numbers them as they come (kernel: `drivers/char/hw_random/virtio-rng.c`), as devices
/// are: the first is the first.
fn sources(look: &mut Look<'_>, devices: &mut [Device]) {
    let mut random = devices
        .iter_mut()
        .filter(|device| device.kind == Kind::RNG)
        .peekable();
    if random.peek().is_none() {
        return;
    }
    let path = look.roots.sys(SOURCES);
    let text = look.text(&path).unwrap_or_default();
    let mut names: Vec<&str> = text
        .split_whitespace()
        .filter(|name| name.starts_with("virtio_rng"))
        .collect();
    names.sort_by_key(|name| natural(name));
    for (device, name) in random.zip(names) {
        device.parts.push(name.to_owned());
    }
}
