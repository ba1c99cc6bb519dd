//! Hides names of the infra cluster from tenants: infra nodes, their zones and regions, and every
//! other value of their labels, such as racks. Each becomes a pseudonym, the same one wherever the
//! value occurs, so that a tenant can still tell which of its VMs share a host or a zone.
//!
//! ```text
//! typed fields (infraNode, zone, labels, …) ─▶ always replaced
//! sentences and reports                     ─▶ words that are infra names are replaced
//! ```
//! A page of a VM's agent is not changed: it has only what the guest itself knows.

mod labels;
mod story;
mod terms;
mod text;
mod views;

pub use terms::InfraTerms;

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use virtfleet_wire::ids::NodeName;

/// A keyed hash: without the key, a pseudonym cannot be found by hashing candidates.
pub type KeyedHash = Arc<dyn Fn(&str) -> [u8; 8] + Send + Sync>;

const PREFIX: &str = "infra-";

/// Replaces names of the infra cluster by pseudonyms.
#[derive(Clone)]
pub struct Redactor {
    hash: KeyedHash,
    terms: Arc<InfraTerms>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// A redactor for the infra cluster with these names.
    pub fn new(hash: KeyedHash, terms: Arc<InfraTerms>) -> Self {
        Self { hash, terms }
    }

    /// The pseudonym of a name or value: a valid name of a Node and a valid label value.
    fn pseudonym(&self, value: &str) -> String {
        let mut text = PREFIX.to_owned();
        for byte in (self.hash)(self.terms.canonical(value)) {
            // Writing to a String cannot fail.
            write!(text, "{byte:02x}").ok();
        }
        text
    }

    fn node(&self, name: &NodeName) -> Option<NodeName> {
        self.pseudonym(name.as_str()).parse().ok()
    }

    fn place(&self, place: Option<&String>) -> Option<String> {
        place.map(|place| self.pseudonym(place))
    }
}
