//! A disk with other content than declared: what the content is, and the remedy.
//!
//! Most of these are not data disks: KubeVirt attaches configuration as small disks, and a `match`
//! with too few conditions matches one of them.

use super::{
    super::{
        device::Use,
        plan::{Refusal, RefusalKind},
        probe::Content,
    },
    case::Case,
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

/// Refusal of a disk with `content` although `kind` with `more` is declared.
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
    let what = purpose(content);
    let also = what.as_ref().map(|what| format!(": {what}")).unwrap_or_default();
    let node = case.device.node();
    let remedy = if what.is_some() {
        format!(
            "`match` ({}) matches the wrong disk: compare it with `lsblk -o NAME,SIZE,SERIAL,LABEL,FSTYPE`, and give the intended disk a \
             serial in the VM's spec. Do not change {node}",
            case.disk.conditions()
        )
    } else if kinds(content).any(|kind| PARTITION_TABLES.contains(&kind)) {
        partitioned_remedy(case)
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
    case.refuse(
        RefusalKind::ForeignData,
        format!("{node} holds {found}{also}, but {kind}{more} is declared"),
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
    case.refuse(
        RefusalKind::ForeignData,
        format!(
            "{}: {text}; it looks like the disk of another system, e.g. a clone of a root disk",
            case.device.node()
        ),
        partitioned_remedy(case),
        vec![("use", text)],
    )
}

fn partitioned_remedy(case: &Case<'_>) -> String {
    let node = case.device.node();
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
