//! The ownership annotation: which labels we wrote, over what, and after which placement.
//!
//! It is stored on the Node itself, so it survives restarts and goes with the Node. Whoever may patch the Node may edit it, its
//! kubelet included: it says what may be taken back, and authorises nothing under `node-restriction.kubernetes.io` and no
//! protected key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::Uid;

/// The annotation on the user cluster's Node.
pub const ANNOTATION: &str = "virtfleet.io/owned-labels";

/// The version of the annotation's form that is written and read here.
const VERSION: u32 = 1;

/// What the annotation says, by label key.
pub type Owned = BTreeMap<String, OwnedLabel>;

/// One label that we wrote. `infra_node_uid` tells a changed label of the infra node from a move of the VM; it, `vmi_uid` and
/// `policy` are true of the moment of writing: a later move or policy that leads to the same value does not rewrite them, so
/// that a steady fleet sends nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedLabel {
    /// What we wrote; the label is ours only while it has this value.
    pub value: String,
    /// What others had there when we first wrote; written back when ours is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The policy asked for `FollowIfSafe`: ours is taken back only if that is safe, too, also when the policy is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_safe: bool,
    /// The infra node that the value came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_node_uid: Option<Uid>,
    /// The incarnation of the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmi_uid: Option<Uid>,
    /// The `LabelPropagation` that asked for it; several that agree are joined by `, `.
    pub policy: String,
}

#[derive(Serialize, Deserialize)]
struct Form {
    v: u32,
    labels: Owned,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Reads the annotation's text; none is nothing owned. Errors: why it cannot be read, and what to do.
pub fn read(text: Option<&str>) -> Result<Owned, String> {
    let Some(text) = text else {
        return Ok(Owned::new());
    };
    let broken = |why: String| {
        format!(
            "the annotation {ANNOTATION} cannot be read ({why}), so it is not known which labels are ours and nothing is \
             changed; delete the annotation to start anew"
        )
    };
    let Version { v } = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    if v != VERSION {
        return Err(broken(format!("version {v}, and {VERSION} is known here")));
    }
    let Form { labels, .. } = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    Ok(labels)
}

/// The annotation's text, the same for the same content; none when nothing is owned.
pub fn text(owned: &Owned) -> Option<String> {
    let form = Form {
        v: VERSION,
        labels: owned.clone(),
    };
    // Strings and maps with string keys: there is nothing in it that JSON cannot hold.
    serde_json::to_string(&form).ok().filter(|_| !owned.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_stable_and_comes_back() {
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
    fn what_cannot_be_read_is_an_error_that_says_what_to_do() {
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
