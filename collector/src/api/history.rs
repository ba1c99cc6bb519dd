//! `GET /api/v1/vms/{namespace}/{name}/history`: CPU use and pressure over hours or days.

use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use virtfleet_collector_core::{
    longer_history::{HistoryRange, LongerHistoryView},
    pull_result::UnixMs,
};

use super::{error::ApiError, query::nearest, reply::Reply, router::ApiRequest, vm};
use crate::history::HistoryError;

pub(super) fn history(request: &ApiRequest) -> BoxFuture<'_, Result<Reply, ApiError>> {
    Box::pin(async {
        let key = vm::key(request)?;
        let range = range(request)?;
        let Some(detail) = request.api.fleet.detail(&key) else {
            return Err(vm::missing(request, &key));
        };
        let Some(reader) = &request.api.histories else {
            return Err(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no_history",
                "this collector has no Prometheus to read histories from",
                "set prometheus in the collector's settings; the details of the VM have the last hour",
            ));
        };
        // An earlier VM of this name may have been another tenant's.
        let unknown = if request.tenant.is_some() { UnixMs::MAX } else { 0 };
        let created_ms = detail.created_ms.unwrap_or(unknown);
        let read = reader.read(range, &key, created_ms).await;
        let usage = read.map_err(|error| refused(request, error))?;
        Reply::json(&LongerHistoryView {
            created_ms: detail.created_ms,
            usage,
        })
    })
}

fn range(request: &ApiRequest) -> Result<HistoryRange, ApiError> {
    let text = request.query.text("range").unwrap_or("24h");
    text.parse().map_err(|()| {
        let all = HistoryRange::ALL.map(HistoryRange::as_str);
        let meant = nearest(text, all.into_iter());
        ApiError::invalid(
            format!("the parameter \"range\": {text:?} is none of {}", all.join(", ")),
            meant.map_or_else(|| "use 24h".to_owned(), |meant| format!("did you mean {meant}?")),
        )
    })
}

/// The error of a history. Tenants do not see which server there is, and what it said.
fn refused(request: &ApiRequest, error: HistoryError) -> ApiError {
    let remedy = match request.tenant {
        None => "check `prometheus` in the collector's settings, and the server: virtfleet-collector doctor",
        Some(_) => "try again later, or ask the admin of the infra cluster",
    };
    match error {
        HistoryError::Busy => ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too many histories are being read",
            "try again in a few seconds",
        ),
        HistoryError::Timeout(limit) => ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "history_failed",
            format!("the collector's Prometheus did not answer within {limit:?}"),
            remedy,
        ),
        HistoryError::Failed(why) => {
            let message = match request.tenant {
                None => format!("the collector's Prometheus: {why}"),
                Some(_) => "the collector's Prometheus gave no history".to_owned(),
            };
            ApiError::new(StatusCode::BAD_GATEWAY, "history_failed", message, remedy)
        }
    }
}
