//! What a cycle found, as status and findings.

use virtfleet_collector_core::{
    cluster_source::{KnownCredential, SkipReason, SkippedCluster, SourcePlan, WantedCluster},
    findings::{CLUSTER_SOURCE_FAILED, CLUSTER_SOURCE_SKIPPED},
};
use virtfleet_wire::finding::{Finding, Severity};

use crate::clock::rfc3339;
use crate::{
    bounded::bounded,
    objects::{ClusterSource, ClusterSourceStatus, Condition, ConditionStatus, SkippedSourceCluster},
};

/// Maximum skipped clusters in a status.
const MAX_SKIPPED: usize = 20;
/// Maximum characters of the message about a skipped cluster.
const MAX_SKIP_CHARS: usize = 500;
/// Maximum characters of a message.
const MAX_MESSAGE_CHARS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub(super) enum ReadyReason {
    Synced,
    Suspended,
    Invalid,
    Unreachable,
    /// The source does not accept its kubeconfig.
    Unauthorized,
    CredentialsFailed,
    InfraFailed,
    RemovalHeld,
    LeadershipLost,
}

/// Why a cycle, or the work on one UserCluster, ended early.
pub(super) type Ended = (ReadyReason, String);

impl ReadyReason {
    fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Result of a cycle of one source.
#[derive(Debug, Clone)]
pub(super) struct SourceReport {
    pub(super) name: String,
    generation: Option<i64>,
    /// Numbers of the plan; none if there was no complete list, so that the last ones stay.
    counts: Option<(usize, usize)>,
    /// UserClusters of the source.
    pub(super) managed: usize,
    pub(super) skipped: Vec<SkippedCluster>,
    pub(super) reason: ReadyReason,
    message: String,
    failures: usize,
}

impl SourceReport {
    /// A cycle that could not plan anything.
    pub(super) fn failed(source: &ClusterSource, reason: ReadyReason, message: String) -> Self {
        Self {
            name: source.metadata.name.clone().unwrap_or_default(),
            generation: source.metadata.generation,
            counts: None,
            managed: 0,
            skipped: Vec::new(),
            reason,
            message: bounded(&message, MAX_MESSAGE_CHARS),
            failures: 1,
        }
    }

    pub(super) fn planned(
        source: &ClusterSource,
        found: usize,
        plan: &SourcePlan,
        unreadable: Vec<String>,
    ) -> Self {
        let message = format!("{found} clusters found, {} selected", plan.selected);
        let (reason, message) = if source.spec.suspend {
            let why = "spec.suspend is set: no UserCluster is made, changed or removed; kubeconfigs and accounts are renewed";
            (ReadyReason::Suspended, format!("{why}; {message}"))
        } else {
            (ReadyReason::Synced, message)
        };
        let mut report = Self {
            counts: Some((found, plan.selected)),
            managed: plan.keep.len() + plan.renew.len(),
            skipped: plan.skipped.clone(),
            failures: 0,
            ..Self::failed(source, reason, message)
        };
        if let Some(held) = plan.held {
            report.add_failure(
                ReadyReason::RemovalHeld,
                format!(
                    "{} of {} clusters are not in the source any more, so their UserClusters are kept; if they are \
                     really gone: kubectl annotate clustersource {} virtfleet.io/allow-removal=true",
                    held.removals, held.of, report.name
                ),
            );
        }
        for why in unreadable {
            report.add_failure(ReadyReason::Unreachable, why);
        }
        report
    }

