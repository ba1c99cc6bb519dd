//! `GET /metrics`: the collector's own metrics.

use prometheus_client::encoding::text::encode;
use virtfleet_runtime::process::append_process_metrics;
use virtfleet_wire::exposition::{Page, append_openmetrics};

use super::{error::ApiError, reply::Reply, router::ApiRequest};

pub(super) fn page(request: &ApiRequest) -> Result<Reply, ApiError> {
    let mut text = String::new();
    encode(&mut text, &request.api.registry).map_err(|error| {
        ApiError::internal(format!("the collector's own metrics cannot be encoded: {error}"))
    })?;
    let mut page = Page::new();
    append_openmetrics(&mut page, &text).map_err(|(line, error)| {
        ApiError::internal(format!("the collector's own metrics, line {line}: {error}"))
    })?;
    append_process_metrics(&mut page, &request.api.procfs);
    Ok(Reply::page(&page))
}
