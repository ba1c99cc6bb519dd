//! What a collector's request for a CSR does.

use virtfleet_wire::enrolment::EnrolmentRequest;

use super::record::{DiscardReason, DiscardedKey};

/// What the agent does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestDecision {
    /// Sign a CSR with the key.
    Sign,
    /// Replace the key, and answer 409.
    ReplaceKey(DiscardedKey),
}

/// Decides about a request at `now`. `identity` is that of the agent's certificate.
pub fn decide(request: &EnrolmentRequest, identity: Option<&str>, now: u64) -> RequestDecision {
    let discard = |why| {
        RequestDecision::ReplaceKey(DiscardedKey {
            at: now,
            why,
            before: identity.unwrap_or_default().to_owned(),
            now: request.identity.clone(),
        })
    };
    if request.replace_key {
        return discard(DiscardReason::KeyOfAnotherVm);
    }
    match identity {
        Some(identity) if identity != request.identity => discard(DiscardReason::OtherIdentity),
        _ => RequestDecision::Sign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use virtfleet_wire::enrolment::Nonce;

    fn request(identity: &str, replace_key: bool) -> EnrolmentRequest {
        EnrolmentRequest {
            identity: identity.to_owned(),
            nonce: Nonce::from_bytes([1; 32]),
            replace_key,
        }
    }

    #[test]
    fn a_key_stays_with_one_identity() {
        let why = |request, identity| match decide(&request, identity, 7) {
            RequestDecision::Sign => None,
            RequestDecision::ReplaceKey(discarded) => Some(discarded.why),
        };
        assert_eq!(why(request("a", false), None), None, "the first");
        assert_eq!(why(request("a", false), Some("a")), None, "a renewal");
        assert_eq!(
            why(request("a", false), Some("b")),
            Some(DiscardReason::OtherIdentity)
        );
        for identity in [None, Some("a"), Some("b")] {
            assert_eq!(
                why(request("a", true), identity),
                Some(DiscardReason::KeyOfAnotherVm)
            );
        }
    }
}
