//! Checks the server of `prometheus`: its files, whether it answers and accepts the credentials,
//! which series it has, and how long it keeps them.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use http::StatusCode;
use tokio::time::timeout;
use virtfleet_collector_core::{
    history_probe::{
        CPU_SERIES, PRESSURE_SERIES, ProbeLabels, ProbedSeries, Retention, parse_count, parse_retention,
    },
    longer_history::HistoryRange,
};

use super::{CheckResult, CheckStatus};
use crate::{
    config::{CollectorConfig, PrometheusSettings},
    credentials::pem_file,
    history::client::{PrometheusClient, query_parameter},
};

const FILES: &str = "prometheus";
const SERVER: &str = "prometheus server";
const SERIES: &str = "prometheus series";
const RETENTION: &str = "prometheus retention";
/// Where a server says how long it keeps samples. Only Prometheus has it.
const RUNTIME_INFO: &str = "/api/v1/status/runtimeinfo";
/// How the metrics of guests get into the server.
const SCRAPE: &str = "scrape the guests, docs/operating.md#prometheus, or send them with mla.fleet.guests";

/// Results for the files that `prometheus` names. `now` is in seconds since 1970.
pub(super) async fn files(config: &CollectorConfig, now: u64) -> Vec<CheckResult> {
    let Some(settings) = &config.prometheus else {
        return vec![not_set()];
    };
    connect(settings, now).await.0
}

/// Results for `prometheus`, also of its server.
pub(super) async fn check(config: &CollectorConfig, now: u64) -> Vec<CheckResult> {
    let Some(settings) = &config.prometheus else {
        return vec![not_set()];
    };
    let (mut results, client) = connect(settings, now).await;
    if let Some(client) = client {
        results.extend(ServerCheck { client, settings }.run().await);
    }
    results
}

fn not_set() -> CheckResult {
    CheckResult::ok(FILES, "not set: histories of VMs end after an hour")
}

/// Results for the files, and a client if all of them can be used.
async fn connect(settings: &PrometheusSettings, now: u64) -> (Vec<CheckResult>, Option<PrometheusClient>) {
    let tls = &settings.tls;
    let pem = [
        ("prometheus.tls.ca", &tls.ca, false),
        ("prometheus.tls.certificate", &tls.certificate, false),
        ("prometheus.tls.key", &tls.key, true),
    ];
    let set = pem
        .iter()
        .filter_map(|(key, path, is_key)| Some((*key, path.as_deref()?, *is_key)));
    let mut results: Vec<CheckResult> = set
        .map(|(key, path, is_key)| pem_file(key, path, is_key, now))
        .collect();
    if results.iter().any(|result| result.status == CheckStatus::Fail) {
        return (results, None);
    }
    match PrometheusClient::connect(settings.clone()).await {
        Ok(client) => {
            results.push(CheckResult::ok(FILES, "its files can be used"));
            (results, Some(client))
        }
        Err(why) => {
            let auth = [&settings.auth.password_file, &settings.auth.token_file];
            let headers = settings.headers.iter().map(|header| &header.file);
            let paths: Vec<&str> = auth
                .into_iter()
                .chain(headers)
                .flatten()
                .map(String::as_str)
                .collect();
            let next = if paths.is_empty() {
                "virtfleet-collector check-config".to_owned()
            } else {
                format!("ls -l {}", paths.join(" "))
            };
            results.push(CheckResult::fail(FILES, why, next));
            (results, None)
        }
    }
}

struct ServerCheck<'settings> {
    client: PrometheusClient,
    settings: &'settings PrometheusSettings,
}

