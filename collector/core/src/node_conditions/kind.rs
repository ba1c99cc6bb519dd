//! Conditions that may be written to Nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::health::HealthCondition;

/// Prefix of the types of conditions that the collector writes to Nodes.
pub const NODE_CONDITION_PREFIX: &str = "virtfleet.io/";

/// A condition of the guest that may be written to its Node. All of them hold if they are `True`.
///
/// Conditions of the infra cluster are left out: a tenant reads its Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NodeConditionKind {
    /// The agent of the guest answers.
    AgentReporting,
    /// The declared disks are ready.
    DisksReady,
    /// The nameservers answer.
    #[serde(rename = "DNSReady")]
    DnsReady,
    /// The virtio queues fit the vCPUs, and no device has failed.
    VirtioTuned,
    /// The clock is right.
    TimeSynced,
}

impl NodeConditionKind {
    pub const ALL: [Self; 5] = [
        Self::AgentReporting,
        Self::DisksReady,
        Self::DnsReady,
        Self::VirtioTuned,
        Self::TimeSynced,
    ];

    /// The condition of the VM's health that it repeats.
    pub fn health(self) -> HealthCondition {
        match self {
            Self::AgentReporting => HealthCondition::AgentReporting,
            Self::DisksReady => HealthCondition::DisksReady,
            Self::DnsReady => HealthCondition::DnsReady,
            Self::VirtioTuned => HealthCondition::VirtioTuned,
            Self::TimeSynced => HealthCondition::TimeSynced,
        }
    }

    /// The name in a `UserCluster`.
    pub fn as_str(self) -> &'static str {
        self.health().as_str()
    }

    /// The type of the Node's condition, e.g. `virtfleet.io/DisksReady`.
    pub fn node_type(self) -> String {
        format!("{NODE_CONDITION_PREFIX}{}", self.as_str())
    }

    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}
