//! Checks a node proof against the Node that a VM is (decision 0035).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use virtfleet_collector_core::enrolment::{ExpectedNode, KeyFingerprint, NoExpectedNode};
use virtfleet_runtime::tls::{NodeProofError, verify_node_proof};
use virtfleet_wire::{
    enrolment::EnrolmentEvidence,
    ids::{ClusterName, NodeName, VmKey},
    node_proof::NodeProof,
};
use x509_parser::{
    certificate::X509Certificate,
    prelude::{AttributeTypeAndValue, FromDer as _},
};

use crate::fleet::Fleet;

/// Common name of a kubelet's client certificate, before the name of its Node.
const NODE_USER_PREFIX: &str = "system:node:";
/// Organization of a kubelet's client certificate.
const NODES_GROUP: &str = "system:nodes";

/// Description of a certificate that cannot be read.
const UNREADABLE: &str = "a certificate without a readable subject";
/// Maximum number of VMs that are compared with one proof. Without a firmware UUID in their specs,
/// all VMs of one name have the same.
const MAX_CANDIDATES: usize = 1024;

/// Why a node proof says nothing about a VM.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NodeProofRefusal {
    #[error("it shows a node proof, and no VM has its SMBIOS UUID")]
    NoVm,
    /// There is no Node to compare with.
    #[error("it shows a node proof, and {0}")]
    NoNode(NoExpectedNode),
    /// The certificate is that of another user.
    #[error("the node proof is of {found}, and the VM is the Node {expected} of the UserCluster {cluster}")]
    OtherNode {
        /// The user of the certificate, quoted.
        found: String,
        expected: NodeName,
        cluster: ClusterName,
    },
    #[error("the node proof {reason} (UserCluster {cluster})")]
    Proof {
        /// The user cluster whose authorities were asked.
        cluster: ClusterName,
        /// Why it is not accepted.
        reason: NodeProofError,
    },
}

/// The VM for whose agent with this key a kubelet vouches, at a time in seconds since 1970.
///
/// # Errors
/// The proof fits no VM with the SMBIOS UUID of `evidence`; the reason is that of the VM that fits
/// best.
pub(super) fn vm_of_node_proof(
    fleet: &Fleet,
    proof: &NodeProof,
    evidence: &EnrolmentEvidence,
    key: KeyFingerprint,
    now: u64,
) -> Result<VmKey, NodeProofRefusal> {
    let uuid = evidence.smbios_uuid.ok_or(NodeProofRefusal::NoVm)?;
    let mut refusal = NodeProofRefusal::NoVm;
    for vm in fleet.read(|index| index.vms_with_uuid(uuid, MAX_CANDIDATES)) {
        let checked = fleet
            .read(|index| index.expected_node(&vm))
            .map_err(NodeProofRefusal::NoNode)
            .and_then(|expected| check_node_proof(proof, &expected, key, now));
        match checked {
            Ok(()) => return Ok(vm),
            Err(next) if next.closeness() >= refusal.closeness() => refusal = next,
            Err(_) => {}
        }
    }
    Err(refusal)
}

impl NodeProofRefusal {
    /// How much of the proof fits.
    fn closeness(&self) -> u8 {
        match self {
            Self::NoVm => 0,
            Self::NoNode(_) => 1,
            Self::OtherNode { .. } => 2,
            Self::Proof { .. } => 3,
        }
    }
}

/// Checks that the kubelet of `expected` vouches for the agent's key, at a time in seconds since
/// 1970.
///
/// # Errors
/// Why it does not.
fn check_node_proof(
    proof: &NodeProof,
    expected: &ExpectedNode,
    key: KeyFingerprint,
    now: u64,
) -> Result<(), NodeProofRefusal> {
    // Before any signature is verified, which costs more.
    let found = proof
        .chain
        .first()
        .and_then(|text| STANDARD.decode(text).ok())
        .map_or_else(|| Err(UNREADABLE.to_owned()), |der| node_of(&der));
    if found.as_deref() != Ok(expected.node.as_str()) {
        return Err(NodeProofRefusal::OtherNode {
            found: found.map_or_else(|user| user, |node| format!("the Node {node:?}")),
            expected: expected.node.clone(),
            cluster: expected.cluster.clone(),
        });
    }
    let authorities = expected.authorities.as_bytes();
    let verified = verify_node_proof(proof, authorities, key.as_bytes(), now);
    verified.map(drop).map_err(|reason| NodeProofRefusal::Proof {
        cluster: expected.cluster.clone(),
        reason,
    })
}

/// The Node of a kubelet's client certificate, or a description of another user.
fn node_of(certificate: &[u8]) -> Result<String, String> {
    let unreadable = || UNREADABLE.to_owned();
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    let subject = certificate.subject();
    let mut names = subject.iter_common_name().map(AttributeTypeAndValue::as_str);
    let (Some(Ok(name)), None) = (names.next(), names.next()) else {
        return Err(unreadable());
    };
    let is_node = subject
        .iter_organization()
        .any(|group| group.as_str() == Ok(NODES_GROUP));
    match name.strip_prefix(NODE_USER_PREFIX) {
        Some(node) if is_node => Ok(node.to_owned()),
        _ => Err(format!("the user {name:?}")),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
        ExtendedKeyUsagePurpose, IsCa, KeyPair,
    };
    use virtfleet_runtime::tls::sign_node_proof;

    use super::*;

    /// 2026-06-01, in seconds since 1970.
    const NOW: u64 = 1_780_272_000;
    const KEY: [u8; 32] = [7; 32];

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// The proof of a client with these common names and organizations.
    fn proof(authority: &Authority, names: &[&str], groups: &[&str]) -> NodeProof {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        for name in names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let file = params.signed_by(&key, authority).unwrap().pem() + &key.serialize_pem();
        sign_node_proof(file.as_bytes(), &KEY).unwrap()
    }

    fn check(proof: &NodeProof, authority: &Authority) -> Result<(), String> {
        let expected = ExpectedNode {
            cluster: "blue".parse().unwrap(),
            node: "w0".parse().unwrap(),
            authorities: authority.pem().into(),
        };
        check_node_proof(proof, &expected, KeyFingerprint::from_bytes(KEY), NOW)
            .map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn the_kubelet_of_the_vms_node_vouches() {
        let authority = authority();
        check(
            &proof(&authority, &["system:node:w0"], &["system:nodes"]),
            &authority,
        )
        .unwrap();
    }

    #[test]
    fn other_users_of_the_cluster_do_not() {
        let authority = authority();
        for (names, groups, found) in [
            (&["system:node:w1"][..], &["system:nodes"][..], "the Node \"w1\""),
            (&["system:node:w0"], &[], "the user \"system:node:w0\""),
            (&["system:node:w0"], &["system:masters"], "the user"),
            (&["admin"], &["system:nodes"], "the user \"admin\""),
            (&[], &["system:nodes"], "without a readable subject"),
        ] {
            let refusal = check(&proof(&authority, names, groups), &authority).unwrap_err();
            assert!(refusal.contains(found), "{names:?}: {refusal}");
            assert!(
                refusal.contains("the Node w0 of the UserCluster blue"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn the_kubelet_of_another_cluster_does_not() {
        let (ours, theirs) = (authority(), authority());
        let refusal = check(&proof(&theirs, &["system:node:w0"], &["system:nodes"]), &ours).unwrap_err();
        assert!(refusal.contains("reject"), "{refusal}");
        assert!(refusal.contains("UserCluster blue"), "{refusal}");
    }
}
