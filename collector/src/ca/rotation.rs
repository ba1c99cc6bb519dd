//! A requested rotation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Authorities, CaError, RootKind, UnixSeconds};

/// A requested rotation: body of `POST /api/v1/ca/rotate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rotation {
    /// The root to replace.
    pub root: RootKind,
    /// Stop trusting the previous roots at once, e.g. because a key may have leaked. Agents with
    /// certificates of a previous root must enrol again.
    #[serde(default)]
    pub distrust_previous: bool,
    /// First remove the oldest cross-signed certificate of clients: VMs whose user-data has only
    /// the oldest root of clients no longer accept collectors.
    #[serde(default)]
    pub drop_oldest: bool,
}

impl Rotation {
    /// Applies the rotation.
    ///
    /// # Errors
    /// The roots are managed elsewhere, or too many are trusted already.
    pub fn apply(&self, authorities: &Authorities, now: UnixSeconds) -> Result<Authorities, CaError> {
        let rotated = if self.drop_oldest && self.root == RootKind::Clients {
            authorities.without_oldest_link().rotate(self.root, now)?
        } else {
            authorities.rotate(self.root, now)?
        };
        Ok(if self.distrust_previous {
            rotated.without_previous(self.root)
        } else {
            rotated
        })
    }
}
