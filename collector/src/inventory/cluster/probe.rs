//! Asks an API server whether it answers, whatever its watches do: an open watch shows neither that
//! the credentials have expired nor that the server hangs. Some of the answers have the Leases of
//! the kubelets.
//!
//! ```text
//! every 10 s: one Lease ─ answered, every 40 s ─▶ all Leases ─▶ events
//!   401 twice ────────────────────────▶ unreachable
//!   nothing, an error, for a while ───▶ unreachable
//! ```
//! A server that refuses (403) or limits (429) a request answers. So does one that does not give
//! all Leases: then the status of the Nodes counts, and a finding says so.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{Client, Resource as _, api::ListParams, core::Request};
use serde::Deserialize;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use virtfleet_collector_core::facts::{InventoryEvent, NodeLease, NodeLeases};
use virtfleet_wire::ids::ClusterName;

use super::{
    failure::{WatchFailure, explain, limit_of},
    status_registry::{NODE_LEASES, StatusRegistry},
};
use crate::page::ListPage;

/// Time between two questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// The same after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two reads of all Leases. Kubelets renew them every ten seconds; reading all of them
/// as often would be the most that the collector does.
const LEASES_INTERVAL: Duration = Duration::from_secs(40);
/// For so long after an outage, all Leases are read with each question: kubelets renew theirs then,
/// and the index awaits that.
const AFTER_OUTAGE: Duration = Duration::from_secs(40);
/// After so many failures in a row, the Leases count as unreadable. That is before the last ones
/// are too old.
const MAX_TRIES: u32 = 3;
/// First and longest delay before unreadable Leases are tried again.
const RETRY_LEASES: Duration = Duration::from_mins(1);
const MAX_RETRY_LEASES: Duration = Duration::from_mins(10);
/// Leases in a page, and the fewest after failures.
const PAGE_SIZE: u32 = 500;
const MIN_PAGE_SIZE: u32 = 32;

/// How long a probe waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeLimits {
    /// For one answer.
    timeout: Duration,
    /// For all Leases.
    leases: Duration,
    /// For any answer, until the server counts as unreachable.
    silence: Duration,
}

impl ProbeLimits {
    /// Of a user cluster, which may be far away.
    pub(super) const USER_CLUSTER: Self = Self {
        timeout: Duration::from_secs(10),
        leases: Duration::from_secs(15),
        silence: Duration::from_secs(25),
    };
    /// Of the infra cluster. Its verdicts are held for 30 s.
    pub(super) const INFRA: Self = Self {
        timeout: Duration::from_secs(5),
        leases: Duration::from_secs(10),
        silence: Duration::from_secs(15),
    };
}

/// Status and message of a failed request.
type Failed = (Option<u16>, String);

/// A Lease, as far as it is read.
#[derive(Debug, Deserialize)]
struct LeaseFields {
    metadata: LeaseName,
    #[serde(default)]
    spec: LeaseTimes,
}

#[derive(Debug, Deserialize)]
struct LeaseName {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseTimes {
    renew_time: Option<String>,
    lease_duration_seconds: Option<u64>,
}

impl LeaseFields {
    /// None for a Lease that no kubelet has renewed, or whose name is not one of a Node.
    fn fact(self) -> Option<NodeLease> {
        let renewed: jiff::Timestamp = self.spec.renew_time?.parse().ok()?;
        Some(NodeLease {
            node: self.metadata.name.parse().ok()?,
            renewed_ms: u64::try_from(renewed.as_millisecond()).ok()?,
            lasts_ms: self
                .spec
                .lease_duration_seconds
                .map(|seconds| seconds.saturating_mul(1000)),
        })
    }
}

/// What a [`ServerProbe`] works with.
pub(super) struct ProbeParts {
    pub(super) client: Client,
    /// None: the infra cluster.
    pub(super) cluster: Option<ClusterName>,
    pub(super) max_leases: usize,
    pub(super) limits: ProbeLimits,
    pub(super) events: mpsc::Sender<InventoryEvent>,
    pub(super) registry: Arc<StatusRegistry>,
}

/// Asks one API server.
pub(super) struct ServerProbe {
    parts: ProbeParts,
    /// Leases in a page.
    page: u32,
    /// How often in a row the Leases could not be read.
    tries: u32,
    /// When they are read next.
    next_leases: Instant,
    /// Until when they are read with each question.
    often_until: Instant,
    /// The server counts as unreachable, or has done so since the Leases were read last.
    is_outage: bool,
}

impl ServerProbe {
    pub(super) fn new(parts: ProbeParts) -> Self {
        let now = Instant::now();
        Self {
            parts,
            page: PAGE_SIZE,
            tries: 0,
            next_leases: now,
            often_until: now,
            is_outage: false,
        }
    }

