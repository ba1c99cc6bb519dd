//! The two kinds of roots.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a root signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RootKind {
    /// Certificates of agents.
    Agents,
    /// Certificates of clients of agents: collectors and readers.
    Clients,
}

impl RootKind {
    pub const ALL: [Self; 2] = [Self::Agents, Self::Clients];

    /// The name in commands, file names and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Clients => "clients",
        }
    }
}

impl fmt::Display for RootKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
