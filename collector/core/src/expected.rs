//! What the inventory knows of a VM's hardware and name, and its comparison with what a guest
//! shows. Reports ([`crate::identity`]) and enrolment ([`crate::enrolment`]) use the same
//! comparison.

use std::collections::BTreeSet;

use virtfleet_wire::ids::{MacAddr, Uuid};

use crate::{facts::Vmi, view::IdentityVerdict};

/// Maximum length of a host name's first label (RFC 1035).
const MAX_LABEL_CHARS: usize = 63;

/// Values of a VMI that its guest can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedIdentity {
    /// `spec.domain.firmware.uuid`; none if it is a placeholder.
    pub uuid: Option<Uuid>,
    /// First label of the host name that KubeVirt gives the guest, in lower case.
    pub hostname: String,
    /// Hardware addresses. Those that the guest agent may have reported are left out.
    pub macs: BTreeSet<MacAddr>,
}

/// Result of comparing sets of hardware addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacMatch {
    /// One side has no address.
    Unknown,
    /// The guest has every address of the VMI.
    All,
    Some,
    None,
}

impl ExpectedIdentity {
    pub fn of(vmi: &Vmi) -> Self {
        let macs = vmi.interfaces.iter().filter(|interface| !interface.mac_claimed);
        Self {
            uuid: vmi.firmware_uuid.filter(|uuid| !uuid.is_placeholder()),
            // KubeVirt uses `spec.hostname`, else the VMI's name up to its first dot.
            hostname: first_label(vmi.hostname.as_deref().unwrap_or(vmi.key.name.as_str())),
            macs: usable(macs.filter_map(|interface| interface.mac)),
        }
    }

    /// Compares the SMBIOS UUID. A placeholder means that the guest has none.
    pub fn compare_uuid(&self, claimed: Option<Uuid>) -> IdentityVerdict {
        match (self.uuid, claimed.filter(|uuid| !uuid.is_placeholder())) {
            (None, _) | (_, None) => IdentityVerdict::Unknown,
            (Some(expected), Some(claimed)) if expected == claimed => IdentityVerdict::Confirmed,
            (Some(_), Some(_)) => IdentityVerdict::Disagrees,
        }
    }

    /// Compares the host name: the first label, in any case.
    pub fn compare_hostname(&self, claimed: Option<&str>) -> IdentityVerdict {
        match claimed {
            None => IdentityVerdict::Unknown,
            Some(claimed) if first_label(claimed) == self.hostname => IdentityVerdict::Confirmed,
            Some(_) => IdentityVerdict::Disagrees,
        }
    }

    pub fn compare_macs(&self, claimed: &BTreeSet<MacAddr>) -> MacMatch {
        if self.macs.is_empty() || claimed.is_empty() {
            MacMatch::Unknown
        } else if self.macs.is_subset(claimed) {
            MacMatch::All
        } else if self.macs.is_disjoint(claimed) {
            MacMatch::None
        } else {
            MacMatch::Some
        }
    }
}

/// The addresses that identify an interface: all except zero.
pub(crate) fn usable(macs: impl Iterator<Item = MacAddr>) -> BTreeSet<MacAddr> {
    macs.filter(|mac| !mac.is_zero()).collect()
}

/// A host name up to its first dot, in lower case.
fn first_label(text: &str) -> String {
    let label = text.split('.').next().unwrap_or_default();
    label
        .chars()
        .take(MAX_LABEL_CHARS)
        .collect::<String>()
        .to_ascii_lowercase()
}
