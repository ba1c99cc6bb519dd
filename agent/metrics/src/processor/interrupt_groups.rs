//! Groups the interrupts of all queues of a device.

use virtfleet_agent_core::procfs::interrupts::Interrupt;

/// Suffixes after a device's name that describe the purpose of an interrupt.
const ROLES: [&str; 16] = [
    "rx",
    "tx",
    "txrx",
    "input",
    "output",
    "req",
    "request",
    "requests",
    "control",
    "config",
    "event",
    "virtqueues",
    "comp",
    "mgmnt",
    "mgmt",
    "admin",
];

/// Labels of a series, except the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Label `type`: the interrupt's number or short name, or the device if interrupts are grouped.
    pub(super) kind: String,
    pub(super) info: String,
    pub(super) devices: String,
    /// True for the group of a device's interrupts.
    pub(super) grouped: bool,
}

/// A group with a single interrupt and node_exporter's labels.
pub(super) fn single(interrupt: Interrupt<'_>) -> Group {
    let (info, devices) = if interrupt.is_numbered() {
        interrupt.chip()
    } else {
        (interrupt.about, "")
    };
    Group {
        kind: interrupt.name.to_owned(),
        info: spaced(info),
        devices: spaced(devices),
        grouped: false,
    }
}

/// The group of all interrupts of this interrupt's device. Architecture-specific interrupts are not
/// grouped.
pub(super) fn device(interrupt: Interrupt<'_>) -> Group {
    if !interrupt.is_numbered() {
        return single(interrupt);
    }
    let mut names: Vec<String> = Vec::new();
    for handler in interrupt
        .handlers()
        .split(", ")
        .filter(|handler| !handler.is_empty())
    {
        let name = device_of(&spaced(handler));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let chip = interrupt.chip().0;
    let devices = names.join(", ");
    Group {
        kind: if devices.is_empty() {
            chip.to_owned()
        } else {
            devices.clone()
        },
        info: chip.to_owned(),
        devices,
        grouped: true,
    }
}

/// Device of a handler: `virtio0` for `virtio0-input.0`, `ens3` for `ens3-TxRx-0`, `nvme0` for
/// `nvme0q7`, `mlx5_comp@pci:0000:03:00.0` for `mlx5_comp3@pci:0000:03:00.0`.
fn device_of(handler: &str) -> String {
    if let Some((name, place)) = handler.split_once('@') {
        return format!("{}@{place}", without_number(name));
    }
    if let Some((name, _)) = handler.split_once('-')
        && name.strip_prefix("virtio").is_some_and(is_number)
    {
        return name.to_owned();
    }
    if let Some((name, queue)) = handler.rsplit_once('q')
        && name.strip_prefix("nvme").is_some_and(is_number)
        && is_number(queue)
    {
        return name.to_owned();
    }
    let mut name = handler;
    while let Some((rest, last)) = name.rsplit_once('-') {
        let word = without_number(last).trim_end_matches('.');
        let role = word.is_empty() || ROLES.iter().any(|role| word.eq_ignore_ascii_case(role));
        if rest.is_empty() || !role {
            break;
        }
        name = rest;
    }
    name.to_owned()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn without_number(text: &str) -> &str {
    text.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Collapses runs of blanks.
fn spaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    for word in text.split_ascii_whitespace() {
        if !spaced.is_empty() {
            spaced.push(' ');
        }
        spaced.push_str(word);
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(group: &Group) -> [&str; 3] {
        [&group.kind, &group.info, &group.devices]
    }

    #[test]
    fn the_queues_of_a_device_are_one_group() {
        for (handler, device) in [
            ("virtio0-input.0", "virtio0"),
            ("virtio12-req.3", "virtio12"),
            ("virtio0-reporting_vq", "virtio0"),
            ("ens3-TxRx-0", "ens3"),
            ("eth0-rx-1", "eth0"),
            ("eth0", "eth0"),
            ("iavf-ens5-TxRx-3", "iavf-ens5"),
            ("nvme0q12", "nvme0"),
            ("mlx5_comp3@pci:0000:03:00.0", "mlx5_comp@pci:0000:03:00.0"),
            ("ahci[0000:00:1f.2]", "ahci[0000:00:1f.2]"),
            ("ACPI:Ged", "ACPI:Ged"),
            ("-0", "-0"),
            ("i915", "i915"),
        ] {
            assert_eq!(device_of(handler), device);
        }
    }

    #[test]
    fn labels_of_a_single_interrupt_and_of_a_device() {
        let of = |name, about| Interrupt { name, about };
        let queue = of("34", "PCI-MSIX-0000:00:05.0   1-edge      virtio4-input.0");
        assert_eq!(
            labels(&single(queue)),
            ["34", "PCI-MSIX-0000:00:05.0", "1-edge virtio4-input.0"]
        );
        assert_eq!(
            labels(&device(queue)),
            ["virtio4", "PCI-MSIX-0000:00:05.0", "virtio4"]
        );
        let shared = of("10", "IO-APIC  10-fasteoi   virtio1, uhci_hcd:usb1, virtio1");
        assert_eq!(
            labels(&device(shared)),
            ["virtio1, uhci_hcd:usb1", "IO-APIC", "virtio1, uhci_hcd:usb1"]
        );
        assert_eq!(
            labels(&device(of("9", "IO-APIC   9-fasteoi"))),
            ["IO-APIC", "IO-APIC", ""]
        );
        let own = of("LOC", "Local  timer interrupts");
        assert_eq!(labels(&device(own)), ["LOC", "Local timer interrupts", ""]);
    }
}
