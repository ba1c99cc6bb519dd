//! Counters of the connections that the agent opens.

use std::collections::BTreeMap;

use virtfleet_agent_core::push::record::PushFailureReason;

/// Counts since the agent started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushCounters {
    /// Connections that the agent tried to open.
    pub attempts: u64,
    /// Connections that a host accepted.
    pub connections: u64,
    /// Connections that led to no pull, by reason; all reasons.
    pub failures: BTreeMap<PushFailureReason, u64>,
}

impl Default for PushCounters {
    fn default() -> Self {
        Self {
            attempts: 0,
            connections: 0,
            failures: PushFailureReason::ALL.iter().map(|&one| (one, 0)).collect(),
        }
    }
}
