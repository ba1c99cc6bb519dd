//! Fingerprint of a public key.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::InvalidId;

/// SHA-256 of a public key (SubjectPublicKeyInfo, RFC 5280, 4.1.2.7), as 64 lower-case hexadecimal
/// digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct KeyFingerprint([u8; 32]);

impl KeyFingerprint {
    pub fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for KeyFingerprint {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            kind: "fingerprint of a key",
            text: text.chars().take(80).collect(),
            rule: "64 hexadecimal digits",
        };
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let mut digest = [0; 32];
        for (index, byte) in digest.iter_mut().enumerate() {
            let digits = text.get(2 * index..2 * index + 2).ok_or_else(invalid)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| invalid())?;
        }
        Ok(Self(digest))
    }
}

impl TryFrom<String> for KeyFingerprint {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<KeyFingerprint> for String {
    fn from(key: KeyFingerprint) -> Self {
        key.to_string()
    }
}

impl fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_agree() {
        let text = format!("{}ff", "0a".repeat(31));
        let key: KeyFingerprint = text.parse().unwrap();
        assert_eq!(key.to_string(), text);
        assert_eq!(text.to_uppercase().parse::<KeyFingerprint>().unwrap(), key);
        for wrong in ["", "0a", &"0g".repeat(32), &"é".repeat(32), &"0a".repeat(33)] {
            wrong.parse::<KeyFingerprint>().unwrap_err();
        }
    }
}
