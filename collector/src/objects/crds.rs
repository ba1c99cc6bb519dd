//! CustomResourceDefinitions of the project's objects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use virtfleet_wire::layered::to_yaml;

use super::{ClusterSource, GuestHealth, LabelPropagation, UserCluster};

pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        UserCluster::crd(),
        LabelPropagation::crd(),
        GuestHealth::crd(),
        ClusterSource::crd(),
    ]
}

fn values() -> Vec<Value> {
    let crds = crds();
    let values = crds.iter().filter_map(|crd| serde_json::to_value(crd).ok());
    values.map(with_single_line_descriptions).collect()
}

/// Joins the lines of descriptions: the docstrings are wrapped at the width of the source.
fn with_single_line_descriptions(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(text) if key == "description" => *text = text.replace('\n', " "),
                    _ => *value = with_single_line_descriptions(value.take()),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = with_single_line_descriptions(item.take());
            }
        }
        _ => {}
    }
    value
}

/// All definitions as one `List`, in JSON.
pub fn crds_json() -> String {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": values() });
    serde_json::to_string_pretty(&list).unwrap_or_default() + "\n"
}

/// All definitions as YAML documents.
pub fn crds_yaml() -> String {
    let documents = values();
    let documents = documents
        .iter()
        .map(|crd| format!("---\n{}", to_yaml(crd).trim_end()));
    documents.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To update: `virtfleet-collector crds >packaging/collector/crds/virtfleet.io.yaml`.
    #[test]
    fn the_packaged_definitions_are_current() {
        let packaged = include_str!("../../../packaging/collector/crds/virtfleet.io.yaml");
        assert_eq!(packaged, crds_yaml());
    }

    #[test]
    fn every_definition_is_structural_and_has_a_status() {
        for crd in values() {
            let name = crd["metadata"]["name"].as_str().unwrap();
            let version = &crd["spec"]["versions"][0];
            assert_eq!(version["subresources"]["status"], json!({}), "{name}");
            assert!(crd["spec"]["names"]["shortNames"][0].is_string(), "{name}");
            assert!(version["schema"].to_string().find("\"$ref\"").is_none(), "{name}");
        }
        assert_eq!(crds_json().matches("CustomResourceDefinition\"").count(), 4);
    }
}
