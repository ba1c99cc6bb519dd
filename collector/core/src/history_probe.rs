//! What a server must have for [longer histories](crate::longer_history): the queries that count
//! the series of all VMs, and what the server says about itself.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::longer_history::{RATE_SECONDS, quoted};

/// A series of which each VM with an agent has one, for one column of a history or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbedSeries {
    pub name: &'static str,
    /// The matchers that leave one of each VM.
    matchers: &'static str,
}

/// CPU time: one mode of one CPU stands for all.
pub const CPU_SERIES: ProbedSeries = ProbedSeries {
    name: "node_cpu_seconds_total",
    matchers: r#"mode="idle",cpu="0""#,
};

/// Pressure of CPU, memory and I/O.
pub const PRESSURE_SERIES: [ProbedSeries; 3] = [
    pressure("node_pressure_cpu_waiting_seconds_total"),
    pressure("node_pressure_memory_waiting_seconds_total"),
    pressure("node_pressure_io_waiting_seconds_total"),
];

const fn pressure(name: &'static str) -> ProbedSeries {
    ProbedSeries { name, matchers: "" }
}

/// Which labels the counted series must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeLabels {
    /// `namespace`, `name` and those of the settings, as the query of a history.
    All,
    /// `namespace` and `name`.
    Vm,
    Any,
}

impl ProbedSeries {
    /// PromQL that counts its series. `labels` are those of the settings.
    pub fn count(self, which: ProbeLabels, labels: &BTreeMap<String, String>) -> String {
        format!("count({})", self.selector(which, labels))
    }

    /// PromQL that counts those that have a rate.
    pub fn count_rates(self, labels: &BTreeMap<String, String>) -> String {
        let selector = self.selector(ProbeLabels::All, labels);
        format!("count(rate({selector}[{RATE_SECONDS}s]))")
    }

    fn selector(self, which: ProbeLabels, labels: &BTreeMap<String, String>) -> String {
        let mut matchers: Vec<String> = Vec::new();
        if which != ProbeLabels::Any {
            matchers.extend([r#"namespace!="""#, r#"name!="""#].map(str::to_owned));
        }
        matchers.extend(Some(self.matchers.to_owned()).filter(|one| !one.is_empty()));
        if which == ProbeLabels::All {
            let own = labels
                .iter()
                .map(|(name, value)| format!("{name}={}", quoted(value)));
            matchers.extend(own);
        }
        match matchers.as_slice() {
            [] => self.name.to_owned(),
            all => format!("{}{{{}}}", self.name, all.join(",")),
        }
    }
}

/// An answer of `/api/v1/query`, in the format of Prometheus' documentation, "HTTP API".
#[derive(Deserialize)]
struct InstantAnswer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<InstantData>,
}

#[derive(Deserialize)]
struct InstantData {
    result: Vec<InstantResult>,
}

#[derive(Deserialize)]
struct InstantResult {
    value: (f64, String),
}

/// Reads the answer to a query that counts; no series is zero.
///
/// # Errors
/// The server's own message, or what is wrong with the body.
pub fn parse_count(body: &[u8]) -> Result<u64, String> {
    let answer: InstantAnswer = serde_json::from_slice(body)
        .map_err(|error| format!("the answer is none of Prometheus' query API: {error}"))?;
    let data = match answer.data {
        Some(data) if answer.status == "success" => data,
        _ if answer.error.is_empty() => return Err("the answer has no data".to_owned()),
        _ => return Err(answer.error),
    };
    match data.result.as_slice() {
        [] => Ok(0),
        [InstantResult { value: (_, count) }] => {
            count.parse().map_err(|_| format!("{count:?} is not a count"))
        }
        several => Err(format!("{} series instead of one", several.len())),
    }
}

/// How long a server keeps samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// As the server says it, e.g. `15d or 50GB`.
    pub text: String,
    /// The limit by age in seconds; none if only the size limits it.
    pub seconds: Option<u64>,
}

