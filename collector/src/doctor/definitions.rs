//! Checks that the packaged CustomResourceDefinitions are installed and that their published
//! schemas (`/openapi/v3`, which every authenticated account may read) have each field of this
//! version.

use kube::Client;
use serde_json::Value;

use super::{CheckResult, CheckStatus};
use crate::objects;

/// Maximum missing fields that a result names.
const MAX_NAMED: usize = 5;

/// A failure for each definition that is absent, a result with the status `lacking` for each that
/// lacks fields, or one result if there is none. A collector of this version needs each field: the
/// API server drops the others.
pub(super) async fn check(client: &Client, lacking: CheckStatus) -> Vec<CheckResult> {
    const NEXT: &str = "virtfleet-collector crds | kubectl apply --server-side -f -";
    let request = http::Request::get("/openapi/v3/apis/virtfleet.io/v1alpha1").body(Vec::new());
    let Ok(request) = request else { return Vec::new() };
    let published: Value = match client.request(request).await {
        Ok(published) => published,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return vec![CheckResult::fail(
                "definitions",
                "virtfleet.io/v1alpha1 is not installed",
                NEXT,
            )];
        }
        Err(error) => {
            let next = "kubectl get --raw /openapi/v3/apis/virtfleet.io/v1alpha1";
            return vec![CheckResult::warn(
                "definitions",
                format!("cannot be read: {error}"),
                next,
            )];
        }
    };
    let mut results = Vec::new();
    for ours in objects::crds() {
        let kind = &ours.spec.names.kind;
        let what = format!("definition {kind}");
        let expected = ours
            .spec
            .versions
            .iter()
            .find_map(|version| version.schema.as_ref());
        let expected = expected.and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok());
        let (Some(expected), Some(found)) = (expected, schema_of(&published, kind)) else {
            results.push(CheckResult::fail(&what, "is not installed", NEXT));
            continue;
        };
        let mut missing = Vec::new();
        missing_fields(&expected, found, "", &mut missing);
        if !missing.is_empty() {
            let more = if missing.len() > MAX_NAMED { ", …" } else { "" };
            missing.truncate(MAX_NAMED);
            let detail = format!("is of another version: it has no {}{more}", missing.join(", "));
            results.push(CheckResult::new(lacking, &what, detail, NEXT));
        }
    }
    if results.is_empty() {
        results.push(CheckResult::ok(
            "definitions",
            "virtfleet.io/v1alpha1 is installed, with every field of this version",
        ));
    }
    results
}

fn schema_of<'a>(published: &'a Value, kind: &str) -> Option<&'a Value> {
    let schemas = published["components"]["schemas"].as_object()?.values();
    let mut of_kind = schemas.filter(|schema| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|one| one["kind"] == kind))
    });
    of_kind.next()
}

/// Collects the paths of the fields that `expected` has and `found` lacks.
fn missing_fields(expected: &Value, found: &Value, path: &str, missing: &mut Vec<String>) {
    for (name, schema) in expected["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match found["properties"].get(name) {
            None => missing.push(path),
            Some(found) => missing_fields(schema, found, &path, missing),
        }
    }
    if expected["items"].is_object() {
        missing_fields(&expected["items"], &found["items"], &format!("{path}[]"), missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_fields_are_named_with_their_path() {
        let expected = json!({"properties": {"spec": {"properties": {
            "a": {}, "b": {"items": {"properties": {"c": {}, "d": {}}}}}}}});
        let found =
            json!({"properties": {"spec": {"properties": {"b": {"items": {"properties": {"d": {}}}}}}}});
        let mut missing = Vec::new();
        missing_fields(&expected, &found, "", &mut missing);
        assert_eq!(missing, ["spec.a", "spec.b[].c"]);
    }
}
