//! `/healthz`, `/readyz` and `/metrics` of a small program, over HTTP.

use std::{path::Path, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use virtfleet_runtime::process::append_process_metrics;
use virtfleet_wire::exposition::{self, Page, append_openmetrics};

/// The router of the probe port. The program is ready as soon as it listens.
pub(crate) fn router(registry: Registry) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(registry))
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    match page(&registry) {
        Ok(page) => ([(CONTENT_TYPE, exposition::CONTENT_TYPE)], page.to_text()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
    }
}

fn page(registry: &Registry) -> Result<Page, String> {
    let mut text = String::new();
    let failed = |error: &dyn std::fmt::Display| format!("the metrics cannot be encoded: {error}\n");
    encode(&mut text, registry).map_err(|error| failed(&error))?;
    let mut page = Page::new();
    append_openmetrics(&mut page, &text).map_err(|(_, error)| failed(&error))?;
    append_process_metrics(&mut page, Path::new("/proc"));
    Ok(page)
}
