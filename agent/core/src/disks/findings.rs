//! Findings from the disk plan, for the report and for `doctor`.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    device::Device,
    keys,
    matching::csi,
    plan::{DiskPlan, DiskStep, Plan, Refusal, RefusalKind},
    seen::Seen,
    units::disk_of,
    wanted::{KeySource, Wanted},
};

/// Returns one finding for each refusal, pending step, note about a mounted disk, and left-over
/// unit. Their ids begin with `disk-` and are listed in `docs/findings.md`.
pub fn findings(wanted: &[Wanted], plan: &Plan, seen: &Seen) -> Vec<Finding> {
    let mut all = Vec::new();
    for disk in &plan.disks {
        let declared = wanted.iter().find(|declared| declared.name == disk.name);
        let required = match declared {
            Some(declared) => declared.required,
            None => disk
                .refusals
                .iter()
                .any(|refusal| refusal.facts.iter().any(|fact| fact == &required_fact())),
        };
        all.extend(
            disk.refusals
                .iter()
                .map(|refusal| refused(disk, refusal, required)),
        );
        all.extend(pending(disk, required));
        all.extend(disk.notes.iter().map(|note| noted(disk, note)));
        all.extend(declared.and_then(|declared| read_only(declared, disk, seen)));
        all.extend(declared.and_then(tpm));
        all.extend(
            declared
                .into_iter()
                .flat_map(|declared| csi_skipped(declared, disk, seen)),
        );
        all.extend(declared.and_then(|declared| recovery_key(declared, disk, seen)));
    }
    all.extend(left_behind(plan, seen));
    all
}

fn required_fact() -> (String, String) {
    ("required".to_owned(), "true".to_owned())
}

fn about(id: &str, severity: Severity, name: &str, reason: &str, message: impl Into<String>) -> Finding {
    Finding::new(id, severity, ("Disk", name), reason, message)
}

/// Returns the reason of a refusal kind in CamelCase.
fn reason(kind: RefusalKind) -> String {
    kind.word()
        .split('-')
        .map(|part| {
            let mut letters = part.chars();
            letters.next().map_or(String::new(), |first| {
                first.to_ascii_uppercase().to_string() + letters.as_str()
            })
        })
        .collect()
}

fn refused(disk: &DiskPlan, refusal: &Refusal, required: bool) -> Finding {
    let severity = if required {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let id = format!("disk-{}", refusal.kind.word());
    let mut finding = about(
        &id,
        severity,
        &disk.name,
        &reason(refusal.kind),
        refusal.message.clone(),
    );
    for (name, fact) in &refusal.facts {
        finding = finding.with(name, fact);
    }
    if let Some(device) = &refusal.device {
        finding = finding.with("device", &device.name).with("bytes", device.size);
        if let Some(serial) = &device.serial {
            finding = finding.with("serial", serial);
        }
    }
    if !refusal.evidence.is_empty() {
        finding = finding.with("evidence", &refusal.evidence);
    }
    finding.remedy(refusal.remedy.clone())
}

fn pending(disk: &DiskPlan, required: bool) -> Option<Finding> {
    let words: Vec<&str> = disk.steps.iter().map(DiskStep::word).collect();
    let severity = if required {
        Severity::Warning
    } else {
        Severity::Info
    };
    let message = format!(
        "not in the requested state yet: {} steps are pending",
        words.len()
    );
    (!words.is_empty()).then(|| {
        about("disk-pending", severity, &disk.name, "Pending", message)
            .with("steps", words.join(", "))
            .remedy("sudo virtfleet-agent apply disks")
    })
}

fn noted(disk: &DiskPlan, note: &str) -> Finding {
    about("disk-note", Severity::Info, &disk.name, "Note", note)
}

fn read_only(declared: &Wanted, disk: &DiskPlan, seen: &Seen) -> Option<Finding> {
    let path = declared.mount_point.as_deref()?;
    let mount = seen.mounts.iter().rfind(|mount| mount.mount_point == path)?;
    // ext4 shows the latter two since Linux 6.14: no more writes, or no I/O at all.
    let words = ["ro", "emergency_ro", "shutdown"];
    let found = words
        .into_iter()
        .find(|word| mount.options.iter().any(|option| option == word))?;
    let asked = declared.options.iter().any(|option| option == "ro") && found == "ro";
    (disk.device.is_some() && !asked).then(|| {
        let is = if found == "shutdown" {
            "shut down"
        } else {
            "read-only"
        };
        let message =
            format!("{path} is {is}, although the settings do not request it: its filesystem had an error");
        about(
            "disk-read-only",
            Severity::Critical,
            &disk.name,
            "ReadOnly",
            message,
        )
        .with("mountPoint", path)
        .with("option", found)
        .remedy("read the kernel log (`dmesg`), unmount and check the filesystem, and reboot")
    })
}

/// What may be a volume of a CSI driver and matches the path, size or order of the declared disk. A
/// disk that came later and is refused has a finding already.
fn csi_skipped<'a>(
    declared: &'a Wanted,
    disk: &'a DiskPlan,
    seen: &'a Seen,
) -> impl Iterator<Item = Finding> + 'a {
    let severity = if disk.device.is_some() {
        Severity::Info
    } else {
        Severity::Warning
    };
    let is_refused = |device: &Device| {
        let mut refusals = disk.refusals.iter();
        refusals.any(|refusal| {
            refusal.kind == RefusalKind::CameLater && refusal.device.as_ref() == Some(&device.id)
        })
    };
    let skipped = csi::skipped(declared, &seen.devices).into_iter();
    let skipped = skipped.map(|index| &seen.devices[index]);
    skipped.filter(move |device| !is_refused(device)).map(move |device| {
        let (reason, because) = match csi::csi_name(device) {
            Some(name) => (
                "CsiVolumeSkipped",
                format!("{name} is a name that a CSI driver assigns to the volume of a PVC"),
            ),
            None => (
                "CameLater",
                "it is not on the list of the disks of the VM's first boot, and may be a volume that a CSI driver formats".to_owned(),
            ),
        };
        let message = format!("{} matches {}, but was skipped: {because}", device.node(), declared.conditions());
        about("disk-csi-volume-skipped", severity, &declared.name, reason, message)
            .with("device", &device.id.name)
            .with("serial", device.id.serial.as_deref().unwrap_or("none"))
            .remedy("none if it belongs to a PVC; if it is the declared disk, name it by `match.serial` or `match.volume`, if necessary after giving it a serial in the VM's spec")
    })
}

