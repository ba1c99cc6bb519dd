//! Reasons for which a VM gets no certificate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::finding::Severity;

/// Reason for which a VM gets no certificate: a refusal of [`super::decide`], or a failed step.
/// Also the label `result` of `virtfleet_collector_enrolments_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EnrolmentReason {
    /// Since it was dialled, the VM was deleted, stopped, created again, or has another address.
    NotDialled,
    /// Neither the VirtualMachine nor the VMI has a UID.
    NoUid,
    /// Several VMs would be dialled at this address.
    AddressShared,
    /// The SMBIOS UUID is not the VMI's firmware UUID.
    UuidDiffers,
    /// The guest has none of the VMI's MAC addresses.
    MacDiffers,
    /// The guest's host name is not the VMI's.
    HostnameDiffers,
    /// The guest shows nothing that only this VM has, and no join token or node proof was checked.
    NotProved,
    /// The CSR has no nonce, or another than the one that was sent.
    NonceDiffers,
    /// The CSR's key is not the key with which the agent serves the connection.
    KeyNotOfConnection,
    /// The CSR requests names that the collector would not write.
    NamesDiffer,
    /// Another key is recorded for this incarnation.
    SecondKey,
    /// The key is recorded for another VM, or for an earlier incarnation and the agent has not
    /// replaced it; or the agent has the certificate of another VM.
    KeyOfAnotherVm,
    /// An admin has revoked the VM.
    Revoked,
    /// The certificate is on the deny list, or was reset.
    CertificateDenied,
    /// The join token is not known, was revoked, or has another secret.
    TokenInvalid,
    /// The join token has expired.
    TokenExpired,
    /// The join token is not accepted from this address.
    TokenAddress,
    /// No VM of the token's user cluster has the SMBIOS UUID of the guest, or several have it.
    NoSuchVm,
    /// The node proof is not one of the VM's own kubelet.
    NodeProof,
    /// The connection failed.
    Connect,
    /// A step took too long.
    Timeout,
    /// TLS failed: the agent rejects the collector's certificate, or offers no TLS 1.3.
    Tls,
    /// The agent's settings do not ask for enrolment.
    NotOffered,
    /// The agent answered with another HTTP status.
    Http,
    /// The answer is too large.
    TooLarge,
    /// The answer or the CSR cannot be read.
    Malformed,
    /// The agent did not accept the certificate.
    NotAccepted,
    /// The key could not be recorded.
    NotRecorded,
    /// The authority could not sign.
    NotSigned,
}

impl EnrolmentReason {
    /// Every reason, for metrics that must exist before the first failure.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether what answers contradicts what is known of the VM, so that it may be another machine
    /// or another program. The host name is not counted: every guest may change its own.
    pub fn is_contradiction(self) -> bool {
        matches!(
            self,
            Self::UuidDiffers
                | Self::MacDiffers
                | Self::NonceDiffers
                | Self::KeyNotOfConnection
                | Self::NamesDiffer
                | Self::SecondKey
                | Self::KeyOfAnotherVm
        )
    }

    pub fn severity(self) -> Severity {
        if self.is_contradiction() {
            Severity::Critical
        } else {
            Severity::Warning
        }
    }

    /// Next step. `{vm}` stands for `<namespace>/<name>`.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NotDialled => {
                "wait for the next pull; if it persists, the VM restarts or moves all the time"
            }
            Self::NoUid => {
                "in a manifest folder, write the objects as kubectl prints them, with metadata.uid"
            }
            Self::AddressShared => {
                "compare status.podIPs of the virt-launcher pods of these VMs; if their networks overlap on purpose, \
                 take these out of scrape.allowCIDRs"
            }
            Self::UuidDiffers => {
                "find out which machine answers at this address: compare `virtfleet-agent report` in the guest with \
                 spec.domain.firmware.uuid"
            }
            Self::MacDiffers => "compare `ip link` in the guest with status.interfaces of the VMI",
            Self::HostnameDiffers => {
                "set spec.hostname of the VMI, or `hostnamectl hostname` in the guest; while the guest boots, its image \
                 may set another name for some seconds"
            }
            Self::NotProved => {
                "let the agent show a node proof (push.kubeletCertificate, and spec.nodeAuthorities of the UserCluster) or, if it \
                 connects itself, a join token (push.tokenFile). Or replace the VM by a new one: KubeVirt 1.5 and newer give it a \
                 random firmware UUID. Another UUID in the spec of an existing VM makes it another machine to its guest: cloud-init \
                 runs as on a new instance"
            }
            Self::NonceDiffers | Self::KeyNotOfConnection | Self::NamesDiffer => {
                "another program may answer on the agent's port; in the guest: virtfleet-agent doctor, then \
                 journalctl -u virtfleet-agent"
            }
            Self::SecondKey => {
                "if the agent lost its key (a restored or rewritten disk): virtfleetctl vm reset {vm}; otherwise \
                 find the program that answers on the agent's port"
            }
            Self::KeyOfAnotherVm => {
                "the agent of another VM answers, or one with a copy of its key: find what forwards the agent's port to another VM; if \
                 this VM was copied together with its SMBIOS UUID, remove the agent's state directory in the guest of the copy"
            }
            Self::Revoked => "to let the VM enrol again: virtfleetctl vm reset {vm}",
            Self::CertificateDenied => {
                "wait until the agent has a new certificate; if it gets none, its log has the reason (in the guest: \
                 journalctl -u virtfleet-agent)"
            }
            Self::TokenInvalid | Self::TokenExpired => {
                "create another token: virtfleetctl token create CLUSTER; then replace push.tokenFile in the guests"
            }
            Self::TokenAddress => {
                "create a token for the network from which the agents connect: virtfleetctl token create CLUSTER --from NETWORK"
            }
            Self::NoSuchVm => {
                "compare `virtfleet-agent report` in the guest with spec.domain.firmware.uuid of the VMs of the token's \
                 user cluster: exactly one must have its UUID"
            }
            Self::NodeProof => {
                "compare spec.nodeAuthorities of the VM's UserCluster with the API server's --client-ca-file; in the \
                 guest: virtfleet-agent apply --stage reconcile"
            }
            Self::Connect | Self::Timeout => {
                "in the guest: systemctl status virtfleet-agent, then virtfleet-agent doctor"
            }
            Self::Tls => {
                "the agent does not accept the collector: compare the authority of clients in its settings with \
                 `virtfleetctl ca status`; in the guest: virtfleet-agent doctor"
            }
            Self::NotOffered => {
                "turn on enrolment in the agent's settings, or issue its certificate yourself"
            }
            Self::Http | Self::TooLarge | Self::Malformed => {
                "in the guest: virtfleet-agent --version, then journalctl -u virtfleet-agent"
            }
            Self::NotAccepted => "in the guest: journalctl -u virtfleet-agent",
            Self::NotRecorded => {
                "see the collector's log; on a cluster it must be able to write ConfigMaps of its own namespace: \
                 virtfleet-collector doctor"
            }
            Self::NotSigned => "see the collector's log, then: virtfleetctl ca status",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_remedy() {
        assert!(EnrolmentReason::ALL.iter().all(|one| !one.remedy().is_empty()));
    }
}
