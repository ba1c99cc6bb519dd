//! A route of the API, and what its handler gets.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{Method, StatusCode},
};
use futures_util::future::BoxFuture;
use schemars::{Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use virtfleet_collector_core::view::FleetSnapshot;

use super::{ApiState, error::ApiError, param::Param, query::Query, reply::Reply};

/// One path with the method of its handler; GET includes HEAD.
pub(super) struct Route {
    /// The path; `{x}` is a parameter.
    pub(super) path: &'static str,
    /// Unique name of the operation.
    pub(super) id: &'static str,
    /// Description, one sentence.
    pub(super) summary: &'static str,
    /// Its query parameters.
    pub(super) params: &'static [&'static [Param]],
    /// Whether unknown parameters are an error. Scrapers and probes may add their own.
    pub(super) strict: bool,
    /// Type of the response.
    pub(super) body: Body,
    /// Error statuses of the route besides 400 and 500.
    pub(super) errors: &'static [u16],
    /// The handler.
    pub(super) answer: Handler,
}

/// Handler of a route.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// A function of the fleet's snapshot.
    Snapshot(fn(&ApiRequest) -> Result<Reply, ApiError>),
    /// Proxies the page of a VM's agent.
    Agent,
    /// Changes something; for POST.
    Change {
        /// Schema of the request's body.
        body: fn(&mut SchemaGenerator) -> Schema,
        /// The handler.
        run: fn(ApiRequest) -> BoxFuture<'static, Result<Reply, ApiError>>,
    },
}

/// Type of a response.
pub(super) enum Body {
    /// JSON with this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Text with this media type.
    Text(&'static str),
}

impl Route {
    /// The method.
    pub(super) fn method(&self) -> Method {
        match self.answer {
            Handler::Snapshot(_) | Handler::Agent => Method::GET,
            Handler::Change { .. } => Method::POST,
        }
    }

    /// Whether `path` is an instance of the route's path.
    pub(super) fn matches(&self, path: &str) -> bool {
        let (mut own, mut parts) = (self.path.split('/'), path.split('/'));
        loop {
            match (own.next(), parts.next()) {
                (None, None) => return true,
                (Some(own), Some(part)) if own == part || own.starts_with('{') => {}
                _ => return false,
            }
        }
    }

    /// Whether its response depends on the fleet's revision only, so that it has an `ETag` and
    /// supports long polls.
    pub(super) fn has_revision(&self) -> bool {
        self.params
            .iter()
            .copied()
            .flatten()
            .any(|param| param.name == "wait")
    }
}

/// The input of a handler.
pub(super) struct ApiRequest {
    pub(super) api: ApiState,
    /// The snapshot of the fleet for this response.
    pub(super) snapshot: Arc<FleetSnapshot>,
    pub(super) query: Query,
    pub(super) path: Vec<(String, String)>,
    /// The body of a POST; else empty.
    pub(super) body: Bytes,
    /// All routes of the API.
    pub(super) routes: &'static [Route],
}

impl ApiRequest {
    /// The decoded value of `{name}` in the route's path; empty if the path has no such part.
    pub(super) fn path(&self, name: &str) -> &str {
        self.path
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, value)| value)
    }
}

/// Parses the JSON body of a request.
pub(super) fn json_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "invalid_body",
            format!("the body cannot be used: {error}"),
            "send JSON as GET /api/v1/openapi.json describes it",
        )
    })
}
