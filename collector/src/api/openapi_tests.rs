//! Tests of the OpenAPI document: complete, consistent, and valid for the actual responses.

use std::collections::BTreeSet;

use axum::{body::Body as HttpBody, body::to_bytes, http::Request};
use tower::ServiceExt as _;

use super::{super::routes::ROUTES, *};
use crate::api::{self, testing};

/// Every `$ref` in the document.
fn refs(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            if let Some(Value::String(target)) = entries.get("$ref") {
                found.insert(target.clone());
            }
            entries.values().for_each(|value| refs(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| refs(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_resolves() {
    let document = document(ROUTES);
    let mut found = BTreeSet::new();
    refs(&document, &mut found);
    assert!(found.len() > 10, "{found:?}");
    for target in found {
        let pointer = target
            .strip_prefix('#')
            .unwrap_or_else(|| panic!("{target} is not local"));
        assert!(document.pointer(pointer).is_some(), "{target} names nothing");
    }
}

/// OpenAPI 3.1, sections "Paths Object", "Operation Object", "Parameter Object", "Responses
/// Object", "Components Object".
#[test]
fn the_structure_follows_openapi_3_1() {
    let document = document(ROUTES);
    assert_eq!(document["openapi"], "3.1.0");
    for field in ["/info/title", "/info/version"] {
        assert!(document.pointer(field).unwrap().is_string(), "{field}");
    }
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        assert!(path.starts_with('/'));
        let operation = item.as_object().unwrap().values().next().unwrap();
        assert!(
            ids.insert(operation["operationId"].as_str().unwrap()),
            "{path}: id occurs twice"
        );
        let mut names = BTreeSet::new();
        for parameter in operation["parameters"].as_array().unwrap() {
            let (name, place) = (
                parameter["name"].as_str().unwrap(),
                parameter["in"].as_str().unwrap(),
            );
            assert!(names.insert((place, name)), "{path}: {name} occurs twice");
            assert!(parameter["schema"].is_object() && parameter["description"].is_string());
            assert!(place == "query" || (place == "path" && parameter["required"] == true));
        }
        let templated: BTreeSet<_> = path
            .split(['{', '}'])
            .skip(1)
            .step_by(2)
            .map(|name| ("path", name))
            .collect();
        let declared: BTreeSet<_> = names.into_iter().filter(|(place, _)| *place == "path").collect();
        assert_eq!(templated, declared, "{path}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(status == "default" || status.parse::<u16>().is_ok());
            assert!(
                response["description"].is_string() || response["$ref"].is_string(),
                "{path} {status}"
            );
        }
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in schemas.keys() {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        assert!(name.bytes().all(plain), "{name:?} is not a component name");
    }
}

#[tokio::test]
async fn responses_of_all_paths_match_their_schemas() {
    let document = document(ROUTES);
    let router = api::router(testing::state(testing::TestFleet::new(testing::fleet())));
    for (path, item) in document["paths"].as_object().unwrap() {
        if item["get"].is_null() {
            // `ca_tests` sends it.
            continue;
        }
        let name = if path.starts_with("/api/v1/hosts/") {
            "infra-1"
        } else {
            "worker-0"
        };
        let uri = path
            .replace("{namespace}", "cluster-a")
            .replace("{name}", name)
            .replace("{file}", "app.js");
        let request = Request::get(&uri).body(HttpBody::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        if path.starts_with("/vm/") || path.ends_with("/history") {
            // The test API has no agent and no Prometheus; the scenarios `prometheus` and `history`
            // have.
            assert_eq!(response.status(), 503, "{uri}");
            continue;
        }
        assert_eq!(response.status(), 200, "{uri}");
        let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        let content = item["get"]["responses"]["200"]["content"].as_object().unwrap();
        let declared = content
            .get(&media_type)
            .unwrap_or_else(|| panic!("{uri} answers {media_type}, which is not declared"));
        if media_type != "application/json" {
            continue;
        }
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let mut schema = declared["schema"].clone();
        schema["components"] = document["components"].clone();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let errors: Vec<_> = validator
            .iter_errors(&body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{uri}: {errors:#?}");
    }
}

#[test]
fn every_route_is_in_the_document() {
    let document = document(ROUTES);
    let paths: Vec<_> = document["paths"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut routes: Vec<_> = ROUTES.iter().map(|route| route.path).collect();
    routes.sort_unstable();
    // A path may have several methods.
    routes.dedup();
    assert_eq!(paths, routes);
    for route in ROUTES {
        let method = route.method().as_str().to_ascii_lowercase();
        assert_eq!(document["paths"][route.path][&method]["operationId"], route.id);
    }
}

#[test]
fn every_path_and_parameter_is_in_the_manual() {
    let manual = include_str!("../../../docs/api.md");
    for route in ROUTES {
        let row = manual
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` ", route.path)));
        assert!(row.is_some(), "{} has no row in docs/api.md", route.path);
        for param in route.params.iter().copied().flatten() {
            let shared = ["limit", "continue", "wait", "timeout"].contains(&param.name);
            let place = if shared { manual } else { row.unwrap() };
            let named = [format!("`{}`", param.name), format!("`{}=", param.name)];
            assert!(
                named.iter().any(|name| place.contains(name)),
                "{} of {} is not in docs/api.md",
                param.name,
                route.path
            );
        }
    }
}
