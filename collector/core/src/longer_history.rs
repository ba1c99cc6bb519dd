//! History of a VM's CPU use and pressure that is longer than the collector's memory, from a server
//! with the query API of Prometheus: which queries to send, and what their answers say.
//!
//! The shares are those of [`GuestUsage`](crate::usage::GuestUsage). Each point is the largest
//! share within its step, as in [`usage_history`](crate::usage_history).

use std::{collections::BTreeMap, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::VmKey;

use crate::{pull_result::UnixMs, usage::Share, usage_history::UsageHistoryView};

/// Points of each range.
pub const LONGER_HISTORY_POINTS: u64 = 120;
/// Time over which a rate is computed, in seconds: five scrapes of Prometheus' default interval.
pub const RATE_SECONDS: u64 = 300;

/// How far back a history goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HistoryRange {
    /// Six hours.
    #[serde(rename = "6h")]
    SixHours,
    /// A day.
    #[serde(rename = "24h")]
    Day,
    /// A week.
    #[serde(rename = "7d")]
    Week,
}

impl HistoryRange {
    /// All ranges, the shortest first.
    pub const ALL: [Self; 3] = [Self::SixHours, Self::Day, Self::Week];

    /// As in the query parameter: `6h`, `24h`, `7d`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SixHours => "6h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    pub fn seconds(self) -> u64 {
        let hours = match self {
            Self::SixHours => 6,
            Self::Day => 24,
            Self::Week => 7 * 24,
        };
        hours * 3600
    }

    /// Time of one point in seconds.
    fn step_seconds(self) -> u64 {
        self.seconds() / LONGER_HISTORY_POINTS
    }

    /// Interval at which the rate is computed within a step, in seconds.
    fn resolution_seconds(self) -> u64 {
        match self {
            Self::SixHours | Self::Day => 60,
            // The rate's own time: nothing between two of them is missed.
            Self::Week => RATE_SECONDS,
        }
    }
}

impl FromStr for HistoryRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|range| range.as_str() == text).ok_or(())
    }
}

/// A history, and from when on the VM can have one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LongerHistoryView {
    /// When the VM was created: what is earlier is null. None if its manifest does not say; then a
    /// tenant's history is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms: Option<UnixMs>,
    /// The points.
    #[serde(flatten)]
    pub usage: UsageHistoryView,
}

/// The columns of a history, in the order of [`HistoryPlan::queries`].
const COLUMNS: usize = 5;

/// What to ask for, and how to read the answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPlan {
    /// PromQL for `query` of `/api/v1/query_range`: steal, CPU in use, pressure of CPU, memory and
    /// I/O. Each answer has at most one series.
    pub queries: [String; COLUMNS],
    /// Time of the first point, in seconds since 1970: `start`.
    pub start: u64,
    /// Time of the last point, in seconds since 1970: `end`.
    pub end: u64,
    /// `step`, in seconds.
    pub step: u64,
    /// Points whose time began earlier are not of this VM.
    created: u64,
}

