//! The hardware that a guest sees, as its report says: the few bounded values that are compared
//! with the VMI. At most a few KiB, typically some hundred bytes.

use std::net::IpAddr;

use serde_json::Value;
use virtfleet_wire::{
    ids::MacAddr,
    report::{GuestReport, Section, SectionStatus},
};

use crate::{cpu_flags::CpuFlags, findings::guest_text, vmi_spec::CpuTopology};

/// Maximum number of disks kept.
const MAX_DISKS: usize = 32;
/// Maximum number of network interfaces kept.
const MAX_NICS: usize = 32;
/// Maximum number of nameservers, and of search domains, kept.
const MAX_RESOLVER_ENTRIES: usize = 8;
/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 64;

/// Hardware of a guest. What the report does not say is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GuestHardware {
    pub(crate) cpus_online: Option<u32>,
    pub(crate) cpus_present: Option<u32>,
    pub(crate) topology: Option<CpuTopology>,
    pub(crate) cpu_model: Option<Box<str>>,
    pub(crate) cpu_flags: Option<CpuFlags>,
    /// `MemTotal`.
    pub(crate) memory_bytes: Option<u64>,
    /// None from older agents.
    pub(crate) crash_kernel_bytes: Option<u64>,
    pub(crate) has_tpm: Option<bool>,
    pub(crate) hostname: Option<Box<str>>,
    /// None if the list of devices is incomplete.
    pub(crate) virtio: Option<VirtioDevices>,
    /// None if the list is incomplete.
    pub(crate) disks: Option<Box<[GuestDisk]>>,
    /// None if the list is incomplete.
    pub(crate) nics: Option<Box<[GuestNic]>>,
    pub(crate) resolver: Option<Box<GuestResolver>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VirtioDevices {
    pub(crate) nics: u32,
    pub(crate) has_rng: bool,
    pub(crate) has_balloon: bool,
}

/// How a disk is attached, as far as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskAttachment {
    VirtioBlk,
    VirtioScsi,
    /// On a SATA, USB or other emulated controller.
    Emulated,
    CdRom,
    /// A passed-through device, or a network disk of the guest.
    Other,
}

impl DiskAttachment {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::VirtioBlk => "virtio-blk",
            Self::VirtioScsi => "virtio-scsi",
            Self::Emulated => "emulated",
            Self::CdRom => "CD-ROM",
            Self::Other => "other",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestDisk {
    pub(crate) name: Box<str>,
    /// Its serial, else the last word of its WWID, which has the serial or the alias of libvirt.
    pub(crate) id: Option<Box<str>>,
    pub(crate) bytes: Option<u64>,
    /// None if the report does not say it.
    pub(crate) attachment: Option<DiskAttachment>,
    pub(crate) queues: Option<u32>,
    /// Its write cache is in write-back mode.
    pub(crate) is_write_back: Option<bool>,
}

/// A network interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestNic {
    pub(crate) mac: Option<MacAddr>,
    pub(crate) driver: Option<Box<str>>,
    /// Queues that the device offers.
    pub(crate) queues: Option<u32>,
}

impl GuestNic {
    pub(crate) fn is_virtio(&self) -> bool {
        self.driver.as_deref() == Some("virtio_net")
    }
}

/// Name resolution of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestResolver {
    /// The agent changes it, as its settings say.
    pub(crate) is_managed: bool,
    pub(crate) nameservers: Box<[IpAddr]>,
    pub(crate) searches: Box<[Box<str>]>,
    pub(crate) options: Box<[Box<str>]>,
}

impl GuestHardware {
    pub(crate) fn of(report: &GuestReport) -> Self {
        let only = |name: &str| {
            report
                .sections
                .get(name)
                .and_then(|section| section.items.first())
        };
        let (hardware, system) = (only("hardware"), only("system"));
        let cpus = |name: &str| count(hardware?, name);
        let topology = |item: &Value| {
            Some(CpuTopology {
                sockets: count(item, "sockets")?,
                cores: count(item, "coresPerSocket")?,
                threads: count(item, "threadsPerCore")?,
            })
        };
        let devices = complete(report, "virtio");
        Self {
            // Older agents have it in `system` only.
            cpus_online: cpus("cpusOnline").or_else(|| count(system?, "cpusOnline")),
            cpus_present: cpus("cpusPresent"),
            topology: hardware.and_then(topology),
            cpu_model: hardware.and_then(|item| text(item, "cpuModel")),
            cpu_flags: hardware
                .and_then(|item| item.get("cpuFlags")?.as_str())
                .map(CpuFlags::of_kernel),
            memory_bytes: system.and_then(|item| item.get("memoryTotalBytes")?.as_u64()),
            crash_kernel_bytes: hardware.and_then(|item| item.get("crashKernelBytes")?.as_u64()),
            has_tpm: hardware.and_then(|item| item.get("tpm")?.as_bool()),
            hostname: report.identity.hostname.as_ref().map(|name| bounded(&name.value)),
            virtio: devices.map(virtio_devices),
            disks: complete(report, "disks").and_then(|section| disks(section, devices)),
            nics: complete(report, "nics").and_then(nics),
            resolver: only("dns").and_then(resolver).map(Box::new),
        }
    }
}

