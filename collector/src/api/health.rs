//! `GET /healthz`, `GET /readyz`, and the text index at `/`.

use virtfleet_collector_core::findings::leaves_gaps;

use super::{
    error::ApiError,
    reply::Reply,
    router::Ask,
    routes::{ROUTES, Route},
};

/// The process serves requests: that is all there is to be alive.
#[expect(clippy::unnecessary_wraps, reason = "every handler has one shape")]
pub(super) fn alive(_: &Ask) -> Result<Reply, ApiError> {
    Ok(Reply::text("ok\n".to_owned()))
}

/// Ready once the inventory has been read completely: before that, every answer about the fleet would be wrong. Says what is
/// still waited for.
pub(super) fn ready(ask: &Ask) -> Result<Reply, ApiError> {
    if ask.snapshot.synced {
        Ok(Reply::text("ok\n".to_owned()))
    } else {
        let waits = ask.snapshot.findings.iter();
        let waits = waits.filter(|finding| leaves_gaps(&finding.id));
        let waits: Vec<_> = waits.map(|finding| finding.message.as_str()).collect();
        Err(ApiError::not_synced_because(&waits))
    }
}

/// What there is, for a person with a browser or curl.
#[expect(clippy::unnecessary_wraps, reason = "every handler has one shape")]
pub(super) fn index(_: &Ask) -> Result<Reply, ApiError> {
    let width = ROUTES.iter().map(|route| route.path.len()).max().unwrap_or(0);
    let title = format!("virtfleet-collector {}\n\n", env!("CARGO_PKG_VERSION"));
    let line = |route: &Route| format!("{:width$}  {}\n", route.path, route.summary);
    let text = title + &ROUTES.iter().map(line).collect::<String>();
    Ok(Reply::text(text))
}