/// KubeVirt's virtual TPM loses its keys when the VM's pod ends, unless the TPM is persistent. A
/// guest cannot see whether it is.
fn tpm(declared: &Wanted) -> Option<Finding> {
    let encryption = declared.encryption.as_ref()?;
    (encryption.key == KeySource::Tpm2).then(|| {
        let message = "its key is in the VM's TPM; KubeVirt discards the TPM's state at each stop unless the VM's spec makes it persistent";
        about("disk-tpm-volatile", Severity::Info, &declared.name, "TpmMayBeVolatile", message)
            .remedy("set spec.template.spec.domain.devices.tpm.persistent: true, and keep the recovery key")
    })
}

/// Reports a recovery key that is stored next to the container: with it, the TPM protects nothing.
/// The file is needed until the container is made, enrolled and open.
fn recovery_key(declared: &Wanted, disk: &DiskPlan, seen: &Seen) -> Option<Finding> {
    let encryption = declared.encryption.as_ref()?;
    let path = encryption.recovery.as_ref()?;
    let open = seen.mappings.contains_key(&keys::mapping(&declared.name));
    let here = encryption.key == KeySource::Tpm2 && !seen.bad_keys.contains_key(path);
    (here && open && disk.steps.is_empty()).then(|| keys::recovery_here(&declared.name, path))
}

/// Whether the path is the unit itself, not a drop-in.
fn is_unit(path: &str) -> bool {
    matches!(path.rsplit_once('.'), Some((_, "mount" | "swap")))
}

/// Units of disks that are no longer declared. The agent does not remove them: settings that are
/// missing for a moment must not unmount a disk.
fn left_behind(plan: &Plan, seen: &Seen) -> Vec<Finding> {
    let gone = seen.files.iter().filter_map(|(path, text)| {
        let name = disk_of(text)?;
        let declared = plan.disks.iter().any(|disk| disk.name == name || disk.name == "*");
        (!declared && is_unit(path)).then(|| {
            let message = format!("{path} belongs to a disk that is no longer declared");
            about("disk-left-behind", Severity::Info, name, "NotDeclared", message)
                .with("file", path)
                .remedy("declare the disk again; or stop the unit and remove it and the drop-ins with the same marker")
        })
    });
    gone.collect()
}

#[cfg(test)]
mod tests;
