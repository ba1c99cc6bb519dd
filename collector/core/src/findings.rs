//! The ids of the collector's findings, and how they are made. `docs/findings-collector.md` explains each.

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace, VmKey},
};

/// Two or more `UserCluster`s select one VM.
pub const TENANT_AMBIGUOUS: &str = "tenant-ambiguous";
/// A VM's labels name a user cluster that has no `UserCluster`.
pub const TENANT_PENDING: &str = "tenant-pending";
/// A VM's labels name a user cluster whose `UserCluster` does not select it.
pub const TENANT_LABEL_UNMATCHED: &str = "tenant-label-unmatched";
/// A VMI has no `status`.
pub const VMI_WITHOUT_STATUS: &str = "vmi-without-status";
/// A VMI stands on a node that the inventory does not have.
pub const INFRA_NODE_UNKNOWN: &str = "infra-node-unknown";
/// Nodes are given for a cluster without `UserCluster`.
pub const USER_CLUSTER_MISSING: &str = "user-cluster-missing";
/// Two or more VMIs have one firmware UUID.
pub const DUPLICATE_FIRMWARE_UUID: &str = "duplicate-firmware-uuid";
/// Two or more guests report one SMBIOS UUID.
pub const DUPLICATE_CLAIMED_UUID: &str = "duplicate-claimed-uuid";
/// Two or more guests report one boot id.
pub const DUPLICATE_BOOT_ID: &str = "duplicate-boot-id";
/// Two or more VMs would be dialled at one address.
pub const DUPLICATE_ADDRESS: &str = "duplicate-address";
/// Two or more Nodes name one VM in their `providerID`.
pub const NODE_AMBIGUOUS: &str = "node-ambiguous";
/// A Node has the VM's name and a `providerID` that names something else.
pub const NODE_PROVIDER_DIFFERS: &str = "node-provider-differs";
/// A Node was joined only by the host name that the guest claims.
pub const NODE_BY_HOSTNAME: &str = "node-by-hostname";
/// Two or more guests claim the host name of one Node.
pub const NODE_CLAIMED_TWICE: &str = "node-claimed-twice";
/// The guest's SMBIOS UUID is not the VMI's.
pub const IDENTITY_UUID_MISMATCH: &str = "identity-uuid-mismatch";
/// The guest's host name is not the VMI's.
pub const IDENTITY_HOSTNAME_DIFFERS: &str = "identity-hostname-differs";
/// The guest does not have a MAC address that the VMI has.
pub const IDENTITY_MAC_MISMATCH: &str = "identity-mac-mismatch";
/// The guest believes that it stands on another infra node.
pub const CLAIM_INFRA_NODE_DIFFERS: &str = "claim-infra-node-differs";
/// The guest's kubelet sets a zone that is not the infra node's.
pub const CLAIM_ZONE_STALE: &str = "claim-zone-stale";
/// The guest's kubelet sets a region that is not the infra node's.
pub const CLAIM_REGION_STALE: &str = "claim-region-stale";
/// The chassis asset tag names another VM.
pub const CLAIM_VM_DIFFERS: &str = "claim-vm-differs";
/// A manifest cannot be used; its last good state stays.
pub const MANIFEST_BROKEN: &str = "manifest-broken";
/// A manifest holds an object of a kind that is not used.
pub const MANIFEST_KIND_IGNORED: &str = "manifest-kind-ignored";
/// An object is in two manifests.
pub const MANIFEST_DUPLICATE_OBJECT: &str = "manifest-duplicate-object";
/// A manifest lies where nothing is read from.
pub const MANIFEST_MISPLACED: &str = "manifest-misplaced";
/// The manifest folder cannot be read; the last good state stays.
pub const INVENTORY_FOLDER_UNREADABLE: &str = "inventory-folder-unreadable";
/// A watch of the infra cluster has not listed completely yet.
pub const INVENTORY_WATCH_WAITING: &str = "inventory-watch-waiting";
/// A watch of the infra cluster fails; its last known state stays.
pub const INVENTORY_WATCH_FAILING: &str = "inventory-watch-failing";
/// A kind that the collector can do without cannot be watched.
pub const INVENTORY_KIND_ABSENT: &str = "inventory-kind-absent";
/// An object of a live cluster cannot be read; its last good state stays.
pub const INVENTORY_OBJECT_UNREADABLE: &str = "inventory-object-unreadable";
/// A user cluster has no kubeconfig yet.
pub const USER_CLUSTER_PENDING: &str = "user-cluster-pending";
/// A user cluster's kubeconfig cannot be used, or its API server does not answer as it should; its last known Nodes stay.
pub const USER_CLUSTER_UNREACHABLE: &str = "user-cluster-unreachable";
/// A user cluster's API server sends more than is kept of a user cluster; its last known Nodes stay.
pub const USER_CLUSTER_FAILED: &str = "user-cluster-failed";
/// A user cluster's VMs are in a namespace that is not watched.
pub const USER_CLUSTER_UNWATCHED: &str = "user-cluster-unwatched";
/// The `clusterSelector` of a `LabelPropagation` selects no `UserCluster`.
pub const POLICY_SELECTS_NOTHING: &str = "policy-selects-nothing";

