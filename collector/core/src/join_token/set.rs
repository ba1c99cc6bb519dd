//! The stored tokens, and whether one allows an agent to enrol.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::ClusterName;

use super::{JoinTokenId, SecretDigest};
use crate::enrolment::EnrolmentReason;

/// Maximum number of tokens.
pub const MAX_TOKENS: usize = 1024;
/// Maximum number of source networks of a token.
pub const MAX_NETWORKS: usize = 32;
/// Expired tokens are removed after so many seconds: until then the list explains a refusal.
const KEEP_EXPIRED_SECONDS: u64 = 7 * 86_400;

/// A token, without its secret. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinToken {
    /// Its public name.
    pub id: JoinTokenId,
    /// SHA-256 of its secret.
    pub secret_sha256: SecretDigest,
    /// The user cluster whose VMs may use it.
    pub cluster: ClusterName,
    pub created: u64,
    /// When it ends.
    pub expires: u64,
    /// Networks from which it is accepted. Empty: only addresses of the VM's own virt-launcher pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<IpNet>,
    /// Last enrolment with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<u64>,
}

impl JoinToken {
    /// Whether an agent may use it now. Its secret was compared already.
    ///
    /// # Errors
    /// It has expired.
    pub fn check_time(&self, now: u64) -> Result<(), EnrolmentReason> {
        if now < self.expires {
            Ok(())
        } else {
            Err(EnrolmentReason::TokenExpired)
        }
    }

    /// Whether it is accepted from `address`; `is_own` tells whether that is an address of the VM's
    /// own virt-launcher pod.
    ///
    /// # Errors
    /// It is not.
    pub fn check_address(&self, address: IpAddr, is_own: bool) -> Result<(), EnrolmentReason> {
        let address = address.to_canonical();
        let is_allowed = if self.networks.is_empty() {
            is_own
        } else {
            self.networks.iter().any(|network| network.contains(&address))
        };
        if is_allowed {
            Ok(())
        } else {
            Err(EnrolmentReason::TokenAddress)
        }
    }
}

/// Why the tokens cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSetError {
    /// The stored text is damaged.
    Malformed(String),
    /// There are too many.
    Full,
    TooManyNetworks,
    /// There is no such token.
    Unknown(JoinTokenId),
}

impl fmt::Display for TokenSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "the stored join tokens cannot be read: {error}"),
            Self::Full => write!(f, "there are {MAX_TOKENS} join tokens already; revoke some"),
            Self::TooManyNetworks => write!(f, "more than {MAX_NETWORKS} networks"),
            Self::Unknown(id) => write!(f, "there is no join token {id}"),
        }
    }
}

impl std::error::Error for TokenSetError {}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinTokens(BTreeMap<JoinTokenId, JoinToken>);

impl JoinTokens {
    /// Reads the stored JSON; an empty text has no tokens.
    ///
    /// # Errors
    /// It is damaged, or has too many tokens.
    pub fn read(json: &str) -> Result<Self, TokenSetError> {
        if json.is_empty() {
            return Ok(Self::default());
        }
        let tokens: Vec<JoinToken> =
            serde_json::from_str(json).map_err(|error| TokenSetError::Malformed(error.to_string()))?;
        if tokens.len() > MAX_TOKENS {
            return Err(TokenSetError::Full);
        }
        if tokens.iter().any(|token| token.networks.len() > MAX_NETWORKS) {
            return Err(TokenSetError::TooManyNetworks);
        }
        let tokens = tokens.into_iter().map(|token| (token.id.clone(), token));
        Ok(Self(tokens.collect()))
    }

    /// The JSON to store.
    ///
    /// # Errors
    /// Never, for values of these types.
    pub fn write(&self) -> Result<String, TokenSetError> {
        let tokens: Vec<_> = self.0.values().collect();
        serde_json::to_string(&tokens).map_err(|error| TokenSetError::Malformed(error.to_string()))
    }

    /// All tokens, by id.
    pub fn iter(&self) -> impl Iterator<Item = &JoinToken> {
        self.0.values()
    }

    pub fn get(&self, id: &JoinTokenId) -> Option<&JoinToken> {
        self.0.get(id)
    }

