//! What came of the declared disks: `/run/virtfleet/state/disks.json`, from which the report, the metrics and the doctor are made.

use serde::{Deserialize, Serialize};
use virtfleet_wire::finding::Finding;

use super::{health::Health, journal::AuditRecord, plan::Refusal};

/// The format of the file.
pub const FORMAT: u32 = 1;

/// How a declared disk stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// As asked for.
    Ready,
    /// Something is left to be done, which the next pass does.
    #[default]
    Pending,
    /// Nothing is done to it, and the refusals say why.
    Refused,
    /// A step failed.
    Failed,
    /// No disk matches.
    Missing,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ready,
        Self::Pending,
        Self::Refused,
        Self::Failed,
        Self::Missing,
    ];

    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Pending => "pending",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}

/// A place that a declared disk shares with others: a directory of its filesystem is mounted there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlaceState {
    /// Where.
    pub path: String,
    /// The directory at the top of the filesystem.
    pub directory: String,
    /// Whether it is mounted there.
    pub mounted: bool,
}

/// One declared disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskState {
    /// Its name in the settings.
    pub name: String,
    /// How it stands.
    pub standing: Standing,
    /// By what it was found, in words; empty when it was not.
    pub key: String,
    /// The kernel's name of the device; empty without one.
    pub device: String,
    /// The device's serial as the guest sees it.
    pub serial: String,
    /// The device's size in bytes; 0 without one.
    pub size_bytes: u64,
    /// What it is declared as, e.g. `xfs`.
    pub filesystem: String,
    /// The filesystem's UUID, when it is known.
    pub uuid: String,
    /// Where it is declared to be mounted; empty for swap.
    ///
    /// With [`Self::places`] it is the private mount point of the whole filesystem.
    pub mount_point: String,
    /// Its places, when it has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceState>,
    /// The filesystem's size in bytes, when it is known.
    pub filesystem_bytes: Option<u64>,
    /// Whether containerd and kubelet wait for it.
    pub required: bool,
    /// Whether unused blocks are to be given back.
    pub discard: bool,
    /// Whether its container was opened with the recovery key, because its own key does not open it.
    pub opened_by_recovery: bool,
    /// Why nothing, or not all, is done.
    pub refusals: Vec<Refusal>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// How much of the disk was proven blank before it was formatted here; empty when it was not.
    pub proof: String,
    /// The step that failed, and how.
    pub error: Option<String>,
    /// What this pass did, a word a step.
    pub done: Vec<String>,
    /// How it is doing, when it is in its place.
    pub health: Option<Health>,
    /// The last lines of the audit record that are about it, oldest first.
    pub audit: Vec<AuditRecord>,
}

/// All declared disks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisksState {
    /// [`FORMAT`].
    pub v: u32,
    /// The boot.
    pub boot_id: String,
    /// When it was written, by the boot clock, in nanoseconds.
    pub at_boottime_ns: u64,
    /// In the order of the settings.
    pub disks: Vec<DiskState>,
    /// Why the pass could do nothing at all, e.g. that devices cannot be listed.
    pub error: Option<String>,
    /// What somebody should know.
    pub findings: Vec<Finding>,
}

impl DisksState {
    /// One line for people: states, errors, and what the last run did.
    pub fn summary(&self) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        let mut parts: Vec<String> = Standing::ALL
            .iter()
            .filter_map(|standing| {
                let of = self.disks.iter().filter(|disk| disk.standing == *standing);
                let count = of.count();
                (count > 0).then(|| format!("{count} {}", standing.word()))
            })
            .collect();
        let reasons = self.disks.iter().filter(|disk| disk.standing != Standing::Ready);
        parts.extend(reasons.map(|disk| format!("{}: {}", disk.name, disk.reason())));
        let done: Vec<String> = self
            .disks
            .iter()
            .filter(|disk| !disk.done.is_empty())
            .map(|disk| format!("{}: did {}", disk.name, disk.done.join(", ")))
            .collect();
        parts.extend(done);
        if parts.is_empty() {
            parts.push("what was declared before is taken out".to_owned());
        }
        parts.join("; ")
    }

    /// How old it is at `now` (boot clock, nanoseconds), in milliseconds.
    pub fn age_ms(&self, now: u64) -> u64 {
        now.saturating_sub(self.at_boottime_ns) / 1_000_000
    }

    /// Required disks that are not ready, with the reason in a few words.
    pub fn absent(&self) -> Vec<(&str, String)> {
        let wanting = self
            .disks
            .iter()
            .filter(|disk| disk.required && disk.standing != Standing::Ready);
        wanting.map(|disk| (disk.name.as_str(), disk.reason())).collect()
    }
}

impl DiskState {
    /// Where people find it: its places, else its mount point; empty for swap. A place that is not mounted is marked.
    pub fn places_text(&self) -> String {
        if self.places.is_empty() {
            return self.mount_point.clone();
        }
        let one = |place: &PlaceState| {
            let mark = if place.mounted { "" } else { " (not mounted)" };
            format!("{}{mark}", place.path)
        };
        let all: Vec<String> = self.places.iter().map(one).collect();
        all.join(", ")
    }

    /// Why it stands as it does, in one sentence.
    pub fn reason(&self) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        match (self.refusals.first(), self.standing) {
            (Some(refusal), _) => refusal.message.clone(),
            (None, Standing::Ready) => self.notes.first().unwrap_or(&self.proof).clone(),
            (None, Standing::Missing) => "no disk matches".to_owned(),
            (None, _) => "not all is done yet".to_owned(),
        }
    }

    /// The next command to type; empty when there is none.
    pub fn next(&self) -> String {
        match (self.refusals.first(), self.standing) {
            (_, Standing::Ready) => String::new(),
            (Some(refusal), _) if !refusal.remedy.is_empty() => refusal.remedy.clone(),
            (_, Standing::Failed) => {
                "journalctl -b -u virtfleet-provision.service -u virtfleet-reconcile.service".to_owned()
            }
            _ => "sudo virtfleet-agent plan disks".to_owned(),
        }
    }
}