/// `data.storageRetention` of `/api/v1/status/runtimeinfo`; none if the server does not say it, as
/// servers that only have Prometheus' query API.
pub fn parse_retention(body: &[u8]) -> Option<Retention> {
    #[derive(Deserialize)]
    struct Answer {
        data: RuntimeInfo,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RuntimeInfo {
        storage_retention: String,
    }
    let answer: Answer = serde_json::from_slice(body).ok()?;
    let text = answer.data.storage_retention.trim().to_owned();
    let seconds = text.split(" or ").find_map(prometheus_duration);
    (!text.is_empty()).then_some(Retention { text, seconds })
}

/// A duration of Prometheus in seconds: numbers with the units `y`, `w`, `d`, `h`, `m`, `s`, `ms`
/// (Prometheus' documentation, "Configuration").
fn prometheus_duration(text: &str) -> Option<u64> {
    let (mut sum_ms, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ms: u64 = match &rest[..end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        rest = &rest[end..];
        sum_ms = sum_ms.checked_add(number.checked_mul(unit_ms)?)?;
    }
    (!text.is_empty()).then_some(sum_ms / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_count_one_series_of_each_vm_and_quote_labels() {
        let labels = [("infra_cluster".to_owned(), "a\"} or b".to_owned())].into();
        assert_eq!(
            CPU_SERIES.count(ProbeLabels::All, &labels),
            r#"count(node_cpu_seconds_total{namespace!="",name!="",mode="idle",cpu="0",infra_cluster="a\"} or b"})"#
        );
        let io = PRESSURE_SERIES[2];
        assert_eq!(
            io.count(ProbeLabels::Vm, &labels),
            r#"count(node_pressure_io_waiting_seconds_total{namespace!="",name!=""})"#
        );
        assert_eq!(
            io.count(ProbeLabels::Any, &labels),
            "count(node_pressure_io_waiting_seconds_total)"
        );
        assert_eq!(
            CPU_SERIES.count_rates(&BTreeMap::new()),
            r#"count(rate(node_cpu_seconds_total{namespace!="",name!="",mode="idle",cpu="0"}[300s]))"#
        );
    }

    #[test]
    fn counts_are_read_and_no_series_is_zero() {
        let of = |result: &str| {
            let body =
                format!(r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}"#);
            parse_count(body.as_bytes())
        };
        assert_eq!(of("[]"), Ok(0));
        assert_eq!(of(r#"[{"metric":{},"value":[1.5,"42"]}]"#), Ok(42));
        for (body, why) in [
            (
                r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
                "parse error",
            ),
            (r#"{"status":"error"}"#, "the answer has no data"),
            ("<html>", "the answer is none of Prometheus' query API"),
            (
                r#"{"status":"success","data":{"result":[{"value":[1,"NaN"]}]}}"#,
                "\"NaN\" is not a count",
            ),
            (
                r#"{"status":"success","data":{"result":[{"value":[1,"1"]},{"value":[1,"1"]}]}}"#,
                "2 series instead of one",
            ),
        ] {
            let error = parse_count(body.as_bytes()).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn the_retention_is_read_where_a_server_says_it() {
        const DAY: u64 = 86_400;
        for (text, seconds) in [
            ("15d", Some(15 * DAY)),
            ("1w2d or 50GB", Some(9 * DAY)),
            ("1y", Some(365 * DAY)),
            ("1d12h", Some(DAY + 12 * 3600)),
            ("50GB", None),
            ("soon", None),
            ("7", None),
        ] {
            let body = format!(r#"{{"status":"success","data":{{"storageRetention":"{text}"}}}}"#);
            let found = parse_retention(body.as_bytes()).unwrap();
            assert_eq!((found.text.as_str(), found.seconds), (text, seconds));
        }
        for body in [
            "",
            "404 page not found",
            r#"{"status":"success","data":{"storageRetention":""}}"#,
        ] {
            assert_eq!(parse_retention(body.as_bytes()), None, "{body}");
        }
    }
}
