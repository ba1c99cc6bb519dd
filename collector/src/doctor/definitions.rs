//! Whether the definitions of our objects are installed, and are those of this version: their published schemas
//! (`/openapi/v3`, which every authenticated account may read) have each field that ours have.

use kube::Client;
use serde_json::Value;

use super::CheckResult;
use crate::objects;

/// Fields that a line names.
const MAX_NAMED: usize = 5;

/// One line for each definition that is absent or lacks fields, or one for all.
pub(super) async fn check(client: &Client) -> Vec<CheckResult> {
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
    let mut lines = Vec::new();
    for ours in objects::crds() {
        let kind = &ours.spec.names.kind;
        let what = format!("definition {kind}");
        let wanted = ours
            .spec
            .versions
            .iter()
            .find_map(|version| version.schema.as_ref());
        let wanted = wanted.and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok());
        let (Some(wanted), Some(found)) = (wanted, schema_of(&published, kind)) else {
            lines.push(CheckResult::fail(&what, "is not installed", NEXT));
            continue;
        };
        let mut missing = Vec::new();
        lacking(&wanted, found, "", &mut missing);
        if !missing.is_empty() {
            let more = if missing.len() > MAX_NAMED { ", …" } else { "" };
            missing.truncate(MAX_NAMED);
            let detail = format!("is of another version: it has no {}{more}", missing.join(", "));
            lines.push(CheckResult::warn(&what, detail, NEXT));
        }
    }
    if lines.is_empty() {
        lines.push(CheckResult::ok(
            "definitions",
            "virtfleet.io/v1alpha1 is installed, with every field of this version",
        ));
    }
    lines
}

/// The published schema of a kind.
fn schema_of<'a>(published: &'a Value, kind: &str) -> Option<&'a Value> {
    let schemas = published["components"]["schemas"].as_object()?.values();
    let mut of_kind = schemas.filter(|schema| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|one| one["kind"] == kind))
    });
    of_kind.next()
}

/// Paths of the fields that `wanted` has and `found` lacks.
fn lacking(wanted: &Value, found: &Value, path: &str, missing: &mut Vec<String>) {
    for (name, schema) in wanted["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match found["properties"].get(name) {
            None => missing.push(path),
            Some(found) => lacking(schema, found, &path, missing),
        }
    }
    if wanted["items"].is_object() {
        lacking(&wanted["items"], &found["items"], &format!("{path}[]"), missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_are_not_published_are_named_with_their_path() {
        let wanted = json!({"properties": {"spec": {"properties": {
            "a": {}, "b": {"items": {"properties": {"c": {}, "d": {}}}}}}}});
        let found =
            json!({"properties": {"spec": {"properties": {"b": {"items": {"properties": {"d": {}}}}}}}});
        let mut missing = Vec::new();
        lacking(&wanted, &found, "", &mut missing);
        assert_eq!(missing, ["spec.a", "spec.b[].c"]);
    }
}