    /// Asks until the receiver of events is dropped. `answers` is none while the server answers,
    /// and why it counts as unreachable if it does.
    pub(super) async fn run(mut self, answers: watch::Sender<Option<WatchFailure>>) {
        // Hundreds of clusters are not asked at the same moment.
        let mut next = Instant::now() + self.offset();
        let mut last_answer = Instant::now();
        let (mut failures, mut refusals) = (0_u32, 0_u32);
        loop {
            sleep_until(next).await;
            let begun = Instant::now();
            let failed = match self.ask().await {
                Ok(()) => None,
                Err((code, _)) if code.is_some_and(is_answer) => None,
                Err(failed) => Some(failed),
            };
            if self.parts.events.is_closed() {
                return;
            }
            let Some((code, message)) = failed else {
                (failures, refusals, last_answer) = (0, 0, Instant::now());
                if self.read_leases(begun).await.is_none() {
                    return;
                }
                // Not before the heartbeats are on their way. They may arrive later than this.
                if !self.is_outage {
                    answers.send_if_modified(|known| known.take().is_some());
                }
                next = begun + INTERVAL;
                continue;
            };
            failures = failures.saturating_add(1);
            // One refusal may be a mistake of the server.
            refusals = if code == Some(401) { refusals + 1 } else { 0 };
            let is_silent = failures > 1 && last_answer.elapsed() >= self.parts.limits.silence;
            if refusals > 1 || is_silent {
                self.is_outage = true;
                let failure = WatchFailure {
                    code,
                    message,
                    count: failures,
                    over_limit: false,
                };
                answers.send_if_modified(|known| known.replace(failure).is_none());
            }
            next = begun + RETRY_INTERVAL;
        }
    }

