//! ServiceAccounts, and the kind of credentials in a kubeconfig.

use std::fmt;

use crate::access::token_claims::UnverifiedClaims;

/// Namespace and name of a ServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccountName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnCredentials {
    /// A client certificate, or none.
    NoToken,
    Token,
    AccountToken(AccountName),
}

impl OwnCredentials {
    /// The kind of credentials, by the claims of the token.
    pub(super) fn of(token: Option<&str>) -> Self {
        let Some(token) = token else {
            return Self::NoToken;
        };
        let subject = UnverifiedClaims::of(token).subject;
        let account = subject.as_deref().and_then(|subject| {
            let (namespace, name) = subject.strip_prefix("system:serviceaccount:")?.split_once(':')?;
            Some(AccountName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        });
        account.map_or(Self::Token, Self::AccountToken)
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    #[test]
    fn the_subject_of_a_token_names_its_account() {
        let token = |subject: &str| {
            let claims = URL_SAFE_NO_PAD.encode(format!("{{\"sub\":\"{subject}\"}}"));
            OwnCredentials::of(Some(&format!("h.{claims}.s")))
        };
        let account = AccountName {
            namespace: "team-a".to_owned(),
            name: "reader".to_owned(),
        };
        assert_eq!(
            token("system:serviceaccount:team-a:reader"),
            OwnCredentials::AccountToken(account)
        );
        assert_eq!(token("alice@example.org"), OwnCredentials::Token);
        assert_eq!(OwnCredentials::of(Some("opaque")), OwnCredentials::Token);
        assert_eq!(OwnCredentials::of(None), OwnCredentials::NoToken);
    }
}
