//! The settings of all streams in use, and why the present ones cannot be used.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use ring::digest::{Context, SHA256};
use tokio::sync::watch;
use virtfleet_collector_core::findings;
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::ClusterName,
};

use super::{
    AllStreamSettings, StreamDefaults, StreamName, StreamSettings, TenantMla,
    input::SecretLookup,
    resolve::{self, Unusable},
};
use crate::bounded::bounded;

/// Maximum characters of a message.
const MAX_MESSAGE_CHARS: usize = 1024;

/// The condition `MlaConfigured` of a UserCluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MlaCondition {
    /// Whether the present settings are used.
    pub configured: bool,
    /// Reason, in CamelCase.
    pub reason: &'static str,
    pub message: String,
}

/// The settings of all streams. Share it as `Arc<StreamRegistry>`.
pub struct StreamRegistry {
    /// None: MLA is off.
    defaults: watch::Sender<Option<StreamDefaults>>,
    clock: fn() -> u64,
    state: Mutex<ResolvedStreams>,
    settings: watch::Sender<AllStreamSettings>,
    findings: watch::Sender<Vec<Finding>>,
}

#[derive(Default)]
struct ResolvedStreams {
    /// What each stream was resolved from last: unchanged input changes nothing, not even the TLS
    /// configuration.
    inputs: BTreeMap<StreamName, InputDigest>,
    statuses: BTreeMap<StreamName, MlaCondition>,
    /// Why the present settings file cannot be used.
    section_problem: Option<String>,
}

type InputDigest = [u8; 32];

impl fmt::Debug for StreamRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRegistry")
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}

impl StreamRegistry {
    /// A registry without streams. `defaults`: the limits in the collector's settings; none: MLA is
    /// off. `clock` has seconds since 1970.
    pub fn new(defaults: Option<StreamDefaults>, clock: fn() -> u64) -> Self {
        Self {
            defaults: watch::Sender::new(defaults),
            clock,
            state: Mutex::default(),
            settings: watch::Sender::default(),
            findings: watch::Sender::default(),
        }
    }

    /// The limits in the collector's settings; none: MLA is off.
    pub fn defaults(&self) -> Option<StreamDefaults> {
        self.defaults.borrow().clone()
    }

    /// Replaces the limits in the collector's settings. The tasks that set streams follow
    /// [`StreamRegistry::defaults_changes`], and set them again.
    pub(crate) fn set_defaults(&self, defaults: Option<StreamDefaults>) {
        self.defaults.send_replace(defaults);
    }

    /// Changes of the limits in the collector's settings.
    pub(crate) fn defaults_changes(&self) -> watch::Receiver<Option<StreamDefaults>> {
        self.defaults.subscribe()
    }

    /// Sets why the present settings file cannot be used; none: it can.
    pub(crate) fn set_section_problem(&self, problem: Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.section_problem = problem.map(|why| bounded(&why, MAX_MESSAGE_CHARS));
        self.publish(&state);
    }

    /// The settings of all streams, and their changes.
    pub fn settings(&self) -> watch::Receiver<AllStreamSettings> {
        self.settings.subscribe()
    }