/// The section, if it has all its items.
fn complete<'a>(report: &'a GuestReport, name: &str) -> Option<&'a Section> {
    let section = report.sections.get(name)?;
    let has_items = matches!(section.status, SectionStatus::Ok | SectionStatus::Partial);
    (has_items && !section.truncated).then_some(section)
}

fn count(item: &Value, name: &str) -> Option<u32> {
    u32::try_from(item.get(name)?.as_u64()?).ok()
}

fn text(item: &Value, name: &str) -> Option<Box<str>> {
    Some(bounded(item.get(name)?.as_str()?))
}

/// Text of the guest, cut and safe for terminals.
fn bounded(text: &str) -> Box<str> {
    guest_text(&text[..text.floor_char_boundary(MAX_TEXT_BYTES)]).into()
}

fn of_kind<'a>(section: &'a Section, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let is_kind = move |item: &&Value| item.get("kind").and_then(Value::as_str) == Some(kind);
    section.items.iter().filter(is_kind)
}

fn virtio_devices(section: &Section) -> VirtioDevices {
    let mut found = VirtioDevices::default();
    for device in of_kind(section, "device") {
        match device.get("type").and_then(Value::as_str) {
            Some("net") => found.nics += 1,
            Some("rng") => found.has_rng = true,
            Some("balloon") => found.has_balloon = true,
            _ => {}
        }
    }
    found
}

/// None if there are more than [`MAX_DISKS`].
fn disks(section: &Section, virtio: Option<&Section>) -> Option<Box<[GuestDisk]>> {
    let named = section
        .items
        .iter()
        .filter_map(|item| Some((item, item.get("name")?.as_str()?)));
    // Volumes of the device mapper and of software RAID consist of disks.
    let disks = named.filter(|(_, name)| !name.starts_with("dm-") && !name.starts_with("md"));
    let found: Vec<_> = disks
        .take(MAX_DISKS + 1)
        .map(|(item, name)| disk(item, name, virtio))
        .collect();
    (found.len() <= MAX_DISKS).then(|| found.into())
}

fn disk(item: &Value, name: &str, virtio: Option<&Section>) -> GuestDisk {
    let is_same = |one: &&Value| one.get("name").and_then(Value::as_str) == Some(name);
    let more = virtio.and_then(|section| of_kind(section, "disk").find(is_same));
    let behind = more.and_then(|more| more.get("behind")?.as_str());
    let attachment = match behind {
        _ if name.starts_with("sr") => Some(DiskAttachment::CdRom),
        Some("virtio-blk") => Some(DiskAttachment::VirtioBlk),
        Some("virtio-scsi") => Some(DiskAttachment::VirtioScsi),
        Some("emulated") => Some(DiskAttachment::Emulated),
        Some(_) => Some(DiskAttachment::Other),
        None => None,
    };
    let wwid = item.get("wwid").and_then(Value::as_str);
    let id = item.get("serial").and_then(Value::as_str);
    let id = id.or_else(|| wwid?.split_whitespace().next_back());
    let cache = more.and_then(|more| more.get("writeCache")?.as_str());
    GuestDisk {
        name: bounded(name),
        id: id.map(bounded),
        bytes: item.get("sizeBytes").and_then(Value::as_u64),
        attachment,
        queues: more.and_then(|more| count(more, "queues")),
        is_write_back: cache.map(|cache| cache == "back"),
    }
}

/// None if there are more than [`MAX_NICS`].
fn nics(section: &Section) -> Option<Box<[GuestNic]>> {
    let found = section.items.iter().take(MAX_NICS + 1).map(|item| GuestNic {
        mac: item
            .get("mac")
            .and_then(Value::as_str)
            .and_then(|mac| mac.parse().ok()),
        driver: text(item, "driver"),
        queues: count(item, "channelsPossible"),
    });
    let found: Vec<_> = found.collect();
    (found.len() <= MAX_NICS).then(|| found.into())
}

