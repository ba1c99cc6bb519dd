//! Builds the access control from the settings.

use std::{path::Path, time::Instant};

use anyhow::Context as _;
use kube::Client;

use super::{AccessControl, AccessMetrics, Reviews, StaticTokens, keyed_hash};
use crate::config::ServerSettings;

/// The access control of a server. `infra` is the client of the infra cluster.
///
/// # Errors
/// A file that the settings name cannot be used, or there is no infra cluster to review tokens.
pub fn from_settings(
    server: &ServerSettings,
    infra: Option<Client>,
    metrics: AccessMetrics,
) -> anyhow::Result<AccessControl> {
    let settings = &server.access;
    if server.is_open() {
        return Ok(AccessControl::open());
    }
    let tokens = settings
        .tokens
        .as_ref()
        .map(|file| StaticTokens::open(Path::new(file), Instant::now()).context("server.access.tokens"));
    let reviews = settings.token_review.clone().map(|review| {
        let client = infra.context("server.access.tokenReview requires inventory.cluster")?;
        anyhow::Ok(Reviews::new(client, review, metrics.clone()))
    });
    let hash = settings.redact_infra.then(|| {
        let key = settings.redact_key.as_deref().map(Path::new);
        keyed_hash(key).context("server.access.redactKey")
    });
    AccessControl::new(
        settings,
        tokens.transpose()?,
        reviews.transpose()?,
        hash.transpose()?,
        metrics,
    )
    .context("server.access")
}
