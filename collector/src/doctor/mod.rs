//! `virtfleet-collector doctor`: checks settings, files, API server and ports; each result has the
//! next command to run.
//!
//! ```text
//! settings ─▶ files (credentials) ─ folder | API server ─▶ rights, definitions, Lease ─ ports ─▶ CheckResult…
//! ```
//! It only reads; it changes nothing.

mod access;
mod authority;
mod definitions;
mod port;
mod rights;
mod server;

use std::{fs, time::Duration};

use jiff::Timestamp;
pub use virtfleet_runtime::checks::{CheckResult, CheckStatus, any_failed, text};

use crate::{config::CollectorConfig, credentials};

/// Maximum time for all requests to the API server.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(20);

/// The checks of `check-config` beyond the text of the settings: the files that the settings name.
pub async fn files(config: &CollectorConfig) -> Vec<CheckResult> {
    let mut results = credentials::check(config, now());
    results.extend(access::check(&config.server));
    if config.inventory.cluster.is_some() {
        results.extend(server::client(config).await.err());
    } else {
        results.push(folder(&config.inventory.folder));
    }
    results.extend(authority::folder(config, now()).await);
    results
}

/// All checks, in the order of diagnosis. `file` is the path of the settings.
pub async fn check(config: &CollectorConfig, file: &str) -> Vec<CheckResult> {
    let mut results = vec![CheckResult::ok("settings", format!("{file}: all keys are valid"))];
    results.extend(credentials::check(config, now()));
    results.extend(access::check(&config.server));
    if !config.scrape.tls.is_set() {
        let detail = if config.enrolment.is_some() {
            "not set: only enrolled agents are pulled"
        } else {
            "not set: no agent is pulled"
        };
        results.push(CheckResult::ok("scrape.tls", detail));
    }
    results.extend(authority::folder(config, now()).await);
    if config.inventory.cluster.is_some() {
        match server::client(config).await {
            Err(result) => results.push(result),
            Ok(client) => {
                let checked =
                    tokio::time::timeout(API_SERVER_TIMEOUT, server::check(config, &client, now())).await;
                results.extend(checked.unwrap_or_else(|_| {
                    let detail = format!(
                        "not all checks finished within {} s",
                        API_SERVER_TIMEOUT.as_secs()
                    );
                    vec![CheckResult::fail(
                        "API server",
                        detail,
                        "kubectl get --raw /readyz?verbose",
                    )]
                }));
            }
        }
    } else {
        results.push(folder(&config.inventory.folder));
    }
    results.push(port::check("server.address", &config.server.address));
    let probes = config.server.probe_address.as_deref();
    results.extend(probes.map(|address| port::check("server.probeAddress", address)));
    results
}

fn folder(path: &str) -> CheckResult {
    const WHAT: &str = "inventory.folder";
    let next = format!("ls -ld {path} {path}/infra {path}/clusters");
    match fs::read_dir(path) {
        Err(error) => CheckResult::fail(WHAT, format!("{path} cannot be listed: {error}"), next),
        Ok(_) => match fs::read_dir(format!("{path}/infra")) {
            Err(error) => CheckResult::warn(
                WHAT,
                format!("{path}/infra cannot be listed: {error}; no VM is known"),
                next,
            ),
            Ok(entries) => CheckResult::ok(WHAT, format!("{path}: {} entries in infra/", entries.count())),
        },
    }
}

fn now() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap_or_default()
}