fn resolver(item: &Value) -> Option<GuestResolver> {
    let effective = item.get("effective")?;
    let texts = |name: &str| {
        let listed = effective
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        listed.filter_map(Value::as_str).take(MAX_RESOLVER_ENTRIES)
    };
    Some(GuestResolver {
        is_managed: item.get("manage").and_then(Value::as_str) == Some("auto"),
        // Link-local nameservers have a zone, and are never in a VMI.
        nameservers: texts("nameservers").filter_map(|one| one.parse().ok()).collect(),
        searches: texts("searches").map(bounded).collect(),
        options: texts("options").map(bounded).collect(),
    })
    .filter(|found| !found.nameservers.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn section(items: Value) -> Section {
        Section {
            status: SectionStatus::Ok,
            items: items.as_array().unwrap().clone(),
            ..Section::default()
        }
    }

    fn report(sections: &[(&str, Value)]) -> GuestReport {
        let sections = sections.iter();
        GuestReport {
            sections: sections
                .map(|(name, items)| ((*name).to_owned(), section(items.clone())))
                .collect(),
            ..GuestReport::default()
        }
    }

    #[test]
    fn disks_and_devices_are_joined() {
        let hardware = GuestHardware::of(&report(&[
            (
                "disks",
                json!([
                    { "name": "vda", "sizeBytes": 10, "serial": "root" },
                    { "name": "sda", "wwid": "t10.QEMU    QEMU HARDDISK   drive-ua-data" },
                    { "name": "sr0" }, { "name": "dm-0" },
                ]),
            ),
            (
                "virtio",
                json!([
                    { "kind": "machine" }, { "kind": "device", "type": "net" }, { "kind": "device", "type": "rng" },
                    { "kind": "disk", "name": "vda", "behind": "virtio-blk", "queues": 2, "writeCache": "back" },
                    { "kind": "disk", "name": "sda", "behind": "virtio-scsi" },
                ]),
            ),
        ]));
        let disks = hardware.disks.unwrap();
        let short = |disk: &GuestDisk| (disk.id.clone(), disk.attachment, disk.queues, disk.is_write_back);
        assert_eq!(
            disks.iter().map(short).collect::<Vec<_>>(),
            [
                (
                    Some("root".into()),
                    Some(DiskAttachment::VirtioBlk),
                    Some(2),
                    Some(true)
                ),
                (
                    Some("drive-ua-data".into()),
                    Some(DiskAttachment::VirtioScsi),
                    None,
                    None
                ),
                (None, Some(DiskAttachment::CdRom), None, None),
            ]
        );
        let devices = hardware.virtio.unwrap();
        assert_eq!(
            (devices.nics, devices.has_rng, devices.has_balloon),
            (1, true, false)
        );
    }

    #[test]
    fn a_hostile_report_takes_little_memory() {
        let many = |value: Value| Value::Array(vec![value; 1000]);
        let long = "x".repeat(10_000);
        let hardware = GuestHardware::of(&report(&[
            (
                "hardware",
                json!([{ "cpuModel": long, "cpuFlags": long, "cpusOnline": u64::MAX, "sockets": -1 }]),
            ),
            ("disks", many(json!({ "name": long, "serial": long }))),
            ("nics", many(json!({ "mac": long, "driver": long }))),
            (
                "dns",
                json!([{ "effective": { "nameservers": many(json!("10.0.0.1")), "searches": many(json!(long)) } }]),
            ),
        ]));
        assert_eq!(
            (&hardware.disks, &hardware.nics, hardware.cpus_online),
            (&None, &None, None)
        );
        assert!(format!("{hardware:?}").len() < 2000, "{hardware:?}");
    }

    #[test]
    fn a_report_of_an_older_agent_has_vcpus_and_memory() {
        let hardware = GuestHardware::of(&report(&[(
            "system",
            json!([{ "cpusOnline": 2, "memoryTotalBytes": 1_000_000 }]),
        )]));
        assert_eq!(
            (hardware.cpus_online, hardware.memory_bytes),
            (Some(2), Some(1_000_000))
        );
        assert_eq!(
            GuestHardware::of(&GuestReport::default()),
            GuestHardware::default()
        );
    }
}
