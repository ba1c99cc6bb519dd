//! `/api/v1/ca`: the fleet's authority. Only public data leaves the collector.

use axum::http::StatusCode;
use futures_util::future::BoxFuture;

use super::{
    error::ApiError,
    reply::Reply,
    route::{ApiRequest, json_body},
};
use crate::ca::{CaChangeError, CaService, CaStoreError, Rotation};

pub(super) fn status(request: &ApiRequest) -> Result<Reply, ApiError> {
    Reply::json(&service(request)?.status())
}

pub(super) fn client_roots(request: &ApiRequest) -> Result<Reply, ApiError> {
    Ok(Reply::pem(service(request)?.client_roots_pem()))
}

pub(super) fn rotate(request: ApiRequest) -> BoxFuture<'static, Result<Reply, ApiError>> {
    Box::pin(async move {
        let service = service(&request)?;
        let rotation: Rotation = json_body(&request.body)?;
        match service.rotate(rotation).await {
            Ok(status) => Reply::json(&status),
            Err(error) => Err(refused(&error)),
        }
    })
}

fn service(request: &ApiRequest) -> Result<&CaService, ApiError> {
    request.api.ca.as_ref().ok_or_else(|| {
        ApiError::not_found(
            "this collector has no authority",
            "set enrolment.trustDomain in its settings, and restart it",
        )
    })
}

fn refused(error: &CaChangeError) -> ApiError {
    match error {
        CaChangeError::NotLeading(lease) => ApiError::not_leading(lease),
        CaChangeError::Store(CaStoreError::Authority { source, .. }) => ApiError::new(
            StatusCode::CONFLICT,
            "ca_refused",
            source.to_string(),
            "virtfleetctl ca status shows the authority",
        ),
        other => {
            let mut message = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(next) = cause {
                message = format!("{message}: {next}");
                cause = next.source();
            }
            ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ca_unavailable",
                message,
                "try again; virtfleet-collector doctor checks the rights",
            )
        }
    }
}

#[cfg(test)]
#[path = "ca_tests.rs"]
mod tests;
