//! A route of the API, and what its handler gets.

use std::sync::Arc;

use schemars::{Schema, SchemaGenerator};
use virtfleet_collector_core::view::FleetSnapshot;

use super::{ApiState, error::ApiError, param::Param, query::Query, reply::Reply};

/// One path, for GET and HEAD.
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
}

/// Type of a response.
pub(super) enum Body {
    /// JSON with this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Text with this media type.
    Text(&'static str),
}

impl Route {
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
