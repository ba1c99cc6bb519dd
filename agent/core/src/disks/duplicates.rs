//! Detects equal UUIDs or labels on two disks of the guest.
//!
//! udev makes one link per UUID or label, such as `/dev/disk/by-uuid/…`, and points it to the
//! device that appeared last. If a kernel command line or `/etc/fstab` names the root filesystem
//! this way, the guest can mount the copy instead. KKP's secondary disks are clones of the OS
//! image, with all of its UUIDs and labels.
//!
//! All input comes from udev's database and two text files. No device is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use virtfleet_wire::finding::{Finding, Severity};

/// Maximum number of equal identifiers that a finding lists.
const MAX_LISTED: usize = 16;

/// Kind of an identifier of a filesystem or a partition (fstab(5), `/dev/disk/by-*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagKind {
    /// UUID of a filesystem, swap area, LUKS header or LVM volume.
    Uuid,
    Label,
    /// UUID of a partition (GPT), or disk number with partition number (MBR).
    PartUuid,
    /// Name of a partition (GPT).
    PartLabel,
}

impl TagKind {
    const ALL: [Self; 4] = [Self::Uuid, Self::Label, Self::PartUuid, Self::PartLabel];

    /// Name of the kind in fstab(5).
    pub fn word(self) -> &'static str {
        match self {
            Self::Uuid => "UUID",
            Self::Label => "LABEL",
            Self::PartUuid => "PARTUUID",
            Self::PartLabel => "PARTLABEL",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Uuid => "/dev/disk/by-uuid/",
            Self::Label => "/dev/disk/by-label/",
            Self::PartUuid => "/dev/disk/by-partuuid/",
            Self::PartLabel => "/dev/disk/by-partlabel/",
        }
    }

    fn is_uuid(self) -> bool {
        matches!(self, Self::Uuid | Self::PartUuid)
    }
}

/// An identifier, e.g. `LABEL=cloudimg-rootfs`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    pub kind: TagKind,
    /// Value; UUIDs in lower case.
    pub value: String,
}

impl Tag {
    fn new(kind: TagKind, value: &str) -> Option<Self> {
        let value = if kind.is_uuid() {
            value.to_ascii_lowercase()
        } else {
            value.to_owned()
        };
        (!value.is_empty()).then_some(Self { kind, value })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind.word(), self.value)
    }
}

/// Disk or partition in udev's database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identified {
    /// Kernel name, e.g. `vda1`.
    pub name: String,
    /// Kernel name of the whole disk, e.g. `vda`.
    pub disk: String,
    pub tags: Vec<Tag>,
}

/// Returns the identifiers in udev's properties of a device (`E:` lines). Empty if equal
/// identifiers are intended: RAID and ZFS members and multipath paths share those of the whole. The
/// devices of a btrfs share the filesystem's UUID, so the UUID of the device (`ID_FS_UUID_SUB`) is
/// used.
pub fn tags<'a>(properties: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Tag> {
    let all: BTreeMap<&str, &str> = properties.collect();
    let of = |key: &str| all.get(key).copied().unwrap_or_default();
    let member = of("ID_FS_TYPE").ends_with("_member") && of("ID_FS_TYPE") != "LVM2_member";
    if of("DM_MULTIPATH_DEVICE_PATH") == "1" || member {
        return Vec::new();
    }
    let decoded = |encoded: &str, plain: &str| match of(encoded) {
        "" => of(plain).to_owned(),
        text => decode(text),
    };
    let several = of("ID_FS_TYPE") == "btrfs" && !of("ID_FS_UUID_SUB").is_empty();
    let uuid = if several {
        of("ID_FS_UUID_SUB").to_owned()
    } else {
        decoded("ID_FS_UUID_ENC", "ID_FS_UUID")
    };
    let label = if several {
        // All devices of a btrfs have the label of the filesystem.
        String::new()
    } else {
        decoded("ID_FS_LABEL_ENC", "ID_FS_LABEL")
    };
    [
        (TagKind::Uuid, uuid),
        (TagKind::Label, label),
        (TagKind::PartUuid, of("ID_PART_ENTRY_UUID").to_owned()),
        (TagKind::PartLabel, decode(of("ID_PART_ENTRY_NAME"))),
    ]
    .into_iter()
    .filter_map(|(kind, value)| Tag::new(kind, &value))
    .collect()
}

/// Decodes udev's `\xNN` escapes.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after
            .strip_prefix(b"x")
            .filter(|_| *first == b'\\')
            .and_then(|hex| hex.get(..2));
        let byte = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = byte {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reference to a device by identifier, and its location, e.g. `root= of /proc/cmdline`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub tag: Tag,
    pub place: String,
}

