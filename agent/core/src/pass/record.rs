//! `/run/virtfleet/state/guest.json`: what came of the last pass of each stage in this boot.
//!
//! Readers take what they know: fields that a newer agent adds are passed over, absent ones have their defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Stage;

/// The record's format; a reader takes no other.
pub const FORMAT: u32 = 1;

/// How a step or a whole pass came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Done, or there was nothing to change.
    Ok,
    /// Not done; the message says why.
    Failed,
    /// Left out; the message says why. Also what an outcome of a newer agent is read as.
    #[default]
    #[serde(other)]
    Skipped,
}

impl Outcome {
    /// As in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// Something wrong with the settings on disk, which is why they are not applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingsProblem {
    /// The file.
    pub file: String,
    /// Its line, from 1; 0 when it is about the whole file or a default.
    pub line: usize,
    /// The key; empty when it is about the whole file.
    pub path: String,
    /// All of it in one line.
    pub message: String,
}

/// What came of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRecord {
    /// The step.
    pub name: String,
    /// How it came out.
    pub outcome: Outcome,
    /// What was done, or why it was not; one line.
    pub message: String,
    /// Whether it was left out because a step that it needs had failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
    /// What is wrong with the settings on disk (step `settings`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<SettingsProblem>,
}

/// What came of the last pass of a stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageRecord {
    /// How it came out.
    pub outcome: Outcome,
    /// When it began by the wall clock, nanoseconds since 1970. For people: it may have been set since.
    pub started_at: u64,
    /// When it ended, `CLOCK_BOOTTIME` in nanoseconds: its age is told by this.
    pub ended_at_boottime_ns: u64,
    /// How long it took, the wait for another pass included, in milliseconds.
    pub duration_ms: u64,
    /// What asked for it: names in `/run/virtfleet/ask`, sorted.
    pub triggers: Vec<String>,
    /// The agent's version.
    pub version: String,
    /// Its steps, in their order.
    pub steps: Vec<StepRecord>,
}

/// The whole record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestRecord {
    /// [`FORMAT`].
    pub v: u32,
    /// The boot that it speaks of; in another boot it says nothing.
    pub boot_id: String,
    /// By stage; those that have not run in this boot are absent.
    pub stages: BTreeMap<Stage, StageRecord>,
    /// The digest of the settings for which the agent was last restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted_for: Option<String>,
}

impl GuestRecord {
    /// An empty record of a boot.
    pub fn new(boot_id: &str) -> Self {
        Self {
            v: FORMAT,
            boot_id: boot_id.to_owned(),
            ..Self::default()
        }
    }

    /// How long ago a stage's last pass ended, in milliseconds.
    pub fn age_ms(&self, stage: Stage, boottime_ns: u64) -> Option<u64> {
        let ended = self.stages.get(&stage)?.ended_at_boottime_ns;
        Some(boottime_ns.saturating_sub(ended) / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_newer_agent_is_read() {
        let text = r#"{"v":1,"bootId":"b","novel":1,"stages":{"provision":{"outcome":"shiny","endedAtBoottimeNs":5000000,
            "steps":[{"name":"disks","outcome":"ok","message":"m","novel":[]}]}}}"#;
        let record: GuestRecord = serde_json::from_str(text).unwrap();
        let stage = &record.stages[&Stage::Provision];
        assert_eq!((stage.outcome, stage.steps.len()), (Outcome::Skipped, 1));
        assert_eq!(record.age_ms(Stage::Provision, 7_000_000), Some(2));
        assert_eq!(
            record.age_ms(Stage::Provision, 1),
            Some(0),
            "never from the future"
        );
        assert_eq!(record.age_ms(Stage::Dns, 1), None);
    }

    #[test]
    fn what_is_written_is_the_contract() {
        let mut record = GuestRecord::new("b");
        let step = StepRecord {
            name: "identity".into(),
            outcome: Outcome::Ok,
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
