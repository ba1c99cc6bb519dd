//! The text of a token: `vft1.<id>.<secret>`.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::{enrolment::MAX_TOKEN_BYTES, ids::InvalidId};

/// Version of the form.
const PREFIX: &str = "vft1";
const ID_DIGITS: usize = 12;
/// Digits of a secret: 256 bits.
const SECRET_DIGITS: usize = 64;

/// Public name of a token, 12 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct JoinTokenId(String);

impl JoinTokenId {
    /// From random bytes.
    pub fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(hex(&bytes))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JoinTokenId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if is_hex(text, ID_DIGITS) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId {
                kind: "id of a join token",
                text: text.chars().take(80).collect(),
                rule: "12 lower-case hexadecimal digits",
            })
        }
    }
}

impl TryFrom<String> for JoinTokenId {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<JoinTokenId> for String {
    fn from(id: JoinTokenId) -> Self {
        id.0
    }
}

impl fmt::Display for JoinTokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// SHA-256 of a token's secret, as 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretDigest(String);

impl SecretDigest {
    pub fn from_bytes(digest: [u8; 32]) -> Self {
        Self(hex(&digest))
    }

    /// The digits, to compare them in constant time.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(…)")
    }
}

impl TryFrom<String> for SecretDigest {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        if is_hex(&text, SECRET_DIGITS) {
            Ok(Self(text))
        } else {
            Err(InvalidId {
                kind: "hash of a join token",
                text: String::new(),
                rule: "64 lower-case hexadecimal digits",
            })
        }
    }
}

impl From<SecretDigest> for String {
    fn from(digest: SecretDigest) -> Self {
        digest.0
    }
}

/// A token that an agent has shown. Its secret is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedToken {
    pub id: JoinTokenId,
    secret: String,
}

impl PresentedToken {
    /// A token with this id and secret.
    pub fn new(id: JoinTokenId, secret: [u8; 32]) -> Self {
        Self {
            id,
            secret: hex(&secret),
        }
    }

    /// Parses the content of a token file; white space around it is ignored. None if it has another
    /// form.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let mut parts = text.split('.');
        let (prefix, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none() && prefix == PREFIX && is_hex(secret, SECRET_DIGITS);
        Some(Self {
            id: id.parse().ok().filter(|_| is_whole)?,
            secret: secret.to_owned(),
        })
    }

    /// What is hashed: the digits of the secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The whole token, for the one time that it is shown.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}.{}.{}", self.id, self.secret)
    }
}

impl fmt::Debug for PresentedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PresentedToken({})", self.id)
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == digits && text.bytes().all(is_digit)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_never_printed() {
        let token = PresentedToken::new(JoinTokenId::from_bytes([0xab; 6]), [0x5a; 32]);
        let text = token.reveal();
        assert_eq!(text, format!("vft1.{}.{}", "ab".repeat(6), "5a".repeat(32)));
        assert_eq!(PresentedToken::parse(&format!("  {text}\n")), Some(token.clone()));
        assert!(!format!("{token:?}").contains("5a5a"), "{token:?}");
        let digest = SecretDigest::from_bytes([1; 32]);
        assert!(!format!("{digest:?}").contains("01"), "{digest:?}");
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let good = PresentedToken::new(JoinTokenId::from_bytes([1; 6]), [2; 32]).reveal();
        for wrong in [
            String::new(),
            good.replacen("vft1", "vft2", 1),
            good.to_uppercase(),
            format!("{good}0"),
            format!("{good}.x"),
            good[..good.len() - 1].to_owned(),
            format!("vft1..{}", "02".repeat(32)),
            "x".repeat(1000),
        ] {
            assert_eq!(PresentedToken::parse(&wrong), None, "{wrong}");
        }
    }
}