impl HistoryPlan {
    /// The plan for a VM. `labels` are further labels that its series have in Prometheus. Points
    /// before `created_ms` are left out: a VM that had the same name before may have been another
    /// tenant's.
    pub fn new(
        range: HistoryRange,
        vm: &VmKey,
        labels: &BTreeMap<String, String>,
        created_ms: UnixMs,
        now_ms: UnixMs,
    ) -> Self {
        let step = range.step_seconds();
        let end = now_ms / 1000;
        let (cpu, window) = ("node_cpu_seconds_total", format!("[{RATE_SECONDS}s]"));
        let series = |name: &str, mode: &str| {
            let mut selector = format!(
                "{name}{{namespace={},name={}{mode}",
                quoted(vm.namespace.as_str()),
                quoted(vm.name.as_str())
            );
            for (label, value) in labels {
                selector.extend([",", label, "=", &quoted(value)]);
            }
            format!("rate({selector}}}{window})")
        };
        let part = |mode: &str| format!("sum({}) / sum({})", series(cpu, mode), series(cpu, ""));
        let pressure = |of: &str| {
            let name = format!("node_pressure_{of}_waiting_seconds_total");
            format!("max({})", series(&name, ""))
        };
        let largest = |expression: String| {
            format!(
                "max_over_time(({expression})[{step}s:{}s])",
                range.resolution_seconds()
            )
        };
        Self {
            queries: [
                part(r#",mode="steal""#),
                format!("1 - {}", part(r#",mode=~"idle|iowait|steal""#)),
                pressure("cpu"),
                pressure("memory"),
                pressure("io"),
            ]
            .map(largest),
            start: end.saturating_sub((LONGER_HISTORY_POINTS - 1) * step),
            end,
            step,
            created: created_ms.div_ceil(1000),
        }
    }

    /// The history from the answers to [`Self::queries`].
    pub fn history(&self, answers: [PromSeries; COLUMNS]) -> UsageHistoryView {
        let [cpu_steal, cpu_used, cpu_pressure, memory_pressure, io_pressure] =
            answers.map(|series| self.column(&series));
        UsageHistoryView {
            end_ms: self.end.saturating_sub(self.step) * 1000,
            step_ms: self.step * 1000,
            cpu_steal,
            cpu_used,
            cpu_pressure,
            memory_pressure,
            io_pressure,
        }
    }

    fn column(&self, series: &PromSeries) -> Vec<Option<Share>> {
        let times = (self.start..=self.end).step_by(usize::try_from(self.step).unwrap_or(usize::MAX));
        times
            .map(|at| {
                let began = at.saturating_sub(self.step + RATE_SECONDS);
                let share = series.0.get(&at).copied();
                share.filter(|_| began >= self.created)
            })
            .collect()
    }
}

/// A text in PromQL, which has the escapes of Go.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            '\n' => quoted.push_str("\\n"),
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

/// The series of an answer: shares by time, in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromSeries(BTreeMap<u64, Share>);

/// An answer of `/api/v1/query_range`, in the format of Prometheus' documentation, "HTTP API".
#[derive(Deserialize)]
struct PromAnswer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<PromData>,
}

#[derive(Deserialize)]
struct PromData {
    result: Vec<PromResult>,
}

#[derive(Deserialize)]
struct PromResult {
    values: Vec<(f64, String)>,
}

impl PromSeries {
    /// Reads the body of an answer. Values that are no numbers are left out.
    ///
    /// # Errors
    /// The server's own message, or what is wrong with the body.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let answer: PromAnswer = serde_json::from_slice(body)
            .map_err(|error| format!("the answer is none of Prometheus' query API: {error}"))?;
        let data = match answer.data {
            Some(data) if answer.status == "success" => data,
            _ if answer.error.is_empty() => return Err("the answer has no data".to_owned()),
            _ => return Err(answer.error),
        };
        if data.result.len() > 1 {
            return Err(format!("{} series instead of one", data.result.len()));
        }
        let values = data.result.into_iter().flat_map(|one| one.values);
        let shares = values.filter_map(|(at, value)| {
            let value: f64 = value.parse().ok()?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the casts saturate, and the share is clamped"
            )]
            let (at, milli) = (at as u64, (value.clamp(0.0, 1.0) * 1000.0).round() as u64);
            (!value.is_nan()).then(|| (at, Share::of(milli, 1000)))
        });
        Ok(Self(shares.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: UnixMs = 1_800_000_123_456;

    fn plan(range: HistoryRange, created_ms: UnixMs, labels: &[(&str, &str)]) -> HistoryPlan {
        let vm = VmKey {
            namespace: "cluster-a".parse().unwrap(),
            name: "worker-1".parse().unwrap(),
        };
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        HistoryPlan::new(range, &vm, &labels.collect(), created_ms, NOW_MS)
    }

    fn answer(points: &[(u64, &str)]) -> PromSeries {
        let values: Vec<_> = points.iter().map(|(at, value)| (at, value)).collect();
        let body = serde_json::json!({
            "status": "success",
            "data": { "resultType": "matrix", "result": [{ "metric": {}, "values": values }] },
        });
        PromSeries::parse(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_range_has_its_points_and_ends_now() {
        for (range, step) in HistoryRange::ALL.into_iter().zip([180, 720, 5040]) {
            let plan = plan(range, 0, &[]);
            assert_eq!(plan.step, step);
            assert_eq!((plan.end - plan.start) / step + 1, LONGER_HISTORY_POINTS);
            assert_eq!(plan.end, NOW_MS / 1000);
            assert_eq!(range.as_str().parse(), Ok(range));
        }
        assert_eq!("1h".parse::<HistoryRange>(), Err(()));
    }

    #[test]
    fn queries_name_one_vm_and_no_value_of_a_label_leaves_its_quotes() {
        let plan = plan(
            HistoryRange::Day,
            0,
            &[("infra_cluster", "a\"} or vector(1) #\\")],
        );
        let selector =
            r#"namespace="cluster-a",name="worker-1",mode="steal",infra_cluster="a\"} or vector(1) #\\""#;
        assert!(plan.queries[0].contains(selector), "{}", plan.queries[0]);
        assert!(plan.queries[0].ends_with(")[720s:60s])"), "{}", plan.queries[0]);
        assert_eq!(
            self::plan(HistoryRange::Week, 0, &[]).queries[4],
            "max_over_time((max(rate(node_pressure_io_waiting_seconds_total{namespace=\"cluster-a\",\
             name=\"worker-1\"}[300s])))[5040s:300s])"
        );
    }

    #[test]
    fn answers_become_columns_and_what_is_missing_is_null() {
        let plan = plan(HistoryRange::SixHours, 0, &[]);
        let steal = answer(&[
            (plan.start, "0.25"),
            (plan.end - plan.step, "NaN"),
            (plan.end, "1.7"),
        ]);
        let none = PromSeries::parse(br#"{"status":"success","data":{"result":[]}}"#).unwrap();
        let history = plan.history([steal, none.clone(), none.clone(), none.clone(), none]);
        let percent = |share: Option<Share>| share.map(Share::percent);
        assert_eq!(history.cpu_steal.len(), 120);
        assert_eq!(percent(history.cpu_steal[0]), Some(25));
        assert_eq!(percent(history.cpu_steal[118]), None);
        assert_eq!(percent(history.cpu_steal[119]), Some(100));
        assert!(history.io_pressure.iter().all(Option::is_none));
        assert_eq!(history.end_ms + history.step_ms, plan.end * 1000);
    }

    #[test]
    fn points_of_an_earlier_vm_of_the_same_name_are_left_out() {
        let whole = plan(HistoryRange::SixHours, 0, &[]);
        let all: Vec<(u64, &str)> = (whole.start..=whole.end)
            .step_by(180)
            .map(|at| (at, "0.5"))
            .collect();
        // The first point that is wholly of this VM ends a step and a rate after its creation.
        let created = whole.end - 10 * 180;
        let plan = plan(HistoryRange::SixHours, created * 1000, &[]);
        let history = plan.history(std::array::from_fn(|_| answer(&all)));
        let known = history.cpu_used.iter().flatten().count();
        let expected = (10 * 180 - RATE_SECONDS) / 180;
        assert_eq!(u64::try_from(known).unwrap(), expected);
        assert!(history.cpu_used[119].is_some());
    }

    #[test]
    fn errors_have_the_words_of_the_server() {
        for (body, why) in [
            (
                r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
                "parse error",
            ),
            (r#"{"status":"error"}"#, "the answer has no data"),
            ("<html>", "the answer is none of Prometheus' query API"),
            (
                r#"{"status":"success","data":{"result":[{"values":[]},{"values":[]}]}}"#,
                "2 series instead of one",
            ),
        ] {
            let error = PromSeries::parse(body.as_bytes()).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
