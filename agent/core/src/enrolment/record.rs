//! What the agent keeps about its enrolment beside key and certificate.

use serde::{Deserialize, Serialize};

/// Format version of the record. Readers reject every other version.
pub const FORMAT: u32 = 1;
/// Maximum length of a reason that is kept, in characters.
const MAX_REASON_CHARS: usize = 300;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyRecord {
    /// [`FORMAT`].
    pub v: u32,
    /// SMBIOS UUID of the VM for which the key was made, in its canonical form. None if it was
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<String>,
    /// Time at which the key was made, in seconds since 1970.
    pub key_made_at: u64,
    /// Authorities of clients that the last issue brought, in PEM.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_authorities: String,
    /// The last key that was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discarded: Option<DiscardedKey>,
    /// The last certificate that was refused, until one is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<LastRefusal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscardedKey {
    /// When, in seconds since 1970.
    pub at: u64,
    pub why: DiscardReason,
    /// What it was bound to: a UUID or an identity. Empty if that is unknown.
    pub before: String,
    /// What is there or requested now.
    pub now: String,
}

/// Why a key was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DiscardReason {
    /// The SMBIOS UUID is another: a cloned or restored disk, or a baked image.
    OtherMachine,
    /// A collector requested the identity of a later incarnation of this VM.
    OtherIdentity,
    /// A collector knows the key as that of an earlier incarnation of this VM, and the agent has no
    /// certificate any more.
    #[serde(alias = "keyOfAnotherVm")]
    EarlierIncarnation,
    /// The key could not be used.
    Unusable,
}

/// A refused certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRefusal {
    /// When, in seconds since 1970.
    pub at: u64,
    /// Why, as a sentence.
    pub reason: String,
}

impl LastRefusal {
    /// With a bounded reason.
    pub fn new(at: u64, reason: &str) -> Self {
        Self {
            at,
            reason: reason.chars().take(MAX_REASON_CHARS).collect(),
        }
    }
}

impl KeyRecord {
    pub fn of_new_key(smbios_uuid: Option<String>, now: u64, discarded: Option<DiscardedKey>) -> Self {
        Self {
            v: FORMAT,
            smbios_uuid,
            key_made_at: now,
            discarded,
            ..Self::default()
        }
    }

    /// Why the key cannot be that of this machine, whose UUID is `present`. A UUID that either side
    /// lacks decides nothing.
    pub fn foreign_to(&self, present: Option<&str>, now: u64) -> Option<DiscardedKey> {
        let (stored, present) = (self.smbios_uuid.as_deref()?, present?);
        (stored != present).then(|| DiscardedKey {
            at: now,
            why: DiscardReason::OtherMachine,
            before: stored.to_owned(),
            now: present.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_known_and_different_uuids_discard_the_key() {
        let record = KeyRecord::of_new_key(Some("a".to_owned()), 1, None);
        let unknown = KeyRecord::of_new_key(None, 1, None);
        assert_eq!(record.foreign_to(Some("a"), 2), None);
        assert_eq!(record.foreign_to(None, 2), None);
        assert_eq!(unknown.foreign_to(Some("b"), 2), None);
        let discarded = record.foreign_to(Some("b"), 2).unwrap();
        assert_eq!(discarded.why, DiscardReason::OtherMachine);
        assert_eq!((discarded.before.as_str(), discarded.now.as_str()), ("a", "b"));
    }

    #[test]
    fn a_record_is_written_and_read_and_its_reason_is_bounded() {
        let mut record = KeyRecord::of_new_key(Some("a".to_owned()), 1, None);
        record.refusal = Some(LastRefusal::new(3, &"é".repeat(1000)));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<KeyRecord>(&text).unwrap(), record);
        assert_eq!(record.refusal.unwrap().reason.chars().count(), 300);
        assert!(!text.contains("clientAuthorities"));
    }
}
