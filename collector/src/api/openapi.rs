//! `GET /api/v1/openapi.json`: the OpenAPI 3.1 document, generated from the table of routes and the
//! schemas of the types.

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

use super::{
    REVISION_HEADER,
    error::{ApiError, ErrorBody},
    reply::Reply,
    route::{Body, Handler, Route},
    router::ApiRequest,
};

pub(super) fn answer(request: &ApiRequest) -> Result<Reply, ApiError> {
    Reply::json(&document(request.routes))
}

/// The schema of the document itself.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

/// The document. OpenAPI 3.1 uses JSON Schema 2020-12; only the location of the definitions
/// differs.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let error = generator.subschema_for::<ErrorBody>();
    let mut paths = Map::new();
    for route in routes {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method().as_str().to_ascii_lowercase()] = operation(route, &mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "virtfleet-collector",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "VMs joined with their infra nodes and user clusters. GET changes nothing.",
            "license": { "name": "Apache License 2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        // Any of these; on loopback none may be required.
        "security": [{ "token": [] }, { "certificate": [] }, {}],
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "certificate": { "type": "mutualTLS" },
            },
            "schemas": generator.take_definitions(true),
            "responses": {
                "Error": {
                    "description": "The error, and what to do next.",
                    "content": { "application/json": { "schema": error } },
                },
            },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let (media_type, schema) = match route.body {
        Body::Json(schema) => ("application/json", schema(generator).to_value()),
        Body::Text(media_type) => (media_type, json!({ "type": "string" })),
    };
    let mut done = json!({
        "description": route.summary,
        "content": { media_type: { "schema": schema } },
    });
    let mut responses = Map::new();
    if route.has_revision() {
        done["headers"] = json!({
            REVISION_HEADER: {
                "description": "The fleet's revision; pass it as `wait` to wait for the next one.",
                "schema": { "type": "integer", "minimum": 0 },
            },
            "etag": { "description": "For If-None-Match.", "schema": { "type": "string" } },
        });
        let unchanged =
            json!({ "description": "Nothing has changed since the response that If-None-Match names." });
        responses.insert("304".to_owned(), unchanged);
    }
    responses.insert("200".to_owned(), done);
    let error = || json!({ "$ref": "#/components/responses/Error" });
    for status in route.errors {
        responses.insert(status.to_string(), error());
    }
    responses.insert("default".to_owned(), error());
    let query = route.params.iter().copied().flatten();
    let params: Vec<Value> = path_params(route.path)
        .map(|name| {
            json!({
                "name": name, "in": "path", "required": true,
                "description": path_param_text(name), "schema": { "type": "string" },
            })
        })
        .chain(query.map(super::param::Param::openapi))
        .collect();
    let mut operation = json!({
        "operationId": route.id, "summary": route.summary, "parameters": params, "responses": responses,
    });
    if let Handler::Change { body, .. } = route.answer {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": body(generator).to_value() } },
        });
    }
    operation
}

fn path_param_text(name: &str) -> String {
    match name {
        "id" => "The join token's id.".to_owned(),
        "file" => "The file's name.".to_owned(),
        _ => format!("The VM's {name}."),
    }
}

/// The names in `{…}`.
fn path_params(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