    /// Names of all streams that are configured, also of those whose settings cannot be used.
    pub fn names(&self) -> BTreeSet<StreamName> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.statuses.keys().cloned().collect()
    }

    /// Findings about settings that cannot be used, and their changes.
    pub fn findings(&self) -> watch::Receiver<Vec<Finding>> {
        self.findings.subscribe()
    }

    /// The condition of a user cluster; none without `spec.mla`.
    pub fn status(&self, cluster: &ClusterName) -> Option<MlaCondition> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.statuses.get(&StreamName::Tenant(cluster.clone())).cloned()
    }

    /// Sets what is known of a user cluster's stream; none: it has no `spec.mla`. Returns its
    /// condition.
    pub fn set_tenant(&self, cluster: &ClusterName, known: Option<&TenantMla>) -> Option<MlaCondition> {
        let name = StreamName::Tenant(cluster.clone());
        let Some(known) = known else {
            self.remove(&name);
            return None;
        };
        // A namespace whose watch starts again tells nothing about the Secrets in use.
        let waits = known
            .secrets
            .values()
            .any(|lookup| *lookup == SecretLookup::Waiting);
        if waits && let Some(status) = self.status(cluster) {
            return Some(status);
        }
        let defaults = self.defaults();
        let input = digest(known, defaults.as_ref());
        let resolved = || match (&known.spec, &defaults) {
            (_, None) => Err(unusable(
                "Disabled",
                "the collector's settings have no mla: nothing is sent".to_owned(),
            )),
            (Err(why), _) => Err(unusable("InvalidSettings", why.clone())),
            (Ok(spec), Some(defaults)) => resolve::tenant(spec, &known.secrets, defaults, (self.clock)()),
        };
        self.set(name, input, resolved)
    }

    /// Sets what a stream was resolved to, if `input` differs from the last one.
    pub(super) fn set(
        &self,
        name: StreamName,
        input: InputDigest,
        resolve: impl FnOnce() -> Result<StreamSettings, Unusable>,
    ) -> Option<MlaCondition> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.inputs.get(&name) == Some(&input) {
            return state.statuses.get(&name).cloned();
        }
        state.inputs.insert(name.clone(), input);
        let before = self.settings.borrow().get(&name).cloned();
        let (status, settings) = match resolve() {
            Ok(settings) => (configured(&settings), Some(settings)),
            Err(problem) => not_configured(problem, before),
        };
        state.statuses.insert(name.clone(), status.clone());
        self.settings.send_if_modified(|all| {
            if settings.is_none() && !all.contains_key(&name) {
                return false;
            }
            let all = Arc::make_mut(all);
            match settings {
                Some(settings) => drop(all.insert(name, settings)),
                None => drop(all.remove(&name)),
            }
            true
        });
        self.publish(&state);
        Some(status)
    }

    /// Removes a stream that is configured no more.
    pub(super) fn remove(&self, name: &StreamName) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.inputs.remove(name).is_none() {
            return;
        }
        state.statuses.remove(name);
        self.settings
            .send_if_modified(|all| Arc::make_mut(all).remove(name).is_some());
        self.publish(&state);
    }

    /// Keeps only the streams of these user clusters.
    pub fn retain_tenants(&self, is_there: impl Fn(&ClusterName) -> bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = state
            .inputs
            .keys()
            .filter(|name| matches!(name, StreamName::Tenant(cluster) if !is_there(cluster)))
            .cloned()
            .collect();
        drop(state);
        for name in &gone {
            self.remove(name);
        }
    }

    fn publish(&self, state: &ResolvedStreams) {
        let streams = state.statuses.iter();
        let streams = streams.filter(|(_, status)| !status.configured);
        let streams = streams.map(|(name, status)| finding(name, status));
        let section = state.section_problem.iter().map(|why| section_finding(why));
        let found: Vec<_> = section.chain(streams).collect();
        self.findings.send_if_modified(|known| {
            let changed = *known != found;
            if changed {
                for new in found.iter().filter(|new| !known.contains(new)) {
                    tracing::warn!(finding = %new.id, remedy = %new.remedy, "{}", new.message);
                }
                *known = found;
            }
            changed
        });
    }
}

fn unusable(reason: &'static str, message: String) -> Unusable {
    Unusable {
        reason,
        message,
        without_endpoint: None,
    }
}

fn configured(settings: &StreamSettings) -> MlaCondition {
    let endpoint = settings.endpoint.as_ref();
    let host = endpoint.and_then(|endpoint| endpoint.url.authority());
    let host = host.map_or(String::new(), ToString::to_string);
    let (reason, message) = if settings.suspend {
        (
            "Suspended",
            "spec.mla.suspend is set: no samples are taken or sent".to_owned(),
        )
    } else {
        ("Configured", format!("samples are sent to {host}"))
    };
    MlaCondition {
        configured: true,
        reason,
        message,
    }
}

