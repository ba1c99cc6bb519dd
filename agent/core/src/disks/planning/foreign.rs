//! A disk with other content than declared: what the content is, and the remedy.
//!
//! Most of these are not data disks: KubeVirt attaches configuration as small disks, and a `match`
//! with too few conditions matches one of them.

use super::{
    super::{
        device::Use,
        plan::{Refusal, RefusalKind},
        probe::{Content, Probe},
    },
    case::Case,
    verdict::LUKS,
};

/// Labels, in lower case, of the ISO 9660 or FAT filesystems by which KubeVirt and installers pass
/// data to a guest. KubeVirt: `pkg/cloud-init/cloud-init.go`, `pkg/config/config.go` and
/// `pkg/config/sysprep.go`. `OEMDRV` is Anaconda's; `virtio-win` has the drivers for Windows.
const CONFIGURATION_LABELS: [(&str, &str); 6] = [
    ("cidata", "the VM's cloud-init data (NoCloud)"),
    ("config-2", "the VM's cloud-init data (ConfigDrive)"),
    (
        "cfgdata",
        "a ConfigMap, a Secret, a service account or the downward API, attached to the VM as a disk",
    ),
    ("unattendcd", "the VM's answers for sysprep"),
    ("oemdrv", "a kickstart or drivers for an installer"),
    ("virtio-win", "the virtio drivers for Windows"),
];
/// blkid's names for the filesystems of such disks.
const CONFIGURATION_FILESYSTEMS: [&str; 3] = ["iso9660", "udf", "vfat"];
/// blkid's names for partition tables.
const PARTITION_TABLES: [&str; 6] = ["gpt", "dos", "PMBR", "mac", "bsd", "sun"];

/// Refusal of a disk, or of its LUKS container, with `content` although `kind` with `more` is
/// declared.
pub(super) fn foreign(case: &Case<'_>, content: &Content, kind: &str, more: &str) -> Refusal {
    let mut found = if content.is_known() {
        content.kind.clone()
    } else {
        "data".to_owned()
    };
    for also in &content.also {
        found.push_str(" and ");
        found.push_str(also);
    }
    let ours = is_ours(case, content);
    let what = purpose(content).filter(|_| !ours);
    let also = what.as_ref().map(|what| format!(": {what}")).unwrap_or_default();
    let disk = case.device.node();
    // Byte 510 of the container is not byte 510 of the disk, which belongs to the LUKS header.
    let (node, place) = if case.disk.encryption.is_some() && kind != LUKS {
        let node = format!("/dev/mapper/{}", case.mapping_name());
        let place = format!("{node}, the LUKS container on {disk},");
        (node, place)
    } else {
        (disk.clone(), disk)
    };
    let remedy = if ours {
        remedy_of_ours(content, &node)
    } else if what.is_some() {
        format!(
            "`match` ({}) matches the wrong disk: compare it with `lsblk -o NAME,SIZE,SERIAL,LABEL,FSTYPE`, and give the intended disk a \
             serial in the VM's spec. Do not change {node}",
            case.disk.conditions()
        )
    } else if kinds(content).any(|kind| PARTITION_TABLES.contains(&kind)) {
        partitioned_remedy(case, &node)
    } else {
        format!(
            "inspect it; if you need its data, change the settings. If not, back it up, remove it manually (`wipefs --all {node}`), run \
             the plan again, and approve the rest"
        )
    };
    let mut facts = vec![("kind", content.kind.clone())];
    for (name, value) in [
        (
            "also",
            (!content.also.is_empty()).then(|| content.also.join(", ")),
        ),
        ("uuid", content.uuid.clone()),
        ("label", content.label.clone()),
    ] {
        facts.extend(value.map(|value| (name, value)));
    }
    let own = if ours { "the agent's own " } else { "" };
    let but = if ours && content.kind == kind && more.is_empty() {
        String::new()
    } else {
        format!(", but {kind}{more} is declared")
    };
    case.refuse(
        RefusalKind::ForeignData,
        format!("{place} holds {own}{found}{also}{but}"),
        remedy,
        facts,
    )
}

