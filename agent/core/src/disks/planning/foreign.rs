//! A disk that holds something else than what was declared: what that is, and what a person does then.
//!
//! Most of these are no data disks at all: KubeVirt attaches configuration as small disks, and a `match` that says too little finds one of them.

use super::{
    super::{
        device::Use,
        plan::{Refusal, RefusalKind},
        probe::Content,
    },
    case::Case,
};

/// Disks by which KubeVirt and installers hand something to a guest, by the label, in lower case, of their ISO 9660 or FAT filesystem. KubeVirt's labels:
/// `pkg/cloud-init/cloud-init.go`, `pkg/config/config.go` and `pkg/config/sysprep.go`; `OEMDRV` is Anaconda's, `virtio-win` that of the drivers for Windows.
const HANDED: [(&str, &str); 6] = [
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
/// Filesystems of such disks, as blkid names them.
const HANDED_ON: [&str; 3] = ["iso9660", "udf", "vfat"];
/// Partition tables, as blkid names them.
const TABLES: [&str; 6] = ["gpt", "dos", "PMBR", "mac", "bsd", "sun"];

/// What is on it, and `kind` with `more` is asked for.
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
    let what = what(content);
    let also = what.as_ref().map(|what| format!(": {what}")).unwrap_or_default();
    let node = case.device.node();
    let remedy = if what.is_some() {
        format!(
            "`match` ({}) fits the wrong disk: compare it with `lsblk -o NAME,SIZE,SERIAL,LABEL,FSTYPE`, and give the disk that is meant a serial \
             in the VM's spec. {node} is to stay as it is",
            case.disk.asked_for()
        )
    } else if kinds(content).any(|kind| TABLES.contains(&kind)) {
        partitioned_remedy(case)
    } else {
        format!(
            "look at it; if it is needed, change the settings. If not, back it up and remove it by hand (`wipefs --all {node}`), look at the plan \
             again, and approve what remains"
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
        format!("{node} holds {found}{also}, and {kind} is asked for{more}"),
        remedy,
        facts,
    )
}

/// The kernel knows partitions on it.
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
        "look at its partitions (`lsblk -o NAME,SIZE,LABEL,FSTYPE {node}`). When it is another system's disk, `match` ({}) fits the wrong one: correct \
         it. A disk that is to be used here has no partitions: when nothing on it is needed, back it up and remove them by hand (`wipefs --all` on \
         each partition and on {node})",
        case.disk.asked_for()
    )
}

fn kinds(content: &Content) -> impl Iterator<Item = &str> {
    let also = content.also.iter().map(String::as_str);
    std::iter::once(content.kind.as_str()).chain(also)
}

/// What it is there for, when that is known and it is no disk for data.
fn what(content: &Content) -> Option<String> {
    let is = |names: &[&str]| kinds(content).any(|kind| names.contains(&kind));
    if is(&["mvbd"]) {
        return Some(
            "it is the disk by which KubeVirt gives the VM metrics of its host (downwardMetrics)".to_owned(),
        );
    }
    if !is(&HANDED_ON) {
        return None;
    }
    let label = content.label.as_deref().unwrap_or_default();
    let known = HANDED.iter().find(|(name, _)| {
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
    fn what_is_handed_to_the_guest_is_told_from_data() {
        let of = |kind: &str, also: &[&str], label: &str| {
            what(&Content {
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
            "a hybrid image has a partition table, too"
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
