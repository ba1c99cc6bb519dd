//! The ownership annotation: which labels the collector wrote, over which values, and for which
//! placement.
//!
//! It is stored on the Node, so it survives restarts of the collector and is removed with the Node.
//! Everyone who may patch the Node may edit it, its kubelet included. It determines what may be
//! reverted, and authorises nothing under `node-restriction.kubernetes.io` or for protected keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::Uid;

/// The annotation on the user cluster's Node.
pub const ANNOTATION: &str = "virtfleet.io/owned-labels";

/// AnnotationVersion of the annotation's format.
const VERSION: u32 = 1;

/// Content of the annotation, by label key.
pub type Owned = BTreeMap<String, OwnedLabel>;

/// One label that the collector wrote. `infra_node_uid` distinguishes a changed label of the infra
/// node from a migration of the VM. `infra_node_uid`, `vmi_uid` and `policy` are those at the time
/// of writing: a later migration or policy that leads to the same value does not rewrite them, so
/// that a steady fleet sends no requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedLabel {
    /// The written value; the collector owns the label only while it has this value.
    pub value: String,
    /// The value of another writer before the first write; restored when the label is reverted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The policy had `FollowIfSafe`: the label is reverted only if that is safe, even if the
    /// policy is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_safe: bool,
    /// The infra node of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_node_uid: Option<Uid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmi_uid: Option<Uid>,
    /// The `LabelPropagation` that selected it; several that agree are joined by `, `.
    pub policy: String,
}

#[derive(Serialize, Deserialize)]
struct AnnotationFormat {
    v: u32,
    labels: Owned,
}

#[derive(Deserialize)]
struct AnnotationVersion {
    v: u32,
}

/// Reads the annotation's text; without text nothing is owned.
///
/// # Errors
/// Why it cannot be read, and what to do.
pub fn read(text: Option<&str>) -> Result<Owned, String> {
    let Some(text) = text else {
        return Ok(Owned::new());
    };
    let broken = |why: String| {
        format!(
            "the annotation {ANNOTATION} cannot be read ({why}), so it is unknown which labels virtfleet wrote, and nothing is \
             changed; delete the annotation to start without any"
        )
    };
    let AnnotationVersion { v } = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    if v != VERSION {
        return Err(broken(format!(
            "version {v}; this collector reads version {VERSION}"
        )));
    }
    let AnnotationFormat { labels, .. } =
        serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    Ok(labels)
}

/// The annotation's text, equal for equal content; none if nothing is owned.
pub fn text(owned: &Owned) -> Option<String> {
    let form = AnnotationFormat {
        v: VERSION,
        labels: owned.clone(),
    };
    // Only strings and maps with string keys, which JSON can always represent.
    serde_json::to_string(&form).ok().filter(|_| !owned.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_stable_and_round_trips() {
        let entry = |previous: Option<&str>| OwnedLabel {
            value: "b".into(),
            previous: previous.map(str::to_owned),
            if_safe: previous.is_some(),
            infra_node_uid: Some("n".parse().unwrap()),
            vmi_uid: None,
            policy: "p".into(),
        };
        let owned = Owned::from([("z".into(), entry(None)), ("a".into(), entry(Some("")))]);
        let written = text(&owned).unwrap();
        assert_eq!(
            written,
            r#"{"v":1,"labels":{"a":{"value":"b","previous":"","ifSafe":true,"infraNodeUid":"n","policy":"p"},"z":{"value":"b","infraNodeUid":"n","policy":"p"}}}"#
        );
        assert_eq!(read(Some(&written)).unwrap(), owned);
        assert_eq!(text(&Owned::new()), None);
        assert_eq!(read(None).unwrap(), Owned::new());
    }

    #[test]
    fn unreadable_annotations_are_errors_with_a_remedy() {
        for text in [
            "",
            "{",
            "[]",
            r#"{"labels":{}}"#,
            r#"{"v":2,"labels":[]}"#,
            r#"{"v":1,"labels":{"a":"b"}}"#,
        ] {
            let message = read(Some(text)).unwrap_err();
            assert!(message.contains("delete the annotation"), "{message}");
        }
        let newer = read(Some(r#"{"v":2,"labels":[]}"#)).unwrap_err();
        assert!(newer.contains("version 2"), "{newer}");
    }
}
