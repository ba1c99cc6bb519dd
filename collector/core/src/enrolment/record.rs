//! What the collector has recorded of one VM.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::Uid;

use super::KeyFingerprint;
use crate::dial::DialTarget;

/// Maximum length of a serial number in hexadecimal digits (RFC 5280, 4.1.2.2: 20 octets).
const MAX_SERIAL_DIGITS: usize = 40;

/// Whether certificates of a VM are used.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum EnrolmentState {
    /// Certificates of the recorded key are used.
    #[default]
    Enrolled,
    /// No certificate of the VM is used, and it gets none.
    Revoked,
    /// No certificate of the recorded key is used; the next key that fits is recorded.
    Reset,
}

impl EnrolmentState {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enrolled => "enrolled",
            Self::Revoked => "revoked",
            Self::Reset => "reset",
        }
    }
}

/// The key of one incarnation of a VM, and its latest certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentRecord {
    /// The incarnation, and the UID in the certificate.
    pub uid: Uid,
    /// Its key; none if the VM was revoked before it enrolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_sha256: Option<KeyFingerprint>,
    /// Serial number of the latest certificate, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// End of its validity, in seconds since 1970.
    pub not_after: u64,
    /// When the key was recorded, in seconds since 1970.
    pub enrolled_at: u64,
    /// Whether its certificates are used.
    #[serde(default)]
    pub state: EnrolmentState,
}

impl EnrolmentRecord {
    /// Whether the record is about the incarnation that is dialled.
    pub fn is_of(&self, target: &DialTarget) -> bool {
        target.uids().any(|uid| *uid == self.uid)
    }

    /// Whether a stored record has the form that this version writes.
    pub(super) fn is_valid(&self) -> bool {
        let is_serial = |serial: &String| {
            serial.len() <= MAX_SERIAL_DIGITS && serial.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        self.serial.as_ref().is_none_or(is_serial)
    }
}
