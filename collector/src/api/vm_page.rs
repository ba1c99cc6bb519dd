//! `GET /vm/{namespace}/{name}/metrics`: a guest's metrics page, fetched, verified and limited by
//! the collector.

use axum::{
    body::Body,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use virtfleet_collector_core::pull_result::FailureClass;
use virtfleet_wire::exposition;

use super::{error::ApiError, router::ApiRequest, vm};
use crate::scrape::PageError;

pub(super) async fn page(request: &ApiRequest) -> Result<Response, ApiError> {
    let key = vm::key(request)?;
    if !request.snapshot.vms.contains_key(&key) {
        return Err(vm::missing(request, &key));
    }
    let Some(pages) = &request.api.pages else {
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_scraping",
            "this collector pulls no agents",
            "set enrolment or scrape.tls in its settings",
        ));
    };
    match pages.page(&key).await {
        Ok(page) => Ok((
            [(CONTENT_TYPE, exposition::CONTENT_TYPE)],
            Body::from_stream(page),
        )
            .into_response()),
        Err(PageError::Busy(vm)) => Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "agent_busy",
            format!(
                "the agent of {vm} has connected to this collector, and a pull or another page uses its only connection"
            ),
            "try again, and read each page from one place only",
        )),
        Err(PageError::Agent(failure)) => {
            let failure = request.visible_failure(failure);
            let status = match failure.class {
                FailureClass::NoAddress | FailureClass::NotAllowed => StatusCode::SERVICE_UNAVAILABLE,
                FailureClass::Timeout => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            };
            let message = format!("{}: {}", failure.class.as_str(), failure.message());
            Err(ApiError::new(
                status,
                "agent_failed",
                message,
                "`virtfleetctl vm` shows the state of its agent",
            ))
        }
    }
}
