//! A script: what happens to one VM over time, and the verdict after each step.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use virtfleet_collector_core::{
    health::{HealthCause, HealthVerdict},
    view::ClusterState,
};
use virtfleet_wire::layered::parse_yaml;

/// Objects that a step can change, by the name of the key.
pub(super) const OBJECTS: [&str; 6] = ["host", "vm", "vmi", "pod", "cluster", "node"];

/// One script.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Script {
    pub(super) title: String,
    /// Why the verdict is what it is.
    #[serde(default)]
    pub(super) about: Option<String>,
    /// What other consoles show.
    #[serde(default)]
    pub(super) elsewhere: Option<String>,
    #[serde(default, rename = "start", deserialize_with = "is_empty")]
    pub(super) starts_empty: bool,
    pub(super) steps: Vec<Step>,
}

fn is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "empty" {
        Ok(true)
    } else {
        Err(serde::de::Error::custom(format!("start: {text:?} is not empty")))
    }
}

/// One step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) at_seconds: u64,
    pub(super) what: String,
    /// JSON merge patches of objects; null deletes one.
    pub(super) objects: Vec<(&'static str, Value)>,
    pub(super) rest: Changes,
    pub(super) expect: Expectation,
}

/// What else a step changes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Changes {
    at: String,
    what: String,
    expect: Expectation,
    /// How pulls end from now on.
    #[serde(default)]
    pub(super) agent: Option<Pulls>,
    /// JSON merge patch of the agent's report.
    #[serde(default)]
    pub(super) report: Option<Value>,
    /// Offset of the guest's clock in seconds.
    #[serde(default)]
    pub(super) clock: Option<i64>,
    /// Whether the guest's kernel says that its clock is synchronised.
    #[serde(default)]
    pub(super) synchronised: Option<bool>,
    #[serde(default)]
    pub(super) cluster_state: Option<ClusterState>,
    #[serde(default)]
    pub(super) inventory: Option<Inventory>,
}

/// How pulls end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pulls {
    Answers,
    NotPulled,
    Refused,
    Unreachable,
    Timeout,
    Tls,
    WrongVm,
    Enrolment,
    Relay,
    NoAddress,
    NotAllowed,
    Malformed,
}

/// Whether the collector follows the infra cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Inventory {
    Follows,
    Fails,
}

/// The health after a step.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectation {
    pub(super) verdict: HealthVerdict,
    #[serde(default)]
    pub(super) cause: Option<String>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    /// Status and reason of conditions, e.g. `False NotTuned`.
    #[serde(default)]
    pub(super) conditions: BTreeMap<String, String>,
}

impl Expectation {
    pub(super) fn healthy() -> Self {
        Self {
            verdict: HealthVerdict::Healthy,
            cause: None,
            reason: None,
            conditions: BTreeMap::new(),
        }
    }
}

/// The only document of a YAML text, as JSON.
pub(super) fn document(text: &str) -> Result<Value, String> {
    let parsed = parse_yaml(text).map_err(|error| format!("{error:?}"))?;
    match parsed.as_slice() {
        [only] => Ok(only.to_json()),
        all => Err(format!("{} documents instead of one", all.len())),
    }
}

impl Script {
    /// Reads a script.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let script: Self = serde_json::from_value(document(text)?).map_err(|error| error.to_string())?;
        let mut before = 0;
        for step in &script.steps {
            if step.at_seconds < before || step.at_seconds % 5 != 0 {
                return Err(format!("{} s: not a later multiple of 5 s", step.at_seconds));
            }
            before = step.at_seconds;
            let cause = step.expect.cause.as_deref();
            if cause.is_some_and(|cause| HealthCause::ALL.iter().all(|one| one.as_str() != cause)) {
                return Err(format!("{} s: unknown cause", step.at_seconds));
            }
        }
        if script.steps.is_empty() {
            return Err("no steps".to_owned());
        }
        Ok(script)
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let mut fields = Map::deserialize(deserializer)?;
        let objects = OBJECTS.into_iter();
        let objects = objects
            .filter_map(|name| Some((name, fields.remove(name)?)))
            .collect();
        let rest: Changes = serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?;
        let seconds = rest.at.strip_suffix('s').and_then(|number| number.parse().ok());
        Ok(Self {
            at_seconds: seconds.ok_or_else(|| D::Error::custom(format!("at: {}", rest.at)))?,
            what: rest.what.clone(),
            objects,
            expect: rest.expect.clone(),
            rest,
        })
    }
}
