//! `/run/virtfleet/state/guest.json`: the last run of each stage in this boot.
//!
//! Readers ignore unknown fields and use defaults for missing ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Stage;

/// Format version of the record. Readers reject every other version.
pub const FORMAT: u32 = 1;

/// Result of a step or of a whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// Done, or there was nothing to change.
    Ok,
    /// The message says why.
    Failed,
    /// Left out; the message says why. Readers also use this for a result that they do not know.
    #[default]
    #[serde(other)]
    Skipped,
}

impl RunOutcome {
    /// Name of the result in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// Problem in the settings files, because of which they are not applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingsProblem {
    pub file: String,
    /// Line number from 1; 0 if the problem concerns the whole file or a default.
    pub line: usize,
    /// Key of the setting; empty if the problem concerns the whole file.
    pub path: String,
    /// The whole message in one line.
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRecord {
    pub name: String,
    pub outcome: RunOutcome,
    /// What the step did, or why it did nothing; one line.
    pub message: String,
    /// Whether the step was left out because one of its dependencies failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
    /// Problems in the settings files (step `settings`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<SettingsProblem>,
}

/// Record of the last run of a stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageRecord {
    /// Overall result.
    pub outcome: RunOutcome,
    /// Start by the wall clock, nanoseconds since 1970. For display only: the clock may have been
    /// set.
    pub started_at: u64,
    /// End, `CLOCK_BOOTTIME` in nanoseconds. The age of the record is computed from this.
    pub ended_at_boottime_ns: u64,
    /// Duration in milliseconds, including the wait for another run.
    pub duration_ms: u64,
    /// Triggers of the run: names in `/run/virtfleet/ask`, sorted.
    pub triggers: Vec<String>,
    pub version: String,
    /// Steps, in the order in which they ran.
    pub steps: Vec<StepRecord>,
}

/// Records of all stages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestRecord {
    /// [`FORMAT`].
    pub v: u32,
    /// Boot to which the record applies; it is invalid in another boot.
    pub boot_id: String,
    /// Records by stage; a stage that has not run in this boot is absent.
    pub stages: BTreeMap<Stage, StageRecord>,
    /// Digest of the settings for which the agent was last restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted_for: Option<String>,
}

impl GuestRecord {
    /// Returns an empty record for a boot.
    pub fn new(boot_id: &str) -> Self {
        Self {
            v: FORMAT,
            boot_id: boot_id.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the time since the end of the stage's last run, in milliseconds.
    pub fn age_ms(&self, stage: Stage, boottime_ns: u64) -> Option<u64> {
        let ended = self.stages.get(&stage)?.ended_at_boottime_ns;
        Some(boottime_ns.saturating_sub(ended) / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_newer_agents_are_readable() {
        let text = r#"{"v":1,"bootId":"b","novel":1,"stages":{"provision":{"outcome":"shiny","endedAtBoottimeNs":5000000,
            "steps":[{"name":"disks","outcome":"ok","message":"m","novel":[]}]}}}"#;
        let record: GuestRecord = serde_json::from_str(text).unwrap();
        let stage = &record.stages[&Stage::Provision];
        assert_eq!((stage.outcome, stage.steps.len()), (RunOutcome::Skipped, 1));
        assert_eq!(record.age_ms(Stage::Provision, 7_000_000), Some(2));
        assert_eq!(record.age_ms(Stage::Provision, 1), Some(0), "never negative");
        assert_eq!(record.age_ms(Stage::Dns, 1), None);
    }

    #[test]
    fn serialised_record_matches_the_contract() {
        let mut record = GuestRecord::new("b");
        let step = StepRecord {
            name: "identity".into(),
            outcome: RunOutcome::Ok,
            message: "m".into(),
            ..StepRecord::default()
        };
        let stage = StageRecord {
            steps: vec![step],
            triggers: vec!["device".into()],
            ..StageRecord::default()
        };
        record.stages.insert(Stage::Reconcile, stage);
        assert_eq!(
            serde_json::to_value(&record).unwrap(),
            serde_json::json!({"v": 1, "bootId": "b", "stages": {"reconcile": {
                "outcome": "skipped", "startedAt": 0, "endedAtBoottimeNs": 0, "durationMs": 0, "triggers": ["device"],
                "version": "", "steps": [{"name": "identity", "outcome": "ok", "message": "m"}]}}})
        );
    }
}
