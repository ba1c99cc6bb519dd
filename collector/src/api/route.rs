//! A route of the API, and what its handler gets.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    body::Bytes,
    http::{Method, StatusCode},
};
use futures_util::future::BoxFuture;
use schemars::{Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use virtfleet_collector_core::{labels::plan::Decision, pull_result::Failure, view::FleetSnapshot};
use virtfleet_wire::ids::Namespace;

use super::{ApiState, error::ApiError, param::Param, query::Query, reply::Reply};
use crate::{
    access::{AccessNeed, TenantView, WriteResource},
    labels::Drift,
};

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
    /// Who may send it.
    pub(super) access: RouteAccess,
    /// Error statuses of the route besides 400, 401, 403, 500 and 503.
    pub(super) errors: &'static [u16],
    pub(super) answer: Handler,
}

/// Who may send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteAccess {
    /// Every client, without authentication: the answer has no data of the fleet.
    Public,
    /// Every authenticated caller: the answer is the same for all.
    Caller,
    /// Every caller that may see a part of the fleet: the answer has that part.
    Fleet,
    /// Callers that may see the whole fleet.
    WholeFleet,
    /// The same; the answer depends on what only the leader may know.
    Infra,
    /// Callers that may change such objects.
    Change(WriteResource),
}

impl RouteAccess {
    /// What a request needs; `namespaces` are those that it names.
    pub(super) fn need(self, namespaces: impl FnOnce() -> BTreeSet<Namespace>) -> AccessNeed {
        match self {
            Self::Public => AccessNeed::Nothing,
            Self::Caller => AccessNeed::Caller,
            Self::Fleet => AccessNeed::Read {
                namespaces: namespaces(),
            },
            Self::WholeFleet | Self::Infra => AccessNeed::ReadAll,
            Self::Change(resource) => AccessNeed::Write(resource),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// A function of the fleet's snapshot.
    Snapshot(fn(&ApiRequest) -> Result<Reply, ApiError>),
    /// A function of the snapshot and of state whose changes the fleet's revision does not count.
    /// The revision of its reply is a hash of the reply.
    Live(fn(&ApiRequest) -> Result<Reply, ApiError>),
    /// Reads from API servers for each answer, which has no revision.
    Read(for<'a> fn(&'a ApiRequest) -> BoxFuture<'a, Result<Reply, ApiError>>),
    /// Proxies the page of a VM's agent.
    Agent,
    /// Sends changes of the fleet until the client leaves.
    Watch,
    WebFile,
    /// Changes something; for POST.
    Change {
        /// Schema of the request's body.
        body: fn(&mut SchemaGenerator) -> Schema,
        /// Makes the change and returns the reply.
        run: fn(ApiRequest) -> BoxFuture<'static, Result<Reply, ApiError>>,
    },
}

/// Type of a response.
pub(super) enum Body {
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Text with this media type.
    Text(&'static str),
}

impl Route {
    pub(super) fn method(&self) -> Method {
        match self.answer {
            Handler::Snapshot(_)
            | Handler::Live(_)
            | Handler::Read(_)
            | Handler::Agent
            | Handler::Watch
            | Handler::WebFile => Method::GET,
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

    /// Whether its response has a revision, so that it has an `ETag` and supports long polls.
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
    /// Its `fleet` is what the caller may see.
    pub(super) api: ApiState,
    /// The snapshot of what the caller may see, for this response.
    pub(super) snapshot: Arc<FleetSnapshot>,
    /// The snapshot of the whole fleet: for decisions that depend on others, never for an answer.
    pub(super) whole: Arc<FleetSnapshot>,
    /// What the caller may see; none: everything.
    pub(super) tenant: Option<Arc<TenantView>>,
    pub(super) query: Arc<Query>,
    pub(super) path: Vec<(String, String)>,
    /// The body of a POST; else empty.
    pub(super) body: Bytes,
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

    /// Decisions of the label writer about a Node with the ownership annotation `owned`, and the
    /// error of its last write, as the caller may see them.
    pub(super) fn visible_decisions(
        &self,
        decisions: Vec<Decision>,
        error: Option<String>,
        owned: Option<&str>,
    ) -> (Vec<Decision>, Option<String>) {
        match self.tenant.as_ref().and_then(|tenant| tenant.redactor()) {
            None => (decisions, error),
            Some(redactor) => {
                let decisions = decisions.into_iter();
                let decisions = decisions.map(|decision| redactor.decision(decision, owned));
                (decisions.collect(), error.map(|error| redactor.text(&error)))
            }
        }
    }

    /// The part of a count of labels that the caller may see.
    pub(super) fn visible_drift(&self, mut drift: Drift) -> Drift {
        if self.tenant.is_some() {
            let known = self.snapshot.clusters.iter().filter(|cluster| cluster.known);
            let visible: BTreeSet<_> = known.map(|cluster| &cluster.name).collect();
            drift.retain(|(cluster, ..), _| visible.contains(cluster));
        }
        drift
    }

    /// A failed pull as the caller may see it.
    pub(super) fn visible_failure(&self, failure: Failure) -> Failure {
        match &self.tenant {
            None => failure,
            Some(tenant) => tenant.failure(failure),
        }
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