    /// Adds a cluster whose account cannot be made or renewed. `known` is the time of its present
    /// token.
    pub(super) fn add_account_failure(
        &mut self,
        one: &WantedCluster,
        why: &str,
        known: Option<KnownCredential>,
    ) {
        let present = known.map_or_else(
            || "it has no account yet".to_owned(),
            |known| format!("its present token ends at {}", rfc3339(known.expires)),
        );
        self.skipped.push(SkippedCluster {
            key: one.cluster.key.clone(),
            reason: SkipReason::AccountFailed,
            message: Some(bounded(&format!("{present}: {why}"), MAX_SKIP_CHARS)),
        });
        self.skipped.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// Adds a failure; the first one is shown, with the number of the others.
    pub(super) fn add_failure(&mut self, reason: ReadyReason, message: String) {
        if self.failures == 0 {
            (self.reason, self.message) = (reason, bounded(&message, MAX_MESSAGE_CHARS));
        }
        self.failures += 1;
    }

    fn message(&self) -> String {
        match self.failures {
            0 | 1 => self.message.clone(),
            more => format!("{} (and {} more)", self.message, more - 1),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.reason == ReadyReason::Synced
    }

    /// Whether something failed. A suspended source is not ready, and has not failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Numbers of clusters found and selected.
    pub(super) fn counts(&self) -> Option<(usize, usize)> {
        self.counts
    }

    /// The status if it differs from the present one.
    pub(super) fn status(
        &self,
        before: Option<&ClusterSourceStatus>,
        now: &str,
    ) -> Option<ClusterSourceStatus> {
        if self.reason == ReadyReason::LeadershipLost {
            return None;
        }
        let mut status = before.cloned().unwrap_or_default();
        status.observed_generation = self.generation;
        if let Some((found, selected)) = self.counts {
            let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
            (status.found, status.selected) = (count(found), count(selected));
            status.user_clusters = count(self.managed);
            let skipped = self
                .skipped
                .iter()
                .take(MAX_SKIPPED)
                .map(|one| SkippedSourceCluster {
                    cluster: bounded(&one.key, 320),
                    reason: one.reason.as_str().to_owned(),
                    message: one.message.clone(),
                });
            status.skipped = skipped.collect();
        }
        let holds = if self.is_ready() {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        let ready = Condition::new("Ready", holds, self.reason.as_str(), self.message());
        let known = before
            .map(|before| before.conditions.as_slice())
            .unwrap_or_default();
        status.conditions = vec![ready.at(known, now)];
        (before != Some(&status)).then_some(status)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let subject = ("ClusterSource", self.name.as_str());
        let mut findings = Vec::new();
        let is_problem = !matches!(
            self.reason,
            ReadyReason::Synced | ReadyReason::Suspended | ReadyReason::LeadershipLost
        );
        if is_problem {
            let message = format!("cluster source {}: {}", self.name, self.message());
            let found = Finding::new(
                CLUSTER_SOURCE_FAILED,
                Severity::Warning,
                subject,
                self.reason.as_str(),
                message,
            );
            let remedy = match self.reason {
                ReadyReason::Unauthorized => {
                    "make a new kubeconfig of the source's account, as docs/sources.md shows, and store it in the Secret that \
                     the message names; meanwhile no UserCluster is made or removed, and no kubeconfig renewed; the \
                     collector tries again every 15 s"
                }
                _ => {
                    "correct what the message names; no UserCluster is removed meanwhile, and the collector tries again every \
                     15 s"
                }
            };
            findings.push(found.remedy(remedy));
        }
        let problems: Vec<_> = self
            .skipped
            .iter()
            .filter(|one| one.reason.is_problem())
            .collect();
        let failed = problems
            .iter()
            .find(|one| one.reason == SkipReason::AccountFailed);
        if let Some(first) = failed.or(problems.first()) {
            let details = first.message.as_ref();
            let details = details.map_or_else(String::new, |message| format!(": {message}"));
            let message = format!(
                "cluster source {}: {} of its clusters get no UserCluster or no account, e.g. {} ({}{details})",
                self.name,
                problems.len(),
                first.key,
                first.reason.as_str(),
            );
            let severity = if failed.is_some() {
                Severity::Warning
            } else {
                Severity::Info
            };
            let found = Finding::new(
                CLUSTER_SOURCE_SKIPPED,
                severity,
                subject,
                first.reason.as_str(),
                message,
            );
            findings.push(found.with("clusters", problems.len()).remedy(
                "kubectl get clustersource -o yaml lists them with the reason; rename or remove the other UserCluster, raise \
                 spec.maxClusters, or exclude them with spec.namePattern; for AccountFailed, correct what the message names: \
                 the collector tries again within 30 minutes",
            ));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use strum::VariantNames as _;
    use virtfleet_collector_core::cluster_source::{HeldRemoval, SkipReason};

    use super::*;

    fn source() -> ClusterSource {
        let object = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "ClusterSource",
            "metadata": { "name": "seed", "generation": 2 }, "spec": { "kind": "KKP" },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn reasons_have_the_published_names() {
        assert_eq!(
            ReadyReason::VARIANTS.join(" "),
            "Synced Suspended Invalid Unreachable Unauthorized CredentialsFailed InfraFailed RemovalHeld LeadershipLost"
        );
    }

    #[test]
    fn a_status_is_written_once_and_counts_survive_a_failure() {
        let plan = SourcePlan {
            selected: 3,
            skipped: vec![SkippedCluster {
                key: "a".into(),
                reason: SkipReason::NameTaken,
                message: None,
            }],
            ..SourcePlan::default()
        };
        let mut report = SourceReport::planned(&source(), 4, &plan, Vec::new());
        report.managed = 2;
        let first = report.status(None, "t1").unwrap();
        assert_eq!((first.found, first.selected, first.user_clusters), (4, 3, 2));
        assert_eq!(report.status(Some(&first), "t2"), None);
        assert_eq!(report.findings().len(), 1);
        let failed = SourceReport::failed(&source(), ReadyReason::Unreachable, "no route".into());
        let second = failed.status(Some(&first), "t3").unwrap();
        assert_eq!((second.found, second.skipped.len()), (4, 1));
        let ready = &second.conditions[0];
        assert_eq!(
            (
                ready.status,
                ready.reason.as_str(),
                ready.last_transition_time.as_str()
            ),
            (ConditionStatus::False, "Unreachable", "t3")
        );
        assert_eq!(failed.findings()[0].id, CLUSTER_SOURCE_FAILED);
        let lost = SourceReport::failed(&source(), ReadyReason::LeadershipLost, String::new());
        assert!(lost.status(None, "t").is_none() && lost.findings().is_empty());
    }

    #[test]
    fn a_failed_account_says_when_its_token_ends() {
        let cluster =
            json!({ "metadata": { "name": "aaaa", "uid": "u" }, "spec": { "cloud": { "kubevirt": {} } } });
        let cluster = virtfleet_collector_core::cluster_source::read_cluster(source().spec.kind, &cluster);
        let one = WantedCluster {
            name: "aaaa".into(),
            cluster: cluster.unwrap(),
            vm_namespace: "cluster-aaaa".into(),
            is_suspended: false,
        };
        let mut report = SourceReport::planned(&source(), 1, &SourcePlan::default(), Vec::new());
        report.add_account_failure(&one, "no route", None);
        let validity = KnownCredential {
            issued: 0,
            expires: 3600,
        };
        report.add_account_failure(&one, "no route", Some(validity));
        let status = report.status(None, "t").unwrap();
        assert_eq!(status.conditions[0].status, ConditionStatus::True);
        let messages: Vec<_> = status
            .skipped
            .iter()
            .map(|one| one.message.as_deref().unwrap())
            .collect();
        assert_eq!(
            messages,
            [
                "it has no account yet: no route",
                "its present token ends at 1970-01-01T01:00:00Z: no route"
            ]
        );
        assert_eq!(status.skipped[0].reason, "AccountFailed");
        let finding = &report.findings()[0];
        assert_eq!(
            (finding.id.as_str(), finding.severity),
            (CLUSTER_SOURCE_SKIPPED, Severity::Warning)
        );
        assert!(
            finding.message.contains("AccountFailed: it has no account yet"),
            "{finding:?}"
        );
    }

    #[test]
    fn a_source_that_refuses_its_kubeconfig_says_what_to_do() {
        let plan = SourcePlan::default();
        let mut before = SourceReport::planned(&source(), 3, &plan, Vec::new());
        before.managed = 3;
        let before = before.status(None, "t1").unwrap();
        let refused = SourceReport::failed(&source(), ReadyReason::Unauthorized, "status 401".into());
        let status = refused.status(Some(&before), "t2").unwrap();
        assert_eq!((status.found, status.user_clusters), (3, 3));
        assert_eq!(status.conditions[0].reason, "Unauthorized");
        let finding = &refused.findings()[0];
        assert_eq!(finding.reason, "Unauthorized");
        assert!(finding.remedy.contains("new kubeconfig"), "{finding:?}");
    }

    #[test]
    fn a_suspended_source_reports_only_failures() {
        let mut source = source();
        source.spec.suspend = true;
        let mut report = SourceReport::planned(&source, 1, &SourcePlan::default(), Vec::new());
        let status = report.status(None, "t").unwrap();
        assert_eq!(
            (status.found, status.conditions[0].reason.as_str()),
            (1, "Suspended")
        );
        assert!(report.findings().is_empty() && !report.is_ready() && !report.has_failed());
        report.add_failure(ReadyReason::CredentialsFailed, "blue: no route".into());
        let finding = &report.findings()[0];
        assert_eq!(finding.reason, "CredentialsFailed");
        assert!(finding.message.ends_with("blue: no route"), "{finding:?}");
    }

    #[test]
    fn held_removals_say_what_to_do() {
        let plan = SourcePlan {
            held: Some(HeldRemoval { removals: 3, of: 4 }),
            ..SourcePlan::default()
        };
        let mut report = SourceReport::planned(&source(), 1, &plan, Vec::new());
        report.add_failure(ReadyReason::InfraFailed, "other".into());
        let status = report.status(None, "t").unwrap();
        let message = &status.conditions[0].message;
        assert!(
            message.contains("allow-removal=true") && message.contains("and 1 more"),
            "{message}"
        );
    }
}
