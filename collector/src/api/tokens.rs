//! `/api/v1/tokens`: join tokens of agents that only connect. A token's text is in the answer to
//! its creation, and nowhere else.

use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::join_token::JoinTokenId;

use super::{
    error::ApiError,
    paging,
    reply::Reply,
    route::{ApiRequest, json_body},
};
use crate::tokens::{JoinTokenBook, JoinTokenView, TokenCreation, TokenError};

/// Body of `POST /api/v1/tokens/{id}/revoke`: an empty object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRevocation {}

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let book = book(request)?;
    let items = book.list().map_err(|error| refused(book, error))?;
    let query = &request.query;
    let selected = |item: &JoinTokenView| query.admits("cluster", Some(item.cluster.as_str()));
    let list = paging::page(
        items.into_iter().filter(selected),
        |item| [item.id.as_str()],
        query,
        &request.snapshot,
    )?;
    Reply::json(&list)
}

pub(super) fn create(request: ApiRequest) -> BoxFuture<'static, Result<Reply, ApiError>> {
    Box::pin(async move {
        let book = book(&request)?;
        let creation: TokenCreation = json_body(&request.body)?;
        let mut clusters = request.whole.clusters.iter();
        if !clusters.any(|cluster| cluster.known && cluster.name == creation.cluster) {
            return Err(ApiError::not_found(
                format!("there is no UserCluster {}", creation.cluster),
                "/api/v1/clusters lists them",
            ));
        }
        let created = book.create(creation, now()).await;
        Reply::json(&created.map_err(|error| refused(book, error))?)
    })
}

pub(super) fn revoke(request: ApiRequest) -> BoxFuture<'static, Result<Reply, ApiError>> {
    Box::pin(async move {
        let book = book(&request)?;
        let _: TokenRevocation = json_body(&request.body)?;
        let id: JoinTokenId = request
            .path("id")
            .parse()
            .map_err(|error| ApiError::invalid(format!("{error}"), "/api/v1/tokens lists the ids"))?;
        let revoked = book.revoke(&id).await;
        Reply::json(&revoked.map_err(|error| refused(book, error))?)
    })
}

fn book(request: &ApiRequest) -> Result<&JoinTokenBook, ApiError> {
    request.api.tokens.as_deref().ok_or_else(|| {
        ApiError::not_found(
            "this collector enrols no agents that connect to it",
            "set enrolment and ingest in its settings, and restart it",
        )
    })
}

fn refused(book: &JoinTokenBook, error: TokenError) -> ApiError {
    let unavailable = |message: String| {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_recorded",
            message,
            "try again; the collector's log has the reason",
        )
    };
    match error {
        TokenError::NotLeading => match book.write_access().standby() {
            Some(lease) => ApiError::not_leading(&lease),
            None => {
                unavailable("this collector has just become the leader or has just lost the Lease".to_owned())
            }
        },
        TokenError::NotFound(message) => ApiError::not_found(message, "/api/v1/tokens lists the ids"),
        TokenError::Invalid(message) => ApiError::invalid(message, "correct the request"),
        TokenError::Failed(message) => unavailable(message),
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}