impl ServerCheck<'_> {
    async fn run(&self) -> Vec<CheckResult> {
        let vms = match self.answers().await {
            Ok(vms) => vms,
            Err(failed) => return vec![failed],
        };
        let url = &self.settings.url;
        vec![
            CheckResult::ok(SERVER, format!("{url} answers queries")),
            self.series(vms).await,
            self.retention().await,
        ]
    }

    fn labels(&self) -> &BTreeMap<String, String> {
        &self.settings.labels
    }

    fn limit(&self) -> Duration {
        self.settings.timeout.0
    }

    /// The number of VMs with CPU time, or what is wrong with the server or the credentials.
    async fn answers(&self) -> Result<u64, CheckResult> {
        let url = self.settings.url.trim_end_matches('/');
        let query = CPU_SERIES.count(ProbeLabels::All, self.labels());
        let path = format!("/api/v1/query?{}", query_parameter(&query));
        let curl = format!("curl -v '{url}/api/v1/query?query=1'");
        let failed = |detail: String, next: String| CheckResult::fail(SERVER, detail, next);
        let response = match timeout(self.limit(), self.client.get(&path)).await {
            Ok(Ok(response)) => response,
            Ok(Err(why)) => {
                let next =
                    format!("{curl}; if that works, prometheus.tls and NetworkPolicies of the collector");
                return Err(failed(format!("{url} does not answer: {why}"), next));
            }
            Err(_) => {
                let detail = format!("{url} does not answer within {}", self.settings.timeout);
                return Err(failed(
                    detail,
                    format!("{curl}; NetworkPolicies; prometheus.timeout"),
                ));
            }
        };
        response.read(parse_count).map_err(|why| match response.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => failed(
                format!("{url} refuses the credentials: {why}"),
                "correct prometheus.auth, prometheus.headers or prometheus.tls.certificate".to_owned(),
            ),
            _ => failed(
                format!("{url} gives no result for {query}: {why}"),
                format!("{curl}; prometheus.url ends before /api/v1"),
            ),
        })
    }

    async fn count(&self, query: &str) -> Result<u64, String> {
        let path = format!("/api/v1/query?{}", query_parameter(query));
        let response = timeout(self.limit(), self.client.get(&path)).await;
        let response = response.map_err(|_| format!("no answer within {}", self.settings.timeout))?;
        response?.read(parse_count)
    }

    /// Whether the series of histories are there; `vms` have CPU time.
    async fn series(&self, vms: u64) -> CheckResult {
        let checked = if vms == 0 {
            self.without_cpu().await
        } else {
            self.with_cpu(vms).await
        };
        checked.unwrap_or_else(|why| {
            let detail = format!("a query failed: {why}");
            CheckResult::warn(SERIES, detail, "the log of the server; prometheus.timeout")
        })
    }

    /// No VM has CPU time: what is there instead.
    async fn without_cpu(&self) -> Result<CheckResult, String> {
        let (name, query) = (CPU_SERIES.name, CPU_SERIES.count(ProbeLabels::All, self.labels()));
        let count = |which| {
            let query = CPU_SERIES.count(which, self.labels());
            async move { self.count(&query).await }
        };
        let nothing = format!("{query} finds nothing of the last five minutes");
        if !self.labels().is_empty() {
            let vms = count(ProbeLabels::Vm).await?;
            if vms > 0 {
                let detail = format!("{nothing}; without prometheus.labels it finds {vms} VMs");
                let next =
                    format!("correct prometheus.labels; {name}{{name!=\"\"}} on the server shows the labels");
                return Ok(CheckResult::warn(SERIES, detail, next));
            }
        }
        let series = count(ProbeLabels::Any).await?;
        Ok(if series > 0 {
            let detail = format!("{nothing}: {name} is there, and has not the labels namespace and name");
            CheckResult::warn(SERIES, detail, SCRAPE)
        } else {
            CheckResult::warn(SERIES, format!("{nothing}: there is no {name} at all"), SCRAPE)
        })
    }

    /// `vms` have CPU time: whether it has a rate, and whether they have pressure.
    async fn with_cpu(&self, vms: u64) -> Result<CheckResult, String> {
        let name = CPU_SERIES.name;
        let rates = self.count(&CPU_SERIES.count_rates(self.labels())).await?;
        if rates == 0 {
            let detail = format!("{vms} VMs have {name}, and none has two samples within five minutes");
            let next = "lower scrape_interval of the guests' job to two minutes or less";
            return Ok(CheckResult::warn(SERIES, detail, next));
        }
        let counts = PRESSURE_SERIES.map(|series| async move {
            let query = series.count(ProbeLabels::All, self.labels());
            (series, self.count(&query).await)
        });
        let mut missing = Vec::new();
        for (series, count) in join_all(counts).await {
            if count? == 0 {
                missing.push(series);
            }
        }
        Ok(if missing.is_empty() {
            CheckResult::ok(
                SERIES,
                format!("{vms} VMs have {name}, and there is pressure of all kinds"),
            )
        } else {
            let names: Vec<&str> = missing.iter().map(|series: &ProbedSeries| series.name).collect();
            let detail = format!("{vms} VMs have {name}, and none has {}", names.join(", "));
            let next = "in a guest: ls /proc/pressure; if it is there, the relabelling of the guests' job";
            CheckResult::warn(SERIES, detail, next)
        })
    }

    async fn retention(&self) -> CheckResult {
        let response = timeout(self.limit(), self.client.get(RUNTIME_INFO)).await;
        let retention = response.ok().and_then(Result::ok);
        retention_result(retention.and_then(|response| parse_retention(&response.body)))
    }
}

fn retention_result(retention: Option<Retention>) -> CheckResult {
    let days = HistoryRange::Week.seconds() / 86_400;
    match retention {
        None => CheckResult::ok(
            RETENTION,
            format!("not known: the server has no {RUNTIME_INFO}; histories go back {days} days"),
        ),
        Some(Retention { text, seconds: None }) => {
            CheckResult::ok(RETENTION, format!("{text}: whether {days} days fit is not known"))
        }
        Some(Retention {
            text,
            seconds: Some(seconds),
        }) if seconds < HistoryRange::Week.seconds() => CheckResult::warn(
            RETENTION,
            format!("{text}: histories of {days} days end there"),
            format!("start the server with --storage.tsdb.retention.time={days}d or more"),
        ),
        Some(Retention { text, .. }) => CheckResult::ok(RETENTION, text),
    }
}

#[cfg(test)]
mod tests;
