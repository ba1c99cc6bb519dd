//! What a collector's request for a CSR does.

use virtfleet_wire::enrolment::EnrolmentRequest;

use super::record::{DiscardReason, DiscardedKey};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestDecision {
    /// Sign a CSR with the key.
    Sign,
    /// Replace the key, and answer 409.
    ReplaceKey(DiscardedKey),
    /// Keep key and certificate: the request is for another VM. Whoever forwards a port of its own
    /// VM to this agent lets the collector ask this.
    Refuse,
}

/// Decides about a request at `now`. `identity` is that of the agent's certificate; none if it has
/// none that is valid.
///
/// A certificate is given up for a later incarnation of the same VM only. That this is another VM
/// (a copied disk) is known from the SMBIOS UUID ([`super::record::KeyRecord::foreign_to`]), never
/// from a request. The trust domain is not compared: the fleet's admin may change it, and the
/// authority that has issued the client's certificate says to which fleet it belongs.
pub fn decide(request: &EnrolmentRequest, identity: Option<&str>, now: u64) -> RequestDecision {
    let discard = |why| {
        RequestDecision::ReplaceKey(DiscardedKey {
            at: now,
            why,
            before: identity.unwrap_or_default().to_owned(),
            now: request.identity.clone(),
        })
    };
    match identity {
        None if request.replace_key => discard(DiscardReason::EarlierIncarnation),
        None => RequestDecision::Sign,
        Some(identity) if path_of(identity) == path_of(&request.identity) => RequestDecision::Sign,
        Some(identity) if vm_of(identity) == vm_of(&request.identity) => {
            discard(DiscardReason::OtherIdentity)
        }
        Some(_) => RequestDecision::Refuse,
    }
}

/// The part of `spiffe://<trust-domain>/vmi/<namespace>/<name>/<uid>` after the trust domain.
fn path_of(identity: &str) -> &str {
    let name = identity.strip_prefix("spiffe://").unwrap_or(identity);
    name.split_once('/').map_or(name, |(_, path)| path)
}

/// The part that names the VM: the path without the UID.
fn vm_of(identity: &str) -> &str {
    let path = path_of(identity);
    path.rsplit_once('/').map_or(path, |(vm, _)| vm)
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
    fn a_key_stays_with_one_vm() {
        let [a, later, b] = ["ns/a/1", "ns/a/2", "ns/b/1"].map(|vm| format!("spiffe://d/vmi/{vm}"));
        let decided = |replace_key, identity: Option<&str>| decide(&request(&a, replace_key), identity, 7);
        let why = |decision| match decision {
            RequestDecision::ReplaceKey(discarded) => Some(discarded.why),
            _ => None,
        };
        assert_eq!(decided(false, None), RequestDecision::Sign, "the first");
        assert_eq!(why(decided(true, None)), Some(DiscardReason::EarlierIncarnation));
        for replace_key in [false, true] {
            assert_eq!(decided(replace_key, Some(&a)), RequestDecision::Sign, "a renewal");
            assert_eq!(
                why(decided(replace_key, Some(&later))),
                Some(DiscardReason::OtherIdentity)
            );
            assert_eq!(decided(replace_key, Some(&b)), RequestDecision::Refuse);
        }
    }

    #[test]
    fn another_trust_domain_names_the_same_vm() {
        let requested = request("spiffe://new.example/vmi/ns/a/1", false);
        let decided = |vm: &str| decide(&requested, Some(&format!("spiffe://old/vmi/{vm}")), 7);
        assert_eq!(decided("ns/a/1"), RequestDecision::Sign, "with the same key");
        assert!(matches!(decided("ns/a/0"), RequestDecision::ReplaceKey(_)));
        for other in ["ns/b/1", "other/a/1"] {
            assert_eq!(decided(other), RequestDecision::Refuse, "{other}");
        }
    }
}
