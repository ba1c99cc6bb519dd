//! Files that the agent writes for DNS.

use super::{ours, seen::Seen};

/// Second part of the header of the agent's files.
pub(super) const HEADER_TEXT: &str =
    "from the settings `dns`. Changes are undone; `dns.manage: off` takes it away.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OurFile {
    pub path: String,
    pub text: String,
    pub mode: u32,
}

/// First line of a file of the agent.
pub(super) fn header() -> String {
    format!("{} {HEADER_TEXT}\n", ours::MARK)
}

/// Whether the per-link settings of systemd-resolved can be reverted.
pub(super) fn has_resolvectl(seen: &Seen) -> bool {
    !seen.missing_tools.iter().any(|tool| tool == "resolvectl")
}
