//! Compares the identity that a guest reports with its VM in the inventory.
//!
//! A guest's report never decides anything (decision 9): equal values confirm, different ones are
//! findings.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_wire::{
    finding::{Finding, Severity},
    identity::{Claims, Identity, Sourced},
    ids::{MacAddr, Uuid},
};

use crate::{
    expected::{ExpectedIdentity, MacMatch, usable},
    facts::{InfraNode, Migration, Vmi},
    findings::{self, guest_text},
    report::KeptReport,
    view::{IdentityCheck, IdentityVerdict},
};

/// All comparisons, by name: `smbiosUuid`, `machineId` (which can only confirm), `hostname`,
/// `macs`.
pub fn checks(vmi: &Vmi, report: Option<&KeptReport>) -> BTreeMap<String, IdentityCheck> {
    let nothing = Identity::default();
    let identity = report.map_or(&nothing, |report| &report.identity);
    let expected = ExpectedIdentity::of(vmi);
    [
        ("smbiosUuid", smbios_uuid(&expected, identity)),
        ("machineId", machine_id(&expected, identity)),
        ("hostname", hostname(&expected, identity)),
        ("macs", macs(&expected, identity)),
    ]
    .into_iter()
    .map(|(name, check)| (name.to_owned(), check))
    .collect()
}

fn check(
    expected: Option<String>,
    claimed: Option<&Sourced<String>>,
    verdict: IdentityVerdict,
) -> IdentityCheck {
    IdentityCheck {
        expected,
        claimed: claimed.map(|claimed| guest_text(&claimed.value)),
        source: claimed.map(|claimed| guest_text(&claimed.source)),
        verdict,
    }
}

/// The SMBIOS UUID in the report; none for a placeholder.
pub fn claimed_uuid(report: &KeptReport) -> Option<Uuid> {
    let text = &report.identity.smbios_uuid.as_ref()?.value;
    text.parse().ok().filter(|uuid: &Uuid| !uuid.is_placeholder())
}

fn smbios_uuid(expected: &ExpectedIdentity, identity: &Identity) -> IdentityCheck {
    let claimed = identity.smbios_uuid.as_ref();
    let verdict = match claimed.map(|claimed| claimed.value.parse::<Uuid>()) {
        // Text that is no UUID is not the VMI's UUID either.
        Some(Err(_)) if expected.uuid.is_some() => IdentityVerdict::Disagrees,
        parsed => expected.compare_uuid(parsed.and_then(Result::ok)),
    };
    check(expected.uuid.map(|uuid| uuid.to_string()), claimed, verdict)
}

/// systemd fills an empty machine-id from the DMI UUID on KVM (machine-id(5)), so an equal one
/// confirms; a different one proves nothing, because images and admins may set any.
fn machine_id(expected: &ExpectedIdentity, identity: &Identity) -> IdentityCheck {
    let claimed = identity.machine_id.as_ref();
    let parsed = claimed.and_then(|claimed| claimed.value.parse::<Uuid>().ok());
    let verdict = match expected.compare_uuid(parsed) {
        IdentityVerdict::Confirmed => IdentityVerdict::Confirmed,
        _ => IdentityVerdict::Unknown,
    };
    check(expected.uuid.map(|uuid| uuid.to_string()), claimed, verdict)
}

fn hostname(expected: &ExpectedIdentity, identity: &Identity) -> IdentityCheck {
    let claimed = identity.hostname.as_ref();
    let verdict = expected.compare_hostname(claimed.map(|claimed| claimed.value.as_str()));
    check(Some(expected.hostname.clone()), claimed, verdict)
}