    /// Adds a token, and removes those that expired long before `now`.
    ///
    /// # Errors
    /// There are too many tokens, or it has too many networks.
    pub fn add(&mut self, token: JoinToken, now: u64) -> Result<(), TokenSetError> {
        if token.networks.len() > MAX_NETWORKS {
            return Err(TokenSetError::TooManyNetworks);
        }
        self.0
            .retain(|_, known| known.expires.saturating_add(KEEP_EXPIRED_SECONDS) > now);
        if self.0.len() >= MAX_TOKENS {
            return Err(TokenSetError::Full);
        }
        self.0.insert(token.id.clone(), token);
        Ok(())
    }

    /// Removes a token and returns it.
    ///
    /// # Errors
    /// There is no such token.
    pub fn remove(&mut self, id: &JoinTokenId) -> Result<JoinToken, TokenSetError> {
        self.0
            .remove(id)
            .ok_or_else(|| TokenSetError::Unknown(id.clone()))
    }

    /// Records a use. Returns whether the token is known.
    pub fn used(&mut self, id: &JoinTokenId, at: u64) -> bool {
        let token = self.0.get_mut(id);
        token.is_some_and(|token| {
            token.last_used = token.last_used.max(Some(at));
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u16, networks: &[&str]) -> JoinToken {
        let [a, b] = number.to_be_bytes();
        JoinToken {
            id: JoinTokenId::from_bytes([0, 0, 0, 0, a, b]),
            secret_sha256: SecretDigest::from_bytes([1; 32]),
            cluster: "a".parse().unwrap(),
            created: 100,
            expires: 200,
            networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            last_used: None,
        }
    }

    #[test]
    fn a_token_ends_at_its_time() {
        token(1, &[]).check_time(199).unwrap();
        assert_eq!(token(1, &[]).check_time(200), Err(EnrolmentReason::TokenExpired));
    }

    #[test]
    fn a_token_is_accepted_from_its_networks_or_from_the_vms_own_pod() {
        let refused = Err(EnrolmentReason::TokenAddress);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let bound = token(1, &["10.1.0.0/16", "fd00::/64"]);
        assert_eq!(bound.check_address(ip("10.1.2.3"), false), Ok(()));
        assert_eq!(bound.check_address(ip("::ffff:10.1.2.3"), false), Ok(()));
        assert_eq!(bound.check_address(ip("fd00::7"), false), Ok(()));
        assert_eq!(bound.check_address(ip("10.2.0.1"), true), refused, "its own pod");
        let own = token(2, &[]);
        assert_eq!(own.check_address(ip("10.1.2.3"), true), Ok(()));
        assert_eq!(own.check_address(ip("10.1.2.3"), false), refused);
    }

    #[test]
    fn stored_tokens_are_read_again_and_damaged_ones_refused() {
        let mut tokens = JoinTokens::default();
        tokens.add(token(1, &["10.0.0.0/8"]), 150).unwrap();
        tokens.add(token(2, &[]), 150).unwrap();
        assert!(tokens.used(&token(1, &[]).id, 160) && !tokens.used(&token(9, &[]).id, 160));
        let json = tokens.write().unwrap();
        assert_eq!(JoinTokens::read(&json).unwrap(), tokens);
        assert_eq!(JoinTokens::read("").unwrap(), JoinTokens::default());
        for wrong in ["{", "{}", r#"[{"id":"x"}]"#, &json.replace("created", "other")] {
            assert!(
                matches!(JoinTokens::read(wrong), Err(TokenSetError::Malformed(_))),
                "{wrong}"
            );
        }
        assert_eq!(tokens.remove(&token(1, &[]).id).unwrap().last_used, Some(160));
        assert!(matches!(
            tokens.remove(&token(1, &[]).id),
            Err(TokenSetError::Unknown(_))
        ));
    }

    #[test]
    fn tokens_are_bounded_and_old_ones_forgotten() {
        let mut tokens = JoinTokens::default();
        for number in 0..u16::try_from(MAX_TOKENS).unwrap() {
            tokens.add(token(number, &[]), 150).unwrap();
        }
        let more = token(5000, &[]);
        assert_eq!(tokens.add(more.clone(), 150), Err(TokenSetError::Full));
        let wide = JoinToken {
            networks: vec!["10.0.0.0/8".parse().unwrap(); MAX_NETWORKS + 1],
            ..more.clone()
        };
        assert_eq!(tokens.add(wide, 150), Err(TokenSetError::TooManyNetworks));
        tokens.add(more, 200 + KEEP_EXPIRED_SECONDS).unwrap();
        assert_eq!(tokens.iter().count(), 1);
    }
}