/// Whether a finding of this id means that objects may exist that the inventory does not show.
pub fn leaves_gaps(id: &str) -> bool {
    [
        MANIFEST_BROKEN,
        INVENTORY_FOLDER_UNREADABLE,
        INVENTORY_WATCH_WAITING,
        INVENTORY_WATCH_FAILING,
        INVENTORY_OBJECT_UNREADABLE,
    ]
    .contains(&id)
}

/// Whose objects may be missing while a finding of this kind stands; none when it leaves no gap. The evidence `cluster` or
/// `namespace` confines it: what one tenant breaks must not count against the others.
pub fn gap(finding: &Finding) -> Option<Gap> {
    let named = |name: &str| finding.evidence.get(name).map(String::as_str);
    let of_cluster = [USER_CLUSTER_UNREACHABLE, USER_CLUSTER_FAILED].contains(&finding.id.as_str());
    if !leaves_gaps(&finding.id) && !of_cluster {
        return None;
    }
    let cluster = named("cluster").and_then(|name| name.parse().ok());
    let namespace = named("namespace").and_then(|name| name.parse().ok());
    Some(match (cluster, namespace) {
        (Some(cluster), _) => Gap::Cluster(cluster),
        (None, Some(namespace)) => Gap::Namespace(namespace),
        (None, None) => Gap::Fleet,
    })
}

/// Whose objects may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// Anybody's.
    Fleet,
    /// Nodes of this user cluster.
    Cluster(ClusterName),
    /// VMs of this namespace.
    Namespace(Namespace),
}

/// A finding about a VM.
pub(crate) fn vm(id: &str, severity: Severity, vm: &VmKey, reason: &str, message: String) -> Finding {
    Finding::new(id, severity, ("VM", &vm.to_string()), reason, message)
}

/// The most characters of a guest's word that are repeated in a view or a finding.
const MAX_WORD: usize = 200;

/// What a guest said, fit for a terminal and a log: control characters escaped, cut after 200 characters.
pub(crate) fn word(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_WORD));
    for (count, char) in text.chars().enumerate() {
        if count == MAX_WORD {
            out.push('…');
            break;
        }
        // Bidirectional overrides reorder what a person reads around them.
        if char.is_control()
            || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            out.extend(char.escape_unicode());
        } else {
            out.push(char);
        }
    }
    out
}

/// Gives each finding the time at which `old` had it first, else `now`.
pub(crate) fn keep_since(old: &[Finding], new: &mut [Finding], now: &str) {
    for finding in new.iter_mut().filter(|finding| finding.since.is_empty()) {
        let known = old
            .iter()
            .find(|known| known.id == finding.id && known.subject == finding.subject);
        known
            .map_or(now, |known| known.since.as_str())
            .clone_into(&mut finding.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_explained() {
        let page = include_str!("../../../docs/findings-collector.md");
        let source = include_str!("findings.rs");
        let constants = source
            .lines()
            .filter(|line| line.starts_with("pub const ") && line.contains(": &str"));
        let ids: Vec<_> = constants.filter_map(|line| line.split('"').nth(1)).collect();
        assert!(ids.len() > 20 && ids.contains(&MANIFEST_BROKEN));
        for id in ids {
            assert!(
                page.contains(&format!("| `{id}`")),
                "docs/findings-collector.md does not explain {id}"
            );
        }
    }

    #[test]
    fn a_guests_word_is_cut_and_cannot_move_the_cursor() {
        assert_eq!(word("vm-1"), "vm-1");
        assert_eq!(word("a\u{1b}[2Jb\nc\u{202e}"), "a\\u{1b}[2Jb\\u{a}c\\u{202e}");
        assert_eq!(word(&"é".repeat(300)).chars().count(), MAX_WORD + 1);
    }

    #[test]
    fn a_finding_keeps_the_time_it_was_first_seen() {
        let make = |id| Finding::new(id, Severity::Info, ("VM", "a/b"), "R", "m");
        let mut first = vec![make("x")];
        keep_since(&[], &mut first, "t1");
        let mut second = vec![make("y"), make("x")];
        keep_since(&first, &mut second, "t2");
        assert_eq!((second[0].since.as_str(), second[1].since.as_str()), ("t2", "t1"));
    }
}