fn macs(expected: &ExpectedIdentity, identity: &Identity) -> IdentityCheck {
    let claimed: Option<BTreeSet<MacAddr>> = identity
        .interfaces
        .as_ref()
        .map(|interfaces| usable(interfaces.value.iter().filter_map(|interface| interface.mac)));
    let verdict = match claimed.as_ref().map(|claimed| expected.compare_macs(claimed)) {
        None | Some(MacMatch::Unknown) => IdentityVerdict::Unknown,
        Some(MacMatch::All) => IdentityVerdict::Confirmed,
        Some(MacMatch::Some | MacMatch::None) => IdentityVerdict::Disagrees,
    };
    let expected = &expected.macs;
    // A node with many pods has one veth each: list only the addresses that matter.
    let listed = |macs: &BTreeSet<MacAddr>| {
        macs.iter()
            .take(16)
            .map(MacAddr::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    IdentityCheck {
        expected: (!expected.is_empty()).then(|| listed(expected)),
        claimed: claimed.as_ref().map(|claimed| {
            let confirmed: BTreeSet<_> = claimed.intersection(expected).copied().collect();
            listed(if confirmed.is_empty() { claimed } else { &confirmed })
        }),
        source: identity
            .interfaces
            .as_ref()
            .map(|interfaces| guest_text(&interfaces.source)),
        verdict,
    }
}

/// The findings that follow from [`checks`].
pub fn identity_findings(vmi: &Vmi, checks: &BTreeMap<String, IdentityCheck>) -> Vec<Finding> {
    let rules = [
        (
            "smbiosUuid",
            findings::IDENTITY_UUID_MISMATCH,
            Severity::Critical,
            "UuidMismatch",
            "SMBIOS UUID",
            "find out which guest answers at this address: compare `virtfleet-agent report` in the guest with \
             spec.domain.firmware.uuid, and find an address or a certificate that two VMs share",
        ),
        (
            "hostname",
            findings::IDENTITY_HOSTNAME_DIFFERS,
            Severity::Info,
            "HostnameDiffers",
            "host name",
            "set spec.hostname of the VMI or `hostnamectl hostname` in the guest, if they should be the same",
        ),
        (
            "macs",
            findings::IDENTITY_MAC_MISMATCH,
            Severity::Warning,
            "MacMismatch",
            "set of MAC addresses",
            "compare `ip link` in the guest with status.interfaces of the VMI; a changed MAC loses bridged traffic",
        ),
    ];
    let mut found = Vec::new();
    for (name, id, severity, reason, what, remedy) in rules {
        let Some(check) = checks
            .get(name)
            .filter(|check| check.verdict == IdentityVerdict::Disagrees)
        else {
            continue;
        };
        let expected = check.expected.as_deref().unwrap_or_default();
        let claimed = check.claimed.as_deref().unwrap_or_default();
        let message = format!(
            "the guest of {} reports the {what} {claimed}, and its VMI has {expected}",
            vmi.key
        );
        found.push(
            findings::vm(id, severity, &vmi.key, reason, message)
                .with("expected", expected)
                .with("claimed", claimed)
                .with("source", check.source.as_deref().unwrap_or_default())
                .remedy(remedy),
        );
    }
    found
}

/// Compares the topology that the guest reports with the VM's placement; `node` is the infra node
/// of `vmi.node`.
pub fn claim_findings(
    vmi: &Vmi,
    migration: Option<&Migration>,
    node: Option<&InfraNode>,
    claims: &Claims,
) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(infra_node_claim(vmi, migration, claims));
    if let Some(node) = node {
        let pairs = [
            (
                "zone",
                findings::CLAIM_ZONE_STALE,
                "ZoneStale",
                node.zone(),
                "topology.kubernetes.io/zone",
                "failure-domain.beta.kubernetes.io/zone",
            ),
            (
                "region",
                findings::CLAIM_REGION_STALE,
                "RegionStale",
                node.region(),
                "topology.kubernetes.io/region",
                "failure-domain.beta.kubernetes.io/region",
            ),
        ];
        for (what, id, reason, placed, ga, beta) in pairs {
            let claimed = [ga, beta].into_iter().find_map(|key| {
                let claim = claims.kubelet_labels.get(key)?;
                (placed != Some(claim.value.as_str())).then_some((key, claim))
            });
            let Some((key, claim)) = claimed else { continue };
            let (value, placed) = (guest_text(&claim.value), placed.unwrap_or("none"));
            let message = format!(
                "kubelet in the guest of {} sets {key}={value}, and the VM runs in {what} {placed} (node {})",
                vmi.key, node.name
            );
            found.push(
                findings::vm(id, Severity::Warning, &vmi.key, reason, message)
                    .with("claimed", value)
                    .with("placed", placed)
                    .with("key", key)
                    .with("source", guest_text(&claim.source))
                    .with("infraNode", &node.name)
                    .remedy(format!(
                        "remove {key} from kubelet's --node-labels: every migration makes it stale"
                    )),
            );
        }
    }
    if let Some(claim) = claims
        .vm
        .as_ref()
        .filter(|claim| claim.value != vmi.key.to_string())
    {
        let value = guest_text(&claim.value);
        let message = format!("the chassis asset tag of {} names the VM {value}", vmi.key);
        found.push(
            findings::vm(
                findings::CLAIM_VM_DIFFERS,
                Severity::Warning,
                &vmi.key,
                "AssetTagDiffers",
                message,
            )
            .with("claimed", value)
            .with("source", guest_text(&claim.source))
            .remedy(
                "set spec.domain.chassis.asset of the VM to its own namespace/name; the VM was probably cloned",
            ),
        );
    }
    found
}

/// downwardMetrics follow a migration within seconds, and the last report may be older: while the
/// VM migrates, or while the guest still names the migration's source, the finding has severity
/// info.
fn infra_node_claim(vmi: &Vmi, migration: Option<&Migration>, claims: &Claims) -> Option<Finding> {
    let claim = claims.infra_node.as_ref()?;
    let placed = vmi.node.as_ref()?;
    if claim.value == placed.as_str() {
        return None;
    }
    let moving = migration.is_some_and(|migration| {
        let source = migration.source.as_ref();
        migration.in_progress() || source.is_some_and(|source| source.as_str() == claim.value)
    });
    let severity = if moving { Severity::Info } else { Severity::Warning };
    let value = guest_text(&claim.value);
    let message = format!(
        "the guest of {} reports that it runs on {value}, but status.nodeName is {placed}",
        vmi.key
    );
    Some(
        findings::vm(findings::CLAIM_INFRA_NODE_DIFFERS, severity, &vmi.key, "InfraNodeDiffers", message)
            .with("claimed", value)
            .with("placed", placed)
            .with("source", guest_text(&claim.source))
            .remedy("placement follows status.nodeName; if the difference persists, check the downwardMetrics of the VMI and virt-handler on that node"),
    )
}
