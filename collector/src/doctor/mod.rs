//! `virtfleet-collector doctor`: everything that a person would check by hand, each line with the next command to type.
//!
//! ```text
//! settings ─▶ files (credentials) ─ folder | API server ─▶ rights, definitions, Lease ─ ports ─▶ CheckResult…
//! ```
//! It reads and asks; it changes nothing.

mod definitions;
mod port;
mod rights;
mod server;

use std::{fs, time::Duration};

use jiff::Timestamp;
pub use virtfleet_runtime::checks::{CheckResult, CheckStatus, any_failed, text};

use crate::{config::CollectorConfig, credentials};

/// Maximum time for all questions to the API server.
const ASKING: Duration = Duration::from_secs(20);

/// What `check-config` checks beyond the text of the settings: the files that they name.
pub async fn files(config: &CollectorConfig) -> Vec<CheckResult> {
    let mut lines = credentials::check(config, now());
    if config.inventory.cluster.is_some() {
        lines.extend(server::client(config).await.err());
    } else {
        lines.push(folder(&config.inventory.folder));
    }
    lines
}

/// All checks, in the order in which a person would make them. `file` is where the settings are.
pub async fn check(config: &CollectorConfig, file: &str) -> Vec<CheckResult> {
    let mut lines = vec![CheckResult::ok("settings", format!("{file}: every key is known"))];
    lines.extend(credentials::check(config, now()));
    if !config.scrape.tls.is_set() {
        lines.push(CheckResult::ok("scrape.tls", "not set: no agent is pulled"));
    }
    if config.inventory.cluster.is_some() {
        match server::client(config).await {
            Err(line) => lines.push(line),
            Ok(client) => {
                let asked = tokio::time::timeout(ASKING, server::check(config, &client)).await;
                lines.extend(asked.unwrap_or_else(|_| {
                    let detail = format!("not all answers within {} s", ASKING.as_secs());
                    vec![CheckResult::fail(
                        "API server",
                        detail,
                        "kubectl get --raw /readyz?verbose",
                    )]
                }));
            }
        }
    } else {
        lines.push(folder(&config.inventory.folder));
    }
    lines.push(port::check("server.address", &config.server.address));
    let probes = config.server.probe_address.as_deref();
    lines.extend(probes.map(|address| port::check("server.probeAddress", address)));
    lines
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
