//! Refused join tokens, for the list of tokens and a finding: no VM is known that could have the
//! finding.

use std::{collections::BTreeMap, net::IpAddr};

use virtfleet_wire::finding::{Finding, Severity};

use super::{JoinTokenId, JoinTokens};
use crate::{enrolment::EnrolmentReason, findings};

/// The finding ends when the last refusal is older, in seconds.
const RECENT_SECONDS: u64 = 3600;

/// The refusals of one token, or of all unknown ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRefusal {
    pub count: u64,
    /// Reason of the last one.
    pub reason: EnrolmentReason,
    /// The address from which the agent had connected.
    pub address: IpAddr,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// Refusals since the start of the collector. At most one entry for each known token.
#[derive(Debug, Clone, Default)]
pub struct TokenRefusals {
    known: BTreeMap<JoinTokenId, TokenRefusal>,
    unknown: Option<TokenRefusal>,
}

impl TokenRefusals {
    /// Records a refusal. `id` is that of a known token; none if the token is unknown or was
    /// revoked.
    pub fn record(&mut self, id: Option<&JoinTokenId>, reason: EnrolmentReason, address: IpAddr, at: u64) {
        let before = match id {
            Some(id) => self.known.get(id),
            None => self.unknown.as_ref(),
        };
        let refusal = TokenRefusal {
            count: before.map_or(0, |before| before.count).saturating_add(1),
            reason,
            address: address.to_canonical(),
            at,
        };
        match id {
            Some(id) => drop(self.known.insert(id.clone(), refusal)),
            None => self.unknown = Some(refusal),
        }
    }

    pub fn of(&self, id: &JoinTokenId) -> Option<TokenRefusal> {
        self.known.get(id).copied()
    }

    /// Forgets tokens that no longer exist.
    pub fn keep(&mut self, tokens: &JoinTokens) {
        self.known.retain(|id, _| tokens.get(id).is_some());
    }

    /// A finding for each token that was refused within the last hour, and one for all unknown
    /// ones.
    pub fn findings(&self, now: u64) -> Vec<Finding> {
        let is_recent = |refusal: &&TokenRefusal| now.saturating_sub(refusal.at) < RECENT_SECONDS;
        let known = self.known.iter().map(|(id, refusal)| (id.as_str(), refusal));
        let all = known.chain(self.unknown.as_ref().map(|refusal| ("unknown", refusal)));
        all.filter(|(_, refusal)| is_recent(refusal))
            .map(|(name, refusal)| finding(name, refusal))
            .collect()
    }
}

fn finding(name: &str, refusal: &TokenRefusal) -> Finding {
    let TokenRefusal {
        count,
        reason,
        address,
        ..
    } = refusal;
    let what = match name {
        "unknown" => "join tokens that do not exist, or were revoked,".to_owned(),
        id => format!("the join token {id}"),
    };
    let times = if *count == 1 { "time" } else { "times" };
    let message = format!(
        "agents without a certificate showed {what} and were refused {count} {times}, last from {address}: {}",
        reason.as_str()
    );
    Finding::new(
        findings::JOIN_TOKEN_REFUSED,
        Severity::Warning,
        ("JoinToken", name),
        "Refused",
        message,
    )
    .with("count", *count)
    .with("lastReason", reason.as_str())
    .with("lastAddress", address.to_string())
    .remedy(format!(
        "{}; virtfleetctl token list shows each token's networks and end",
        reason.remedy()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_token_and_the_finding_ends() {
        let mut refusals = TokenRefusals::default();
        let id = JoinTokenId::from_bytes([1; 6]);
        let [first, second] = ["10.0.0.9", "::ffff:10.0.0.8"].map(|text| text.parse().unwrap());
        refusals.record(Some(&id), EnrolmentReason::TokenAddress, first, 100);
        refusals.record(Some(&id), EnrolmentReason::TokenExpired, second, 200);
        refusals.record(None, EnrolmentReason::TokenInvalid, first, 300);
        let expected = TokenRefusal {
            count: 2,
            reason: EnrolmentReason::TokenExpired,
            address: "10.0.0.8".parse().unwrap(),
            at: 200,
        };
        assert_eq!(refusals.of(&id), Some(expected));
        let messages = |now| -> Vec<String> {
            let found = refusals.findings(now).into_iter();
            found.map(|finding| finding.message).collect()
        };
        assert_eq!(
            messages(400),
            [
                "agents without a certificate showed the join token 010101010101 and were refused 2 times, last from \
                 10.0.0.8: token_expired",
                "agents without a certificate showed join tokens that do not exist, or were revoked, and were refused 1 \
                 time, last from 10.0.0.9: token_invalid",
            ]
        );
        assert_eq!(messages(200 + RECENT_SECONDS).len(), 1);
        assert_eq!(messages(300 + RECENT_SECONDS).len(), 0);
        refusals.keep(&JoinTokens::default());
        assert_eq!(refusals.of(&id), None);
    }
}
