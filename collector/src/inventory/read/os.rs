//! What a VirtualMachine or VMI says about its guest's operating system, and whether its agent is
//! to be ignored.

use virtfleet_collector_core::{facts::Exclusion, managed::IGNORE_ANNOTATION};

use super::field::{Field, Problem};

/// The annotations that are read here; the reader of a live cluster keeps no others.
pub(in crate::inventory) const ANNOTATIONS: [&str; 4] = [
    IGNORE_ANNOTATION,
    // KubeVirt's common templates set it, e.g. to windows10.
    "vm.kubevirt.io/os",
    // KubeVirt sets these from spec.preference, e.g. to windows.11.
    "kubevirt.io/preference-name",
    "kubevirt.io/cluster-preference-name",
];
/// Label with the operating system.
const OS_LABEL: &str = "kubevirt.io/os";
/// `status.guestOSInfo.id` of Windows, by the guest agent.
const WINDOWS_ID: &str = "mswindows";

/// What a VMI says against dialling its agent.
pub(super) fn exclusion_of_vmi(metadata: &Field<'_>, status: &Field<'_>) -> Result<Exclusion, Problem> {
    Ok(match (is_ignored(metadata)?, is_windows_vmi(metadata, status)?) {
        (true, _) => Exclusion::Ignored,
        (false, true) => Exclusion::Windows,
        (false, false) => Exclusion::None,
    })
}

/// What a VirtualMachine says against dialling its agent: by its annotation, or by the preference.
pub(super) fn exclusion_of_vm(object: &Field<'_>) -> Result<Exclusion, Problem> {
    let preference = object.at("spec.preference.name")?;
    Ok(
        match (is_ignored(&object.get("metadata")?)?, preference.text()?) {
            (true, _) => Exclusion::Ignored,
            (false, Some(name)) if is_windows(name) => Exclusion::Windows,
            _ => Exclusion::None,
        },
    )
}

/// Whether the metadata has the annotation with the value `true`.
pub(super) fn is_ignored(metadata: &Field<'_>) -> Result<bool, Problem> {
    let field = metadata.get("annotations")?.get(IGNORE_ANNOTATION)?;
    Ok(field.text()? == Some("true"))
}

/// Whether the guest of a VMI is Windows.
fn is_windows_vmi(metadata: &Field<'_>, status: &Field<'_>) -> Result<bool, Problem> {
    let annotations = metadata.get("annotations")?;
    for key in &ANNOTATIONS[1..] {
        if annotations.get(key)?.text()?.is_some_and(is_windows) {
            return Ok(true);
        }
    }
    let label = metadata.get("labels")?.get(OS_LABEL)?;
    let reported = status.at("guestOSInfo.id")?.text()?;
    Ok(label.text()?.is_some_and(is_windows) || reported == Some(WINDOWS_ID))
}

/// `windows10`, `windows.2k22.virtio`, `win10`, `win2k19`.
fn is_windows(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_word_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_lowercase());
    match (name.strip_prefix("windows"), name.strip_prefix("win")) {
        (Some(rest), _) => is_word_end(rest) || rest.starts_with("server"),
        (None, Some(rest)) => is_word_end(rest),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_windows;

    #[test]
    fn names_of_windows() {
        for name in [
            "windows",
            "windows10",
            "windows.11.virtio",
            "Windows-2022",
            "win10",
            "win2k22",
            "windowsserver2019",
        ] {
            assert!(is_windows(name), "{name}");
        }
        for name in ["", "ubuntu", "winter-linux", "rhel9", "debian-win", "twin10"] {
            assert!(!is_windows(name), "{name}");
        }
    }
}