/// The condition, and the settings to use: the last valid ones, else those without endpoint.
fn not_configured(
    problem: Unusable,
    before: Option<StreamSettings>,
) -> (MlaCondition, Option<StreamSettings>) {
    let is_valid = |known: &StreamSettings| known.endpoint.is_some();
    // Without mla in the settings there is no stream at all.
    let last = before.filter(|known| is_valid(known) && problem.reason != "Disabled");
    let (consequence, settings) = match (last, problem.without_endpoint) {
        (Some(mut last), _) => {
            last.problem = Some(problem.message.clone());
            ("; until then the last valid settings are used", Some(last))
        }
        (None, Some(settings)) => ("; until then samples are queued", Some(*settings)),
        (None, None) => ("", None),
    };
    let status = MlaCondition {
        configured: false,
        reason: problem.reason,
        message: bounded(&format!("{}{consequence}", problem.message), MAX_MESSAGE_CHARS),
    };
    (status, settings)
}

fn finding(name: &StreamName, status: &MlaCondition) -> Finding {
    let what = match name {
        StreamName::Tenant(cluster) => format!("user cluster {cluster}"),
        StreamName::Fleet => "the operator's stream".to_owned(),
    };
    let message = format!("{what}: {}", status.message);
    let remedy = match (name, status.reason) {
        (_, "Disabled") => "set mla in the collector's settings, or remove spec.mla",
        (StreamName::Fleet, _) => "correct mla.fleet in the collector's settings or its files",
        _ => "correct spec.mla of the UserCluster or its Secrets; changes are used at once",
    };
    // A Secret that is being read for the first time is no problem yet.
    let severity = match status.reason {
        "SecretNotReadYet" => Severity::Info,
        _ => Severity::Warning,
    };
    let subject = match name {
        StreamName::Tenant(cluster) => ("UserCluster", cluster.as_str()),
        StreamName::Fleet => ("Collector", "mla.fleet"),
    };
    let found = Finding::new(
        findings::MLA_NOT_CONFIGURED,
        severity,
        subject,
        status.reason,
        message,
    );
    let found = match name {
        StreamName::Tenant(cluster) => found.with("cluster", cluster),
        StreamName::Fleet => found,
    };
    found.remedy(remedy)
}

fn section_finding(why: &str) -> Finding {
    Finding::new(
        findings::MLA_NOT_CONFIGURED,
        Severity::Warning,
        ("Collector", "mla"),
        "InvalidSettings",
        format!(
            "the settings file has changed and cannot be used: {why}; until then the last valid mla is used"
        ),
    )
    .remedy("correct the file; virtfleet-collector check-config names each problem")
}

/// The digest of everything that a stream is resolved from.
fn digest(known: &TenantMla, defaults: Option<&StreamDefaults>) -> InputDigest {
    let mut parts = DigestParts::new();
    parts.add(format!("{defaults:?}").as_bytes());
    match &known.spec {
        Ok(spec) => parts.add(serde_json::to_string(spec).unwrap_or_default().as_bytes()),
        Err(why) => parts.add(why.as_bytes()),
    }
    for (at, lookup) in &known.secrets {
        parts.add(at.namespace.as_bytes());
        parts.add(at.name.as_bytes());
        match lookup {
            SecretLookup::Waiting => parts.add(b"waiting"),
            SecretLookup::Absent => parts.add(b"absent"),
            SecretLookup::Failed(why) => parts.add(why.as_bytes()),
            SecretLookup::Found(values) => {
                for (key, value) in values.iter() {
                    parts.add(key.as_bytes());
                    parts.add(value);
                }
            }
        }
    }
    parts.finish()
}

/// A digest of parts; no two lists of parts have the same bytes.
pub(super) struct DigestParts(Context);

impl DigestParts {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    pub(super) fn finish(self) -> InputDigest {
        let mut out = InputDigest::default();
        out.copy_from_slice(self.0.finish().as_ref());
        out
    }
}
