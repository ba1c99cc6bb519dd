//! SMBIOS strings as `/sys/class/dmi/id` shows them, without the words that firmware writes when it has nothing to say.

use virtfleet_wire::ids::{Uuid, VmKey};

/// The most characters of a string that are taken: SMBIOS strings are short, and a guest's owner may set some of them.
const MAX_CHARS: usize = 256;

/// Words that stand for "nothing", in lower case: QEMU, SeaBIOS, EDK II and board makers leave these.
const NOTHING: [&str; 12] = [
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

/// A DMI string as a value; none when it is empty, or a placeholder such as `None` or `To be filled by O.E.M.`.
pub fn clean(text: &str) -> Option<String> {
    let text: String = text
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_CHARS)
        .collect();
    let lower = text.to_lowercase();
    let nothing = lower.is_empty()
        || NOTHING.contains(&lower.as_str())
        || lower.starts_with("to be filled")
        || lower.chars().all(|c| matches!(c, '0' | '-' | '.' | ' '));
    (!nothing).then_some(text)
}

/// A system UUID in the form that Kubernetes prints: 8-4-4-4-12 lower-case hexadecimal digits. The all-zero and all-one
/// UUIDs mean "not set" (SMBIOS 3.x, 7.2.1) and are none.
pub fn uuid(text: &str) -> Option<String> {
    let uuid: Uuid = text.trim().parse().ok()?;
    (!uuid.is_placeholder()).then(|| uuid.to_string())
}

/// The VM that a chassis asset tag of the form `namespace/name` names.
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
    fn placeholders_are_nothing() {
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
    fn an_asset_tag_names_a_vm_only_in_its_form() {
        let key = vm_of_asset_tag("cluster-a/worker-0").unwrap();
        assert_eq!(key.to_string(), "cluster-a/worker-0");
        for bad in ["", "worker-0", "/worker-0", "a/", "a/b/c", "A/b", "rack 7/slot 3"] {
            assert!(vm_of_asset_tag(bad).is_none(), "{bad}");
        }
    }
}
