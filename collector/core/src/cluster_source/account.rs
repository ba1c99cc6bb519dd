//! When the collector's account in a user cluster is made, brought up to date, or gets a new token.

use super::credential::KnownCredential;

/// What a Secret of a source says about the account whose kubeconfig it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAccount {
    /// The time of the token.
    pub validity: KnownCredential,
    /// Fingerprint of the objects that were written to the user cluster.
    pub objects: String,
    /// Version of the admin's kubeconfig that was read last; empty if the platform has none.
    pub admin_version: String,
    /// Fingerprint of the kubeconfig.
    pub kubeconfig: String,
    /// Older tokens are still valid.
    pub has_old_tokens: bool,
}

/// What is known about a user cluster.
#[derive(Debug, Clone, Copy)]
pub struct AccountFacts<'a> {
    /// The present account; none if there is none, or if it is one of another cluster.
    pub known: Option<&'a KnownAccount>,
    /// Fingerprint of the objects that the user cluster should have.
    pub objects: &'a str,
    /// Version of the admin's kubeconfig; empty if the platform has no versions.
    pub admin_version: &'a str,
    /// Fingerprint of the kubeconfig with which the Nodes are watched; none if they are not.
    pub used_kubeconfig: Option<&'a str>,
    /// The user cluster does not answer to the present kubeconfig.
    pub is_unreachable: bool,
}

/// What is due for an account, the most urgent first. Each step needs the admin's kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountStep {
    /// Nothing: the admin's kubeconfig is not read.
    Keep,
    /// The objects are written, and a token is requested: there is none, or half of its time is
    /// over.
    Renew,
    /// The objects are written: the rights that the UserCluster needs, or the packaged objects,
    /// have changed.
    WriteObjects,
    /// Server and authority are compared: the platform has changed the admin's kubeconfig.
    Compare,
    /// Old tokens are revoked: the new one is in use.
    Revoke,
    /// Everything is compared and written if it differs: the account may have been removed, or the
    /// server moved.
    Verify,
}

/// What is due for an account at `now`, in seconds since 1970.
pub fn account_step(facts: &AccountFacts<'_>, now: i64) -> AccountStep {
    let Some(known) = facts.known else {
        return AccountStep::Renew;
    };
    if known.validity.is_due(now) {
        AccountStep::Renew
    } else if known.objects != facts.objects {
        AccountStep::WriteObjects
    } else if known.admin_version != facts.admin_version {
        AccountStep::Compare
    } else if known.has_old_tokens && facts.used_kubeconfig == Some(known.kubeconfig.as_str()) {
        AccountStep::Revoke
    } else if facts.is_unreachable {
        AccountStep::Verify
    } else {
        AccountStep::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> KnownAccount {
        KnownAccount {
            validity: KnownCredential {
                issued: 1000,
                expires: 2000,
            },
            objects: "o1".into(),
            admin_version: "7".into(),
            kubeconfig: "k1".into(),
            has_old_tokens: false,
        }
    }

    fn step(change: impl FnOnce(&mut KnownAccount, &mut AccountFacts<'_>), now: i64) -> AccountStep {
        let mut known = known();
        let mut facts = AccountFacts {
            known: None,
            objects: "o1",
            admin_version: "7",
            used_kubeconfig: Some("k1"),
            is_unreachable: false,
        };
        change(&mut known, &mut facts);
        account_step(
            &AccountFacts {
                known: Some(&known),
                ..facts
            },
            now,
        )
    }

    #[test]
    fn a_token_is_renewed_after_half_of_its_time() {
        for (now, expected) in [
            (999, AccountStep::Renew),
            (1000, AccountStep::Keep),
            (1499, AccountStep::Keep),
            (1500, AccountStep::Renew),
            (2500, AccountStep::Renew),
        ] {
            assert_eq!(step(|_, _| {}, now), expected, "{now}");
        }
        let facts = AccountFacts {
            known: None,
            objects: "o1",
            admin_version: "7",
            used_kubeconfig: None,
            is_unreachable: false,
        };
        assert_eq!(account_step(&facts, 1000), AccountStep::Renew);
    }

    #[test]
    fn what_has_changed_decides() {
        assert_eq!(
            step(|_, facts| facts.objects = "o2", 1100),
            AccountStep::WriteObjects
        );
        assert_eq!(
            step(|_, facts| facts.admin_version = "8", 1100),
            AccountStep::Compare
        );
        assert_eq!(
            step(|_, facts| facts.is_unreachable = true, 1100),
            AccountStep::Verify
        );
        let all = |_: &mut KnownAccount, facts: &mut AccountFacts<'_>| {
            (facts.objects, facts.admin_version, facts.is_unreachable) = ("o2", "8", true);
        };
        assert_eq!(step(all, 1100), AccountStep::WriteObjects);
        assert_eq!(step(all, 1600), AccountStep::Renew);
    }

    #[test]
    fn old_tokens_are_revoked_only_while_the_new_one_is_in_use() {
        for (used, expected) in [
            (Some("k1"), AccountStep::Revoke),
            (Some("k0"), AccountStep::Keep),
            (None, AccountStep::Keep),
        ] {
            let found = step(
                |known, facts| {
                    known.has_old_tokens = true;
                    facts.used_kubeconfig = used;
                },
                1100,
            );
            assert_eq!(found, expected, "{used:?}");
        }
    }
}
