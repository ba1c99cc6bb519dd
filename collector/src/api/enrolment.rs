//! `/api/v1/enrolments` and `POST /api/v1/vms/{namespace}/{name}/enrolment`.

use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    error::ApiError,
    paging,
    reply::Reply,
    route::{ApiRequest, json_body},
    vm,
};
use crate::enrolment::{AdminError, EnrolmentAction, EnrolmentAdmin, EnrolmentItem};

/// Body of `POST /api/v1/vms/{namespace}/{name}/enrolment`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrolmentChange {
    /// What to do.
    pub action: EnrolmentAction,
}

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let items = admin(request)?.list();
    let query = &request.query;
    let selected = |item: &EnrolmentItem| {
        query.admits("namespace", Some(item.namespace.as_str()))
            && query.admits("state", Some(item.enrolment.state.as_str()))
    };
    let list = paging::page(
        items.into_iter().filter(selected),
        |item| [item.namespace.as_str(), item.name.as_str()],
        query,
        &request.snapshot,
    )?;
    Reply::json(&list)
}

pub(super) fn change(request: ApiRequest) -> BoxFuture<'static, Result<Reply, ApiError>> {
    Box::pin(async move {
        let admin = admin(&request)?;
        let key = vm::key(&request)?;
        let body: EnrolmentChange = json_body(&request.body)?;
        match admin.act(&key, body.action).await {
            Ok(enrolment) => Reply::json(&EnrolmentItem {
                namespace: key.namespace,
                name: key.name,
                enrolment,
            }),
            Err(error) => Err(refused(admin, error)),
        }
    })
}

fn admin(request: &ApiRequest) -> Result<&EnrolmentAdmin, ApiError> {
    request.api.enrolment.as_deref().ok_or_else(|| {
        ApiError::not_found(
            "this collector issues no certificates to agents",
            "set enrolment.trustDomain in its settings, and restart it",
        )
    })
}

fn refused(admin: &EnrolmentAdmin, error: AdminError) -> ApiError {
    match error {
        AdminError::NotLeading => match admin.write_access().standby() {
            Some(lease) => ApiError::not_leading(&lease),
            None => unavailable("this collector has just become the leader or has just lost the Lease"),
        },
        AdminError::NotFound(message) => {
            ApiError::not_found(message, "/api/v1/enrolments lists the recorded keys")
        }
        AdminError::Failed(message) => unavailable(&message),
    }
}

fn unavailable(message: &str) -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "not_recorded",
        message,
        "try again; the collector's log has the reason",
    )
}
