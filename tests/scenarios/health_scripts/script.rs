//! A script: what happens to one VM over time, and the verdict after each step.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use virtfleet_collector_core::{
    health::{HealthCause, HealthVerdict},
    view::ClusterState,
};
use virtfleet_wire::layered::parse_yaml;

use super::{metrics::ScriptedMetrics, volumes::ScriptedVolumes};

/// Objects that a step can change, by the name of the key.
pub(crate) const OBJECTS: [&str; 6] = ["host", "vm", "vmi", "pod", "cluster", "node"];

/// One script.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Script {
    pub(crate) title: String,
    /// Why the verdict is what it is.
    #[serde(default)]
    pub(crate) about: Option<String>,
    /// What other consoles show.
    #[serde(default)]
    pub(crate) elsewhere: Option<String>,
    /// Whether `guest_health.rs` also creates it in a real guest.
    #[serde(default, rename = "real")]
    pub(crate) is_real: bool,
    #[serde(default, rename = "start", deserialize_with = "is_empty")]
    pub(crate) starts_empty: bool,
    pub(crate) steps: Vec<Step>,
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
pub(crate) struct Step {
    pub(crate) at_seconds: u64,
    pub(crate) what: String,
    /// JSON merge patches of objects; null deletes one.
    pub(crate) objects: Vec<(&'static str, Value)>,
    pub(crate) rest: Changes,
    pub(crate) expect: Expectation,
}

/// What else a step changes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Changes {
    at: String,
    what: String,
    expect: Expectation,
    /// How pulls end from now on.
    #[serde(default)]
    pub(crate) agent: Option<Pulls>,
    /// JSON merge patch of the agent's report.
    #[serde(default)]
    pub(crate) report: Option<Value>,
    /// Use of CPU and memory in the guest from now on.
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    /// The other VMs on the infra node from now on.
    #[serde(default)]
    pub(crate) neighbours: Option<Vec<Neighbour>>,
    /// Offset of the guest's clock in seconds.
    #[serde(default)]
    pub(crate) clock: Option<i64>,
    /// Whether the guest's kernel says that its clock is synchronised.
    #[serde(default)]
    pub(crate) synchronised: Option<bool>,
    #[serde(default)]
    pub(crate) cluster_state: Option<ClusterState>,
    #[serde(default)]
    pub(crate) inventory: Option<Inventory>,
    #[serde(default)]
    pub(crate) collector: Option<CollectorChange>,
    /// Whether the kubelets of the Node and of the infra node renew their Leases from now on.
    #[serde(default)]
    pub(crate) leases: Option<ScriptedLeases>,
    /// What the API server answers to requests for volumes from now on; without it nothing is read.
    #[serde(default)]
    pub(crate) volumes: Option<ScriptedVolumes>,
    /// What becomes of the VM's metrics from now on; without it no stream takes them.
    #[serde(default)]
    pub(crate) metrics: Option<ScriptedMetrics>,
    /// What the clocks of the guest show from now on.
    #[serde(default)]
    pub(crate) clock_events: Vec<ScriptedClockEvent>,
    /// Parts of entries that the timeline of the VM has after the step, in this order.
    #[serde(default)]
    pub(crate) story: Vec<String>,
}

/// A pause, a suspend or a clock step.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ScriptedClockEvent {
    pub(crate) kind: String,
    pub(crate) length_seconds: f64,
}

/// Use of CPU and memory, in hundredths of the time, or of the memory.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Usage {
    pub(crate) steal: u32,
    pub(crate) used: u32,
    pub(crate) cpu_pressure: u32,
    pub(crate) memory_pressure: u32,
    pub(crate) io_pressure: u32,
    /// None: half of it.
    pub(crate) memory_available: Option<u32>,
}

/// Another VM on the infra node.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Neighbour {
    pub(crate) name: String,
    pub(crate) vcpus: u64,
    #[serde(default)]
    pub(crate) usage: Usage,
}

/// How pulls end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pulls {
    Answers,
    NotPulled,
    Refused,
    Unreachable,
    Timeout,
    Accepted,
    Tls,
    WrongVm,
    Enrolment,
    Relay,
    RelayTimeout,
    NoAddress,
    NotAllowed,
    Malformed,
}

/// Whether the collector follows the infra cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Inventory {
    Follows,
    Fails,
}

/// Which kubelets renew their Leases.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ScriptedLeases {
    pub(crate) node: LeaseState,
    pub(crate) host: LeaseState,
}

/// What a kubelet does with its Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeaseState {
    Renewed,
    /// It stays as it is.
    Old,
    /// The API server does not answer: the kubelet cannot renew it, and the collector reads none.
    Unread,
}

/// What happens to the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CollectorChange {
    /// Another one starts, and knows only what the API servers say then.
    Restarts,
}

/// The health after a step.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectation {
    pub(crate) verdict: HealthVerdict,
    #[serde(default)]
    pub(crate) cause: Option<String>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// What the message of the verdict contains.
    #[serde(default)]
    pub(crate) message: Option<String>,
    /// The next command, or a part of it.
    #[serde(default)]
    pub(crate) next: Option<String>,
    /// Status and reason of conditions, e.g. `False NotTuned`.
    #[serde(default)]
    pub(crate) conditions: BTreeMap<String, String>,
}

impl Expectation {
    pub(crate) fn healthy() -> Self {
        Self {
            verdict: HealthVerdict::Healthy,
            cause: None,
            reason: None,
            message: None,
            next: None,
            conditions: BTreeMap::new(),
        }
    }
}

/// The only document of a YAML text, as JSON.
pub(crate) fn document(text: &str) -> Result<Value, String> {
    let parsed = parse_yaml(text).map_err(|error| format!("{error:?}"))?;
    match parsed.as_slice() {
        [only] => Ok(only.to_json()),
        all => Err(format!("{} documents instead of one", all.len())),
    }
}

impl Script {
    /// Reads a script.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
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
