//! One entry of a VM's timeline.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::NodeName;

use crate::{findings::escaped, pull_result::UnixMs};

/// Maximum bytes of an entry's text.
const MAX_TEXT_BYTES: usize = 240;

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum TimelineKind {
    /// The verdict, its cause or its reason changed.
    Verdict,
    /// The VM was started, stopped, paused, or replaced.
    State,
    /// A live migration began, ended or failed.
    Migration,
    /// The VM is on another infra node.
    Placement,
    /// The guest was paused, by its clocks.
    Pause,
    /// The guest suspended itself, or its wall clock was set.
    Clock,
    /// The guest has booted again.
    Restart,
    /// The VM's addresses changed.
    Address,
    /// A finding appeared, or is gone.
    Finding,
}

impl TimelineKind {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in JSON and in filters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One thing that happened to a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// When it happened, in milliseconds since 1970: by KubeVirt or by the guest where they say,
    /// else when the collector saw it.
    pub at_ms: UnixMs,
    /// What it is about.
    pub kind: TimelineKind,
    /// One sentence.
    pub text: String,
    /// The id of the finding, for [`TimelineKind::Finding`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
    /// Infra nodes that the text names, which the inventory may not have any more; internal.
    #[serde(skip)]
    pub hosts: Box<[NodeName]>,
}

impl TimelineEntry {
    /// An entry; the text may contain data of a guest: it is escaped and cut.
    pub(crate) fn new(at_ms: UnixMs, kind: TimelineKind, text: impl std::fmt::Display) -> Self {
        Self {
            at_ms,
            kind,
            text: escaped(text, MAX_TEXT_BYTES),
            finding: None,
            hosts: Box::default(),
        }
    }

    /// Sets the infra nodes that the text names.
    pub(super) fn naming<'a>(self, hosts: impl IntoIterator<Item = &'a NodeName>) -> Self {
        Self {
            hosts: hosts.into_iter().cloned().collect(),
            ..self
        }
    }

    pub(super) fn about(self, finding: &str) -> Self {
        Self {
            finding: Some(escaped(finding, MAX_TEXT_BYTES)),
            ..self
        }
    }
}
