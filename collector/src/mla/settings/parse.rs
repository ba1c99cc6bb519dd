//! Reads `spec.mla` of a UserCluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use virtfleet_wire::layered::{Expect, Fragment, Problem, load};

use crate::{bounded::bounded, objects::MlaSpec};

/// Maximum characters of the description of a problem.
const MAX_PROBLEM_CHARS: usize = 512;
/// Maximum number of problems that are named.
const MAX_NAMED: usize = 5;

const VERSION: &str = "v1";
const KIND: &str = "UserCluster";

/// What the loader of settings reads: it knows the nearest name for an unknown key.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct SpecDocument {
    api_version: String,
    kind: String,
    spec: SpecPart,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct SpecPart {
    mla: Option<MlaSpec>,
}

/// Parses `spec.mla`.
///
/// # Errors
/// The paths of unknown keys and of values of a wrong type; without the value of a header.
pub fn parse_spec(mla: &Value) -> Result<MlaSpec, String> {
    let document = json!({ "apiVersion": VERSION, "kind": KIND, "spec": { "mla": mla } });
    let fragment = Fragment {
        file: KIND.to_owned(),
        text: document.to_string(),
    };
    let expect = Expect {
        api_version: VERSION,
        kind: KIND,
    };
    let loaded = load::<SpecDocument>(&[fragment], expect, &[]);
    let problems: Vec<_> = loaded.problems.iter().take(MAX_NAMED).map(described).collect();
    match loaded.value.spec.mla {
        Some(spec) if problems.is_empty() => Ok(spec),
        _ if problems.is_empty() => Err("spec.mla: must be a mapping".to_owned()),
        _ => Err(bounded(&problems.join("; "), MAX_PROBLEM_CHARS)),
    }
}

fn described(problem: &Problem) -> String {
    // A value of a wrong type is quoted by serde.
    let message = if problem.path.contains(".headers[") && problem.nearest.is_none() {
        "unknown key, or a value that is not a string"
    } else {
        &problem.message
    };
    let nearest = problem.nearest.as_ref();
    let nearest = nearest.map_or(String::new(), |nearest| format!(" (did you mean {nearest}?)"));
    format!("{}: {message}{nearest}", problem.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_have_their_path_and_no_value_of_a_header() {
        let url = "https://a.example/push";
        let good =
            json!({ "remoteWrite": { "url": url, "headers": [{ "name": "X-A", "value": "s3cret" }] } });
        let spec = parse_spec(&good).unwrap();
        assert_eq!(spec.remote_write.timeout.to_string(), "30s");
        assert!(!format!("{spec:?}").contains("s3cret"));
        for (mla, expected) in [
            (json!({}), "spec.mla: missing field `remoteWrite`"),
            (json!(3), "spec.mla: "),
            (
                json!({ "remoteWrite": { "url": url }, "externalLabel": {} }),
                "spec.mla.externalLabel: unknown key (did you mean externalLabels?)",
            ),
            (
                json!({ "remoteWrite": { "url": url, "protocol": "V3" } }),
                "spec.mla.remoteWrite.protocol: unknown variant `V3`",
            ),
            (
                json!({ "remoteWrite": { "url": url, "headers": [{ "name": "X-A", "value": 83713 }] } }),
                "not a string",
            ),
            (
                json!({ "remoteWrite": { "url": url }, "limits": { "queueBytes": 5 } }),
                "spec.mla.limits.queueBytes: 5 is less than 1048576",
            ),
        ] {
            let error = parse_spec(&mla).unwrap_err();
            assert!(error.contains(expected), "{mla}: {error}");
            assert!(!error.contains("83713"), "{error}");
        }
    }
}
