//! `virtfleet-collector doctor`: checks settings, files, API server and ports; each result has the
//! next command to run.
//!
//! ```text
//! settings ─▶ files (credentials) ─ folder | API server ─▶ rights, definitions, Lease ─ ports ─▶ CheckResult…
//! ```
//! It only reads; it changes nothing.

mod access;
mod authority;
mod caller;
mod definitions;
mod features;
mod ingest;
mod installation;
mod mla;
mod monitoring;
mod node_conditions;
mod port;
mod prometheus;
mod rights;
mod server;
mod user_clusters;
mod versions;
mod workload;

use std::{fs, time::Duration};

pub use caller::{CallerToken, CallerWay};
pub use installation::{Installation, installation};
use jiff::Timestamp;
pub(crate) use user_clusters::severity_of;
pub(crate) use versions::{OWN, compare, is_newer};
pub use virtfleet_runtime::checks::{CheckResult, CheckStatus, any_failed, text};
pub use workload::Workload;

use virtfleet_runtime::process::raise_file_limit;

use crate::{config::CollectorConfig, credentials, open_files::max_agents};

/// What the check of the limit on open files is called.
const OPEN_FILES: &str = "open files";
/// A limit that allows fewer agents is reported.
const MIN_AGENTS: u64 = 1000;
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
    results.extend(mla::check(config, now()));
    results.extend(prometheus::files(config, now()).await);
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
    results.extend(mla::check(config, now()));
    results.extend(prometheus::check(config, now()).await);
    results.push(open_files());
    results.push(port::check("server.address", &config.server.address));
    let probes = config.server.probe_address.as_deref();
    results.extend(probes.map(|address| port::check("server.probeAddress", address)));
    results.extend(ingest::check(config, raise_file_limit().ok()));
    results
}

/// The limit of this process, which is that of the collector if both are started in the same way.
fn open_files() -> CheckResult {
    match raise_file_limit() {
        Ok(limit) => file_limit(limit),
        Err(error) => {
            let detail = format!("the limit cannot be raised: {error}");
            CheckResult::warn(OPEN_FILES, detail, "ulimit -Hn")
        }
    }
}

fn file_limit(limit: u64) -> CheckResult {
    let agents = max_agents(limit);
    let detail = format!("the limit of {limit} is enough for {agents} agents");
    if agents < MIN_AGENTS {
        CheckResult::warn(
            OPEN_FILES,
            detail,
            "raise LimitNOFILE= of the unit, or the limit of the container runtime",
        )
    } else {
        CheckResult::ok(OPEN_FILES, detail)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_on_open_files_is_a_warning() {
        let low = file_limit(1024);
        assert_eq!(
            (low.status, low.detail.as_str()),
            (CheckStatus::Warn, "the limit of 1024 is enough for 0 agents")
        );
        let usual = file_limit(524_288);
        assert_eq!(
            (usual.status, usual.detail.as_str()),
            (CheckStatus::Ok, "the limit of 524288 is enough for 523136 agents")
        );
    }
}
