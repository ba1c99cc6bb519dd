//! State of the declared disks: `/run/virtfleet/state/disks.json`, the source of the report, the
//! metrics and `doctor`.

use serde::{Deserialize, Serialize};
use virtfleet_wire::finding::Finding;

use super::{health::Health, journal::AuditRecord, plan::Refusal};

/// Format version of the file.
pub const FORMAT: u32 = 1;

/// State of a declared disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum DiskStatus {
    Ready,
    /// Steps are pending; the next run applies them.
    #[default]
    Pending,
    /// The agent does nothing; the refusals say why.
    Refused,
    Failed,
    /// No disk matches.
    Missing,
}

impl DiskStatus {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Name of the state in output.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Place of a declared disk with several places: a bind mount of a directory of its filesystem.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlaceState {
    /// Mount point.
    pub path: String,
    /// Directory at the top of the filesystem.
    pub directory: String,
    pub mounted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskState {
    pub name: String,
    pub standing: DiskStatus,
    /// Key by which the device was matched, as text; empty without a match.
    pub key: String,
    /// Kernel name of the device; empty without one.
    pub device: String,
    /// Serial of the device as the guest sees it.
    pub serial: String,
    /// Size of the device in bytes; 0 without one.
    pub size_bytes: u64,
    /// Declared filesystem, e.g. `xfs`.
    pub filesystem: String,
    /// UUID of the filesystem, if known.
    pub uuid: String,
    /// Declared mount point; empty for swap.
    ///
    /// With [`Self::places`] it is the private mount point of the whole filesystem.
    pub mount_point: String,
    /// Places, if the disk has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceState>,
    /// Size of the filesystem in bytes, if known.
    pub filesystem_bytes: Option<u64>,
    /// Whether containerd and kubelet wait for it.
    pub required: bool,
    /// Whether unused blocks are discarded.
    pub discard: bool,
    /// Whether its container was opened with the recovery key, because its own key does not open
    /// it.
    pub opened_by_recovery: bool,
    /// Reasons why nothing, or not everything, is done.
    pub refusals: Vec<Refusal>,
    pub notes: Vec<String>,
    /// Description of the proof before it was formatted here; empty if it was not.
    pub proof: String,
    /// Failed step, with the error.
    pub error: Option<String>,
    /// Names of the steps of the last run.
    pub done: Vec<String>,
    /// Health, if the disk is mounted or active swap.
    pub health: Option<Health>,
    /// Last lines of the audit record about it, oldest first.
    pub audit: Vec<AuditRecord>,
}

/// State of all declared disks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisksState {
    /// [`FORMAT`].
    pub v: u32,
    pub boot_id: String,
    /// Time of writing, `CLOCK_BOOTTIME` in nanoseconds.
    pub at_boottime_ns: u64,
    /// Disks in the order of the settings.
    pub disks: Vec<DiskState>,
    /// Error that prevented the whole run, e.g. that devices cannot be listed.
    pub error: Option<String>,
    pub findings: Vec<Finding>,
}

impl DisksState {
    /// Returns a summary in one line: states, errors, and what the last run did.
    pub fn summary(&self) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        let mut parts: Vec<String> = DiskStatus::ALL
            .iter()
            .filter_map(|standing| {
                let of = self.disks.iter().filter(|disk| disk.standing == *standing);
                let count = of.count();
                (count > 0).then(|| format!("{count} {}", standing.word()))
            })
            .collect();
        let reasons = self
            .disks
            .iter()
            .filter(|disk| disk.standing != DiskStatus::Ready);
        parts.extend(reasons.map(|disk| format!("{}: {}", disk.name, disk.reason())));
        let done: Vec<String> = self
            .disks
            .iter()
            .filter(|disk| !disk.done.is_empty())
            .map(|disk| format!("{}: did {}", disk.name, disk.done.join(", ")))
            .collect();
        parts.extend(done);
        if parts.is_empty() {
            parts.push("disks that are no longer declared were removed".to_owned());
        }
        parts.join("; ")
    }

    /// Returns its age at `now` (`CLOCK_BOOTTIME`, nanoseconds), in milliseconds.
    pub fn age_ms(&self, now: u64) -> u64 {
        now.saturating_sub(self.at_boottime_ns) / 1_000_000
    }

    /// Returns the required disks that are not ready, with a short reason.
    pub fn absent(&self) -> Vec<(&str, String)> {
        let wanting = self
            .disks
            .iter()
            .filter(|disk| disk.required && disk.standing != DiskStatus::Ready);
        wanting.map(|disk| (disk.name.as_str(), disk.reason())).collect()
    }
}

impl DiskState {
    /// Returns its places, else its mount point; empty for swap. Places that are not mounted are
    /// marked.
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

    /// Returns the reason of its state in one sentence.
    pub fn reason(&self) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        match (self.refusals.first(), self.standing) {
            (Some(refusal), _) => refusal.message.clone(),
            (None, DiskStatus::Ready) => self.notes.first().unwrap_or(&self.proof).clone(),
            (None, DiskStatus::Missing) => "no disk matches".to_owned(),
            (None, _) => "not all steps are done yet".to_owned(),
        }
    }

    /// Returns the next command for the admin; empty if there is none.
    pub fn next(&self) -> String {
        match (self.refusals.first(), self.standing) {
            (_, DiskStatus::Ready) => String::new(),
            (Some(refusal), _) if !refusal.remedy.is_empty() => refusal.remedy.clone(),
            (_, DiskStatus::Failed) => {
                "journalctl -b -u virtfleet-provision.service -u virtfleet-reconcile.service".to_owned()
            }
            _ => "sudo virtfleet-agent plan disks".to_owned(),
        }
    }
}
