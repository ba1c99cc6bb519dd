//! Events before they are recorded.

use virtfleet_wire::ids::{ClusterName, Uid, VmKey};

/// The object of an Event (`regarding`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EventObject {
    /// A VMI.
    Vm {
        /// Its namespace and name.
        key: VmKey,
        /// Its incarnation.
        uid: Option<Uid>,
        /// The user cluster that it serves, for the limits of a tenant.
        cluster: Option<ClusterName>,
    },
    /// A `UserCluster`.
    UserCluster(ClusterName),
    /// A `LabelPropagation`.
    Policy(String),
}

/// An Event to record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NewEvent {
    /// The object.
    pub about: EventObject,
    /// Type `Warning`, else `Normal`.
    pub warning: bool,
    /// Machine-readable reason in `CamelCase`.
    pub reason: &'static str,
    /// Message; at most 1024 bytes of it are stored.
    pub note: String,
}

impl NewEvent {
    /// An Event of type `Normal`.
    pub fn normal(about: EventObject, reason: &'static str, note: String) -> Self {
        Self {
            about,
            warning: false,
            reason,
            note,
        }
    }

    /// An Event of type `Warning`.
    pub fn warning(about: EventObject, reason: &'static str, note: String) -> Self {
        Self {
            warning: true,
            ..Self::normal(about, reason, note)
        }
    }
}
