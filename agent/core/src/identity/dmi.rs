//! SMBIOS strings from `/sys/class/dmi/id`, without the placeholders of firmware.

use virtfleet_wire::ids::{Uuid, VmKey};

/// Maximum length of a string in characters: SMBIOS strings are short, and users can set some of
/// them.
const MAX_CHARS: usize = 256;

/// Placeholders for "not set" in lower case, from QEMU, SeaBIOS, EDK II and board vendors.
const PLACEHOLDERS: [&str; 12] = [
    "none",
    "not specified",
    "not available",
    "not applicable",
    "n/a",
    "default string",
    "unknown",
    "empty",
    "o.e.m.",
    "oem",
    "no asset tag",
    "system serial number",
];

/// Returns a DMI string; `None` if it is empty or a placeholder such as `None` or `To be filled by
/// O.E.M.`.
pub fn clean(text: &str) -> Option<String> {
    let text: String = text
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_CHARS)
        .collect();
    let lower = text.to_lowercase();
    let nothing = lower.is_empty()
        || PLACEHOLDERS.contains(&lower.as_str())
        || lower.starts_with("to be filled")
        || lower.chars().all(|c| matches!(c, '0' | '-' | '.' | ' '));
    (!nothing).then_some(text)
}

/// Returns a system UUID in the format of Kubernetes: 8-4-4-4-12 lower-case hexadecimal digits. The
/// all-zero and all-one UUIDs mean "not set" (SMBIOS 3.x, 7.2.1) and yield `None`.
pub fn uuid(text: &str) -> Option<String> {
    let uuid: Uuid = text.trim().parse().ok()?;
    (!uuid.is_placeholder()).then(|| uuid.to_string())
}

/// Returns the VM in a chassis asset tag of the form `namespace/name`.
pub fn vm_of_asset_tag(tag: &str) -> Option<VmKey> {
    let (namespace, name) = tag.split_once('/')?;
    Some(VmKey {
        namespace: namespace.parse().ok()?,
        name: name.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_yield_none() {
        for text in [
            "",
            "\n",
            "None\n",
            "Not Specified",
            "To Be Filled By O.E.M.",
            "0000",
            " n/a ",
            "Default string",
        ] {
            assert_eq!(clean(text), None, "{text:?}");
        }
        assert_eq!(clean("KubeVirt\n").as_deref(), Some("KubeVirt"));
        assert_eq!(clean("a\u{1b}[31mb").as_deref(), Some("a[31mb"));
        assert_eq!(clean(&"x".repeat(1000)).map(|text| text.len()), Some(256));
    }

    #[test]
    fn uuids_are_canonical() {
        let good = "5d307ca9-b3ef-428c-8861-06e72d69f223";
        assert_eq!(uuid(&format!("{}\n", good.to_uppercase())).as_deref(), Some(good));
        for bad in [
            "",
            "None",
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "5d307ca9-b3ef-428c-8861-06e72d69f22g",
            "5d307ca9-b3ef-428c-8861-06e72d69f223-1",
        ] {
            assert_eq!(uuid(bad), None, "{bad}");
        }
    }

    #[test]
    fn asset_tag_must_be_namespace_and_name() {
        let key = vm_of_asset_tag("cluster-a/worker-0").unwrap();
        assert_eq!(key.to_string(), "cluster-a/worker-0");
        for bad in ["", "worker-0", "/worker-0", "a/", "a/b/c", "A/b", "rack 7/slot 3"] {
            assert!(vm_of_asset_tag(bad).is_none(), "{bad}");
        }
    }
}