    fn offset(&self) -> Duration {
        let mut hasher = DefaultHasher::new();
        self.parts.cluster.hash(&mut hasher);
        let interval = u64::try_from(INTERVAL.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(hasher.finish() % interval)
    }

    /// One question about one object, which costs the server little.
    async fn ask(&self) -> Result<(), Failed> {
        let path = if self.tries == 0 {
            Lease::url_path(&(), Some(NODE_LEASES))
        } else {
            Node::url_path(&(), None)
        };
        self.request(&path, &ListParams::default().limit(1)).await?;
        Ok(())
    }

    /// Reads all Leases if it is time, and sends them; an empty list if they have become
    /// unreadable. None when the receiver of events is dropped.
    async fn read_leases(&mut self, begun: Instant) -> Option<()> {
        if begun < self.next_leases && !self.is_outage {
            return Some(());
        }
        let longest = self.parts.limits.leases;
        let read = timeout(longest, self.all_leases()).await;
        let read =
            read.unwrap_or_else(|_| Err((None, format!("they took more than {} s", longest.as_secs()))));
        let leases = match read {
            Ok(leases) => {
                self.tries = 0;
                if self.is_outage {
                    self.often_until = begun + AFTER_OUTAGE;
                }
                let is_often = begun < self.often_until;
                self.next_leases = begun + if is_often { INTERVAL } else { LEASES_INTERVAL };
                self.parts.registry.leases(self.parts.cluster.as_ref(), None);
                leases
            }
            Err((code, why)) => {
                self.tries = self.tries.saturating_add(1);
                // Small pages exceed fewer limits, and large ones take less time.
                self.page = if self.page > MIN_PAGE_SIZE {
                    (self.page / 4).max(MIN_PAGE_SIZE)
                } else {
                    PAGE_SIZE
                };
                let Some(retries) = self.tries.checked_sub(MAX_TRIES) else {
                    self.next_leases = begun + INTERVAL;
                    return Some(());
                };
                let delay = RETRY_LEASES * 2_u32.pow(retries.min(4));
                self.next_leases = begun + delay.min(MAX_RETRY_LEASES);
                let problem = Some((code, why.as_str()));
                self.parts.registry.leases(self.parts.cluster.as_ref(), problem);
                Vec::new()
            }
        };
        self.is_outage = false;
        let leases = InventoryEvent::Leases(NodeLeases {
            cluster: self.parts.cluster.clone(),
            leases,
        });
        self.parts.events.send(leases).await.ok()
    }

    async fn all_leases(&self) -> Result<Vec<NodeLease>, Failed> {
        let path = Lease::url_path(&(), Some(NODE_LEASES));
        let mut params = ListParams::default().limit(self.page);
        let (mut leases, mut seen) = (Vec::new(), 0_usize);
        loop {
            let Some(text) = self.request(&path, &params).await? else {
                return Err((None, "an answer is too large".to_owned()));
            };
            let page: ListPage<LeaseFields> =
                ListPage::read(&text, self.page as usize).map_err(|error| (None, error.to_string()))?;
            // A server may send pages without Leases for ever.
            let least = page.more.as_ref().map_or(0, |_| MIN_PAGE_SIZE as usize);
            seen = seen.saturating_add(page.items.len().max(least));
            if seen > self.parts.max_leases {
                return Err((None, format!("there are more than {}", self.parts.max_leases)));
            }
            leases.extend(page.items.into_iter().filter_map(LeaseFields::fact));
            match page.more {
                Some(more) => params.continue_token = Some(more),
                None => return Ok(leases),
            }
        }
    }

    /// The text of an answer; none if it exceeds a limit.
    async fn request(&self, path: &str, params: &ListParams) -> Result<Option<String>, Failed> {
        let request = Request::new(path).list(params);
        let request = request.map_err(|error| (None, format!("the list cannot be requested: {error}")))?;
        let answer = self.parts.client.request_text(request);
        match timeout(self.parts.limits.timeout, answer).await {
            Ok(Ok(text)) => Ok(Some(text)),
            Ok(Err(error)) if limit_of(&error).is_some() => Ok(None),
            Ok(Err(error)) => Err(explain(&error, self.parts.cluster.is_some())),
            Err(_) => {
                let seconds = self.parts.limits.timeout.as_secs();
                Err((None, format!("it did not answer within {seconds} s")))
            }
        }
    }
}

/// Reports whether the API server of the infra cluster answers, and has its watches resumed if not.
/// Ends when the receiver of events is dropped.
pub(super) async fn follow_server(
    probe: ServerProbe,
    registry: Arc<StatusRegistry>,
    renew: watch::Sender<u64>,
) -> Option<()> {
    let (answers, mut answer) = watch::channel(None);
    let report = async {
        while answer.changed().await.is_ok() {
            let failure = answer.borrow_and_update().clone();
            registry.server(failure.as_ref());
            if failure.is_some() {
                renew.send_modify(|count| *count += 1);
            }
        }
    };
    tokio::join!(probe.run(answers), report);
    None
}

/// Whether a server with this answer works, and knows who asks.
fn is_answer(code: u16) -> bool {
    code != 401 && code < 500
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
