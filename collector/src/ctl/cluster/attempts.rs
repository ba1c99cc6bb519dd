//! Which tokens are sent on which way, in order.
//!
//! A token for the audience of the collector is worth nothing elsewhere, so it may pass the service
//! proxy, where the API server does not verify the collector's certificate. A token for the API
//! server itself goes through a port-forward only, which ends in the pod.

use std::{fmt, path::PathBuf};

use super::{
    account::{AccountName, OwnCredentials},
    names::COLLECTOR,
};
use crate::{
    ctl::{
        cli::{ConnectionArgs, Via},
        fail::Fail,
    },
    doctor::{CallerToken, CallerWay},
};

/// ServiceAccount in the collector's namespace for admins whose kubeconfig has no token.
const ADMIN_ACCOUNT: &str = "virtfleetctl";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptToken {
    File(PathBuf),
    /// A short-lived one of a ServiceAccount for the collector's audience.
    Requested(AccountName),
    /// That of the kubeconfig.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptWay {
    ServiceProxy,
    PortForward,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) token: AttemptToken,
    pub(super) way: AttemptWay,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            AttemptWay::ServiceProxy => "service proxy",
            AttemptWay::PortForward => "port-forward",
        };
        match &self.token {
            AttemptToken::File(file) => write!(f, "{way} with the token in {}", file.display()),
            AttemptToken::Requested(account) => {
                write!(f, "{way} with a token of the ServiceAccount {account}")
            }
            AttemptToken::Own => write!(f, "{way} with the token of the kubeconfig"),
        }
    }
}

impl From<Attempt> for CallerWay {
    fn from(attempt: Attempt) -> Self {
        Self {
            token: match attempt.token {
                AttemptToken::File(_) => CallerToken::File,
                AttemptToken::Own => CallerToken::Own,
                AttemptToken::Requested(AccountName { namespace, name }) => {
                    CallerToken::Account { namespace, name }
                }
            },
            is_forward: attempt.way == AttemptWay::PortForward,
        }
    }
}

/// The attempts in order. `context_namespace` is the namespace of the kubeconfig's context.
pub(super) fn attempts(
    connection: &ConnectionArgs,
    context_namespace: &str,
    own: OwnCredentials,
) -> Result<Vec<Attempt>, Fail> {
    let admin = AccountName {
        namespace: connection.collector_namespace.clone(),
        name: ADMIN_ACCOUNT.to_owned(),
    };
    let tokens = if let Some(file) = &connection.token_file {
        vec![AttemptToken::File(file.clone())]
    } else if let Some(account) = &connection.service_account {
        vec![AttemptToken::Requested(parse_account(
            account,
            context_namespace,
        )?)]
    } else {
        match own {
            OwnCredentials::NoToken => vec![AttemptToken::Requested(admin)],
            OwnCredentials::Token => vec![AttemptToken::Own, AttemptToken::Requested(admin)],
            OwnCredentials::AccountToken(account) => {
                vec![AttemptToken::Requested(account), AttemptToken::Own]
            }
        }
    };
    let attempts = tokens.into_iter().map(|token| {
        let way = match (connection.via, &token) {
            (Some(Via::ServiceProxy), _) => AttemptWay::ServiceProxy,
            (Some(Via::PortForward), _) | (None, AttemptToken::Own) => AttemptWay::PortForward,
            (None, _) => AttemptWay::ServiceProxy,
        };
        Attempt { token, way }
    });
    let is_safe =
        |attempt: &Attempt| attempt.token != AttemptToken::Own || attempt.way == AttemptWay::PortForward;
    let attempts: Vec<Attempt> = attempts.filter(is_safe).collect();
    if attempts.is_empty() {
        return Err(Fail::Usage(
            "the token of the kubeconfig is not sent through the service proxy; use --via port-forward, or \
             --service-account"
                .to_owned(),
        ));
    }
    Ok(attempts)
}

fn parse_account(text: &str, context_namespace: &str) -> Result<AccountName, Fail> {
    let (namespace, name) = text.split_once('/').unwrap_or((context_namespace, text));
    let is_name = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    if !is_name(namespace) || !is_name(name) {
        let message = format!(
            "--service-account {text:?} is not the name of a ServiceAccount; use NAME or NAMESPACE/NAME"
        );
        return Err(Fail::Usage(message));
    }
    Ok(AccountName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// The error when no attempt worked.
pub(super) fn none_worked(failures: &[String]) -> Fail {
    Fail::Access(format!(
        "{COLLECTOR} cannot be reached with this kubeconfig:\n  {}\nask for a ServiceAccount in your namespace with the \
         ClusterRole virtfleet-viewer and the right to create its tokens, then set --service-account; or use --server",
        failures.join("\n  ")
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::ctl::cli::Cli;

    fn plan(args: &[&str], own: OwnCredentials) -> Result<Vec<String>, String> {
        let line = ["virtfleetctl", "vms"].iter().chain(args);
        let connection = Cli::try_parse_from(line).unwrap().connection;
        let attempts = attempts(&connection, "team-a", own).map_err(|fail| fail.to_string())?;
        Ok(attempts.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_token_for_the_api_server_never_passes_the_service_proxy() {
        let account = || {
            OwnCredentials::AccountToken(AccountName {
                namespace: "team-a".to_owned(),
                name: "reader".to_owned(),
            })
        };
        for (args, own, expected) in [
            (
                &[][..],
                OwnCredentials::NoToken,
                &["service proxy with a token of the ServiceAccount virtfleet/virtfleetctl"][..],
            ),
            (
                &["--collector-namespace", "fleet"],
                OwnCredentials::NoToken,
                &["service proxy with a token of the ServiceAccount fleet/virtfleetctl"],
            ),
            (
                &[],
                OwnCredentials::Token,
                &[
                    "port-forward with the token of the kubeconfig",
                    "service proxy with a token of the ServiceAccount virtfleet/virtfleetctl",
                ],
            ),
            (
                &[],
                account(),
                &[
                    "service proxy with a token of the ServiceAccount team-a/reader",
                    "port-forward with the token of the kubeconfig",
                ],
            ),
            (
                &["--service-account", "viewer"],
                OwnCredentials::Token,
                &["service proxy with a token of the ServiceAccount team-a/viewer"],
            ),
            (
                &["--service-account", "team-b/viewer", "--via", "port-forward"],
                OwnCredentials::NoToken,
                &["port-forward with a token of the ServiceAccount team-b/viewer"],
            ),
            (
                &["--token-file", "t"],
                OwnCredentials::Token,
                &["service proxy with the token in t"],
            ),
            (
                &["--via", "service-proxy"],
                account(),
                &["service proxy with a token of the ServiceAccount team-a/reader"],
            ),
        ] {
            assert_eq!(plan(args, own).unwrap(), expected, "{args:?}");
        }
        for wrong in ["", "a/", "a/b/c", "a b"] {
            let error = plan(&["--service-account", wrong], OwnCredentials::NoToken).unwrap_err();
            assert!(error.contains("NAMESPACE/NAME"), "{wrong}: {error}");
        }
    }
}