/// Returns the references in the kernel command line: `root=UUID=…`, `resume=/dev/disk/by-uuid/…`.
pub fn of_command_line(text: &str) -> Vec<Reference> {
    let named = text.split_ascii_whitespace().filter_map(|word| {
        let (key, value) = word.split_once('=')?;
        // The kernel accepts an offset to another partition: `PARTUUID=…/PARTNROFF=1`.
        let value = value.split("/PARTNROFF").next().unwrap_or(value);
        Some(Reference {
            tag: reference(value)?,
            place: format!("{key}= of /proc/cmdline"),
        })
    });
    named.collect()
}

/// Returns the references in `/etc/fstab`.
pub fn of_fstab(text: &str) -> Vec<Reference> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let device = words.next().filter(|word| !word.starts_with('#'))?;
        let at = words.next().unwrap_or("none");
        Some(Reference {
            tag: reference(device)?,
            place: format!("{at} in /etc/fstab"),
        })
    });
    named.collect()
}

fn reference(text: &str) -> Option<Tag> {
    TagKind::ALL.into_iter().find_map(|kind| {
        if let Some(value) = text.strip_prefix(kind.folder()) {
            return Tag::new(kind, &decode(value));
        }
        let value = text.strip_prefix(kind.word())?.strip_prefix('=')?;
        Tag::new(kind, value.trim_matches(['"', '\'']))
    })
}

/// Returns one critical finding per group of disks with an equal identifier. Partition names are
/// reported only if something refers to them: images of one kind have equal names, such as `EFI
/// System Partition`.
pub fn findings(devices: &[Identified], references: &[Reference]) -> Vec<Finding> {
    let mut carriers: BTreeMap<&Tag, Vec<&Identified>> = BTreeMap::new();
    for device in devices {
        for tag in &device.tags {
            carriers.entry(tag).or_default().push(device);
        }
    }
    let mut groups: BTreeMap<BTreeSet<&str>, Vec<(&Tag, Vec<&Identified>)>> = BTreeMap::new();
    for (tag, carriers) in carriers {
        let disks: BTreeSet<&str> = carriers.iter().map(|one| one.disk.as_str()).collect();
        let named = || references.iter().any(|one| one.tag == *tag);
        if disks.len() > 1 && (tag.kind != TagKind::PartLabel || named()) {
            groups.entry(disks).or_default().push((tag, carriers));
        }
    }
    let groups = groups.into_iter();
    groups
        .map(|(disks, equal)| finding(&disks, &equal, references))
        .collect()
}

fn finding(disks: &BTreeSet<&str>, equal: &[(&Tag, Vec<&Identified>)], references: &[Reference]) -> Finding {
    let nodes = |devices: &[&Identified]| -> String {
        let all: Vec<String> = devices.iter().map(|one| format!("/dev/{}", one.name)).collect();
        all.join(" and ")
    };
    let refers = |tag: &Tag| {
        let mut references = references.iter();
        references
            .find(|one| one.tag == *tag)
            .map(|one| one.place.as_str())
    };
    // An identifier in use is the most important one; the kernel command line comes before fstab.
    let place = |tag: &Tag| references.iter().position(|one| one.tag == *tag);
    let mut equal: Vec<&(&Tag, Vec<&Identified>)> = equal.iter().collect();
    equal.sort_by_key(|(tag, _)| place(tag).unwrap_or(usize::MAX));
    let (tag, devices) = equal[0];
    let more = match equal.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more identifiers are equal"),
    };
    let used = refers(tag).map_or_else(
        || "nothing in /proc/cmdline or /etc/fstab refers to it".to_owned(),
        |place| format!("{place} refers to it and may select either of them at the next boot"),
    );
    let message = format!("{} have the same {tag}{more}; {used}", nodes(devices));
    let name = disks.iter().copied().collect::<Vec<_>>().join(" ");
    let list = |lines: Vec<String>| lines.join("; ");
    let shown = equal.iter().take(MAX_LISTED);
    let identifiers = shown
        .clone()
        .map(|(tag, devices)| format!("{tag}: {}", nodes(devices)));
    let referring = shown.filter_map(|(tag, _)| Some(format!("{} names {tag}", refers(tag)?)));
    Finding::new(
        "disk-duplicate-identifiers",
        Severity::Critical,
        ("Disk", &name),
        "DuplicateIdentifiers",
        message,
    )
    .with("identifiers", list(identifiers.collect()))
    .with("references", list(referring.collect()))
    .remedy(
        "detach the copy before the next boot; or, if its data is not needed and it is a clone of the OS image, declare it with `content: image-clone`; or give the copy other identifiers (`sgdisk -G`, `tune2fs -U random`, `xfs_admin -U generate`, `btrfstune -u`, and `-L` for labels)",
    )
}

#[cfg(test)]
mod tests;
