//! `GET /healthz`, `GET /readyz`, and the text index at `/api`.

use virtfleet_collector_core::findings::leaves_gaps;

use super::{error::ApiError, reply::Reply, route::Route, router::ApiRequest};

/// Liveness: the process serves requests.
#[expect(clippy::unnecessary_wraps, reason = "all handlers have the same signature")]
pub(super) fn alive(_: &ApiRequest) -> Result<Reply, ApiError> {
    Ok(Reply::text("ok\n".to_owned()))
}

/// Readiness: the inventory has been read completely; before that, every response about the fleet
/// would be wrong. The error names the reasons.
pub(super) fn ready(request: &ApiRequest) -> Result<Reply, ApiError> {
    if request.snapshot.synced {
        Ok(Reply::text("ok\n".to_owned()))
    } else {
        let waits = request.snapshot.findings.iter();
        let waits = waits.filter(|finding| leaves_gaps(&finding.id));
        let waits: Vec<_> = waits.map(|finding| finding.message.as_str()).collect();
        Err(ApiError::not_synced_because(&waits))
    }
}

/// The list of paths, for curl.
#[expect(clippy::unnecessary_wraps, reason = "all handlers have the same signature")]
pub(super) fn index(request: &ApiRequest) -> Result<Reply, ApiError> {
    let width = request
        .routes
        .iter()
        .map(|route| route.path.len())
        .max()
        .unwrap_or(0);
    let title = format!("virtfleet-collector {}\n\n", env!("CARGO_PKG_VERSION"));
    let line = |route: &Route| format!("{:width$}  {}\n", route.path, route.summary);
    let text = title + &request.routes.iter().map(line).collect::<String>();
    Ok(Reply::text(text))
}
