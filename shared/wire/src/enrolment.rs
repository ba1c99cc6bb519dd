//! Enrolment: how the collector issues an agent's certificate. `docs/decisions/0029-enrolment.md`
//! has the protocol and its reasons.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{InvalidId, MacAddr, Uuid},
    node_proof::NodeProof,
};

/// Path for [`EnrolmentRequest`].
pub const REQUEST_PATH: &str = "/v1/enrolment/request";
/// Path for [`IssuedCertificate`].
pub const CERTIFICATE_PATH: &str = "/v1/enrolment/certificate";
/// Path of the request for [`EnrolmentClaim`]. The body of the request is `{}`.
pub const CLAIM_PATH: &str = "/v1/enrolment/claim";
/// Maximum length of [`EnrolmentClaim::token`] in bytes; readers refuse more.
pub const MAX_TOKEN_BYTES: usize = 256;
/// Maximum size of each body, in bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// Number used once: 32 random bytes as 64 lower-case hexadecimal digits. The agent copies it into
/// the CSR (attribute `challengePassword`, RFC 2985, 5.4.1), whose signature covers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Nonce(String);

impl Nonce {
    /// Creates a nonce from random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in bytes {
            // Writing to a String cannot fail.
            write!(text, "{byte:02x}").ok();
        }
        Self(text)
    }

    /// The hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Nonce {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 64 && text.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err(InvalidId {
                kind: "nonce",
                text: text.chars().take(80).collect(),
                rule: "64 lower-case hexadecimal digits",
            })
        }
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> Self {
        nonce.0
    }
}

/// The collector's request for a CSR.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentRequest {
    /// Identity in the future certificate: `spiffe://<trust-domain>/vmi/<namespace>/<name>/<uid>`.
    /// An agent whose certificate is of an earlier incarnation of this VM replaces its key and
    /// answers 409; one whose certificate is of another VM keeps both and answers 421.
    pub identity: String,
    /// The CSR must contain this nonce.
    pub nonce: Nonce,
    /// True if the agent's key belongs to an earlier incarnation of the VM: an agent without
    /// certificate replaces it and answers 409.
    #[serde(default)]
    pub replace_key: bool,
}

/// The agent's answer to [`EnrolmentRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentAnswer {
    /// PKCS #10 in PEM (RFC 2986), signed with the key that the agent uses on this connection.
    pub csr: String,
    /// Identity of the VM as the guest reads it.
    pub evidence: EnrolmentEvidence,
}

/// Identity of the VM as the guest reads it. The collector compares each value with the VMI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnrolmentEvidence {
    /// SMBIOS system UUID: `spec.domain.firmware.uuid` of the VMI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<Uuid>,
    /// Host name in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Hardware addresses of the physical network interfaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<MacAddr>,
    /// The kernel's boot ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// The agent's answer to a collector that does not know yet which VM it is (decision 0034).
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentClaim {
    /// Content of the agent's `push.tokenFile`, a secret. None if there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Proof by the kubelet (decision 0035). None without `push.kubeletCertificate`, and until root
    /// has signed the agent's present key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_proof: Option<NodeProof>,
    /// Identity of the VM as the guest reads it.
    #[serde(default)]
    pub evidence: EnrolmentEvidence,
}

/// Does not show the token.
impl fmt::Debug for EnrolmentClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "(hidden)");
        f.debug_struct("EnrolmentClaim")
            .field("token", &token)
            .field("node_proof", &self.node_proof)
            .field("evidence", &self.evidence)
            .finish()
    }
}

/// A certificate for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedCertificate {
    /// The certificate, followed by its chain without the root, in PEM.
    pub certificate: String,
    /// CA certificates for clients that the agent must accept in addition to those in its settings,
    /// in PEM. They replace those of an earlier certificate; an empty value removes them.
    #[serde(default)]
    pub client_authorities: String,
}

/// Body of an answer with a status of 400 or above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentError {
    /// Human-readable reason.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_64_digits() {
        let nonce = Nonce::from_bytes([0xa5; 32]);
        assert_eq!(nonce.as_str(), "a5".repeat(32));
        assert_eq!(Nonce::try_from(nonce.as_str().to_owned()).unwrap(), nonce);
        for wrong in ["", "a5", &"A5".repeat(32), &"g5".repeat(32), &"a5".repeat(33)] {
            Nonce::try_from(wrong.to_owned()).unwrap_err();
        }
    }

    #[test]
    fn a_claim_without_a_token_has_no_key_for_it_and_a_token_is_not_shown() {
        let none = EnrolmentClaim::default();
        assert_eq!(serde_json::to_string(&none).unwrap(), r#"{"evidence":{}}"#);
        assert_eq!(
            serde_json::from_str::<EnrolmentClaim>(r#"{"later":1}"#).unwrap(),
            none
        );
        let with = EnrolmentClaim {
            token: Some("vft1.a.b".to_owned()),
            ..none
        };
        let shown = format!("{with:?}");
        assert!(shown.contains("hidden") && !shown.contains("vft1"), "{shown}");
        let json = serde_json::to_string(&with).unwrap();
        assert_eq!(serde_json::from_str::<EnrolmentClaim>(&json).unwrap(), with);
    }

    #[test]
    fn a_request_of_a_later_version_is_read() {
        let text = format!(
            r#"{{"identity":"spiffe://d/vmi/a/b/c","nonce":"{}","later":1}}"#,
            "0".repeat(64)
        );
        let request: EnrolmentRequest = serde_json::from_str(&text).unwrap();
        assert!(!request.replace_key);
    }
}