/// Refusal of a disk with partitions in the kernel's table.
pub(super) fn partitioned(case: &Case<'_>) -> Refusal {
    let partitions: Vec<&str> = case
        .device
        .uses
        .iter()
        .filter_map(|used| match used {
            Use::Partition(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let text = format!("it has partitions: {}", partitions.join(", "));
    let (what, remedy) = match case.probe() {
        Probe::HasData(content) if is_ours(case, content) => (
            format!("it also holds the agent's own {}", content.kind),
            remedy_of_ours(content, &case.device.node()),
        ),
        _ => (
            "it looks like the disk of another system, e.g. a clone of a root disk".to_owned(),
            partitioned_remedy(case, &case.device.node()),
        ),
    };
    case.refuse(
        RefusalKind::ForeignData,
        format!("{}: {text}; {what}", case.device.node()),
        remedy,
        vec![("use", text)],
    )
}

/// Whether it is what the journal records as complete: the agent never advises to erase that.
fn is_ours(case: &Case<'_>, content: &Content) -> bool {
    let uuid = content.uuid.as_deref();
    let mut entries = case.journal.entries.iter();
    content.ours || entries.any(|entry| entry.records(&content.kind, uuid))
}

fn remedy_of_ours(content: &Content, node: &str) -> String {
    let own = &content.kind;
    let next = if content.also.is_empty() {
        "Declare it as it was (`filesystem`, `encryption`, `match`)".to_owned()
    } else {
        // With `ro` alone the kernel replays the log, which writes to the disk.
        let options = match own.as_str() {
            "ext4" => Some("ro,noload"),
            "xfs" => Some("ro,norecovery"),
            "btrfs" => Some("ro,rescue=nologreplay"),
            _ => None,
        };
        let copy = options.map(|options| {
            format!(
                " If you need the files at once, mount it by hand (`mount -t {own} -o {options} {node} DIRECTORY`) and copy them."
            )
        });
        format!(
            "Find out what wrote the other content.{} When only the {own} is left, the next run takes it",
            copy.unwrap_or_default()
        )
    };
    format!("erase nothing on the disk: the journal records this {own} as made by the agent. {next}")
}

fn partitioned_remedy(case: &Case<'_>, node: &str) -> String {
    format!(
        "inspect its partitions (`lsblk -o NAME,SIZE,LABEL,FSTYPE {node}`). If it is the disk of another system, correct `match` ({}). A \
         disk for use here has no partitions: if you need no data on it, back it up and remove them manually (`wipefs --all` \
         on each partition and on {node})",
        case.disk.conditions()
    )
}

fn kinds(content: &Content) -> impl Iterator<Item = &str> {
    let also = content.also.iter().map(String::as_str);
    std::iter::once(content.kind.as_str()).chain(also)
}

/// Purpose of the disk, if it is known not to be a data disk.
fn purpose(content: &Content) -> Option<String> {
    let is = |names: &[&str]| kinds(content).any(|kind| names.contains(&kind));
    if is(&["mvbd"]) {
        return Some(
            "it is the disk on which KubeVirt provides host metrics to the VM (downwardMetrics)".to_owned(),
        );
    }
    if !is(&CONFIGURATION_FILESYSTEMS) {
        return None;
    }
    let label = content.label.as_deref().unwrap_or_default();
    let known = CONFIGURATION_LABELS.iter().find(|(name, _)| {
        let begins = label.get(..name.len());
        let whole = label.len() == name.len() || *name == "virtio-win";
        whole && begins.is_some_and(|begins| begins.eq_ignore_ascii_case(name))
    });
    match known {
        Some((_, what)) => Some(format!(
            "it is a disk of the VM's configuration, {what} (label {label})"
        )),
        None if is(&["iso9660", "udf"]) => Some(
            "it is a CD or DVD image: an installation medium, or a configuration that KubeVirt has attached"
                .to_owned(),
        ),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_disks_are_distinguished_from_data() {
        let of = |kind: &str, also: &[&str], label: &str| {
            purpose(&Content {
                kind: kind.into(),
                also: also.iter().map(|also| (*also).to_owned()).collect(),
                label: Some(label.into()),
                ..Content::default()
            })
        };
        for (kind, label, word) in [
            ("iso9660", "cidata", "NoCloud"),
            ("vfat", "CIDATA", "NoCloud"),
            ("iso9660", "config-2", "ConfigDrive"),
            ("iso9660", "cfgdata", "ConfigMap"),
            ("iso9660", "unattendCD", "sysprep"),
            ("vfat", "OEMDRV", "kickstart"),
            ("iso9660", "virtio-win-0.1.271", "Windows"),
            ("iso9660", "Debian 12.9 n", "installation medium"),
            ("udf", "", "installation medium"),
            ("mvbd", "", "downwardMetrics"),
        ] {
            let what = of(kind, &[], label).unwrap_or_default();
            assert!(what.contains(word), "{kind} {label}: {what}");
        }
        assert!(
            of("dos", &["iso9660"], "Debian").is_some(),
            "a hybrid image also has a partition table"
        );
        for (kind, label) in [
            ("vfat", "DATA"),
            ("ext4", "cidata"),
            ("", ""),
            ("vfat", "cidata2"),
            ("vfat", "é"),
        ] {
            assert_eq!(of(kind, &[], label), None, "{kind} {label}");
        }
    }
}
