//! Owner and mode of a directory.

use serde::{Deserialize, Serialize};

/// Owner for chown(2), and a mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// User: a name or a number.
    pub user: Option<String>,
    /// Group: a name or a number.
    pub group: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
}
