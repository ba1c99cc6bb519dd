//! The HTTP service for the API server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use virtfleet_delivery::osc::{AgentItems, OscAction};
use virtfleet_runtime::{http::Limits, throttle::Throttle};

use super::{metrics::WebhookMetrics, review::review};

/// Maximum size of a request in bytes. The API server sends the old and the new object, each at
/// most 1.5 MiB in etcd.
pub(super) const MAX_BODY_BYTES: usize = 8 << 20;
/// Minimum time between two log lines about refused requests, which any client can send.
const REFUSED_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What a request needs.
#[derive(Debug)]
pub(super) struct Webhook {
    items: AgentItems,
    metrics: WebhookMetrics,
    refused_log: Throttle,
}

impl Webhook {
    pub(super) fn new(items: AgentItems, metrics: WebhookMetrics) -> Self {
        Self {
            items,
            metrics,
            refused_log: Throttle::new(REFUSED_LOG_INTERVAL),
        }
    }
}

/// Limits of the server. An API server keeps few connections, all from one address, and the webhook
/// configuration allows it to wait only seconds.
pub(super) fn limits() -> Limits {
    Limits {
        connections: 128,
        new_connections: 64,
        connections_per_peer: 128,
        requests: 16,
        request_timeout: Duration::from_secs(5),
        ..Limits::default()
    }
}

/// The routes for the API server.
pub(super) fn router(webhook: Webhook) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(Arc::new(webhook))
}

async fn mutate(State(webhook): State<Arc<Webhook>>, body: Result<Bytes, BytesRejection>) -> Response {
    let refuse = |status: StatusCode, reason: String| {
        webhook.metrics.malformed();
        if let Some(held) = webhook.refused_log.pass(Instant::now()) {
            tracing::warn!(reason, held, "refused a request");
        }
        (status, format!("{reason}\n")).into_response()
    };
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refuse(rejection.status(), rejection.body_text()),
    };
    let reviewed = match review(&body, &webhook.items) {
        Ok(reviewed) => reviewed,
        Err(reason) => return refuse(StatusCode::BAD_REQUEST, reason),
    };
    let (object, action) = (&reviewed.object, reviewed.action);
    webhook.metrics.answered(action);
    for warning in &reviewed.warnings {
        tracing::warn!(object, "{warning}");
    }
    if action == OscAction::Patched {
        tracing::info!(object, "patched");
    }
    Json(reviewed.body).into_response()
}
