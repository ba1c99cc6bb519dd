//! Checks whether the user of virtfleetctl may reach the collector through the API server, and
//! whether the shipped roles and bindings for this exist.

use std::fmt;

use kube::Client;
use serde_json::Value;
use virtfleet_wire::layered::{Node, parse_yaml};

use super::{CheckResult, CheckStatus, rights::Right, workload::COLLECTOR};
use crate::user_account::{ObjectWriter, title};

/// What the check of the user's rights is called.
const CALLER: &str = "caller";
/// What the check of the shipped roles is called.
const ROLES: &str = "roles";
/// The shipped roles and bindings of users, and the account whose tokens virtfleetctl requests if
/// the kubeconfig has no token.
const ACCESS: &str = include_str!("../../../packaging/collector/kubernetes/infra/access.yaml");
const GRANT: &str = "kubectl apply -f packaging/collector/kubernetes/infra/access.yaml";

/// The token that virtfleetctl sends to the collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallerToken {
    /// That of the kubeconfig, which never passes the service proxy.
    Own,
    /// That of `--token-file`.
    File,
    /// One that is requested for a ServiceAccount.
    Account { namespace: String, name: String },
}

/// A way on which virtfleetctl sends requests to the collector through the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerWay {
    pub token: CallerToken,
    /// Through a port-forward to a pod, not through the service proxy.
    pub is_forward: bool,
}

impl fmt::Display for CallerWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.is_forward {
            "a port-forward"
        } else {
            "the service proxy"
        };
        match &self.token {
            CallerToken::Own => write!(f, "{way}, with the token of your kubeconfig"),
            CallerToken::File => write!(f, "{way}, with the token of --token-file"),
            CallerToken::Account { namespace, name } => {
                write!(f, "{way}, with tokens of the ServiceAccount {namespace}/{name}")
            }
        }
    }
}

impl CallerWay {
    /// Namespace and name of the ServiceAccount whose tokens are requested.
    fn account(&self) -> Option<(&str, &str)> {
        match &self.token {
            CallerToken::Account { namespace, name } => Some((namespace.as_str(), name.as_str())),
            CallerToken::Own | CallerToken::File => None,
        }
    }

    /// Whether the caller has the rights for it.
    fn is_open(&self, granted: CallerRights) -> bool {
        let is_there = if self.is_forward {
            granted.forward
        } else {
            granted.proxy
        };
        is_there && (granted.token || self.account().is_none())
    }

    /// The other way for the same token.
    fn other(&self) -> Option<Self> {
        (self.token != CallerToken::Own).then(|| Self {
            token: self.token.clone(),
            is_forward: !self.is_forward,
        })
    }
}

/// Which rights on the way to the collector the caller has.
#[derive(Debug, Clone, Copy)]
struct CallerRights {
    /// To use the service proxy of the API server.
    proxy: bool,
    /// To request tokens of the ServiceAccount of a way.
    token: bool,
    /// To forward ports of pods.
    forward: bool,
}

/// The rights of the client's own account on the ways to the collector. `ways` are those that the
/// flags and the kubeconfig choose, at most one of them with a ServiceAccount; none if requests do
/// not pass the API server.
pub(super) async fn rights(client: &Client, namespace: &str, ways: &[CallerWay]) -> CheckResult {
    if ways.is_empty() {
        let detail = "not checked: with --server or --cert, requests do not pass the API server";
        let next = "virtfleetctl install check, without --server and --cert";
        return CheckResult::skip(CALLER, detail, next);
    }
    let service = format!("https:{COLLECTOR}:api");
    let mut rights = vec![
        ("get", "services/proxy", namespace, Some(service.as_str())),
        ("list", "pods", namespace, None),
        ("create", "pods/portforward", namespace, None),
    ];
    let account = ways.iter().find_map(CallerWay::account);
    rights.extend(account.map(|(place, name)| ("create", "serviceaccounts/token", place, Some(name))));
    let mut granted = [false; 4];
    for ((verb, resource, place, name), granted) in rights.into_iter().zip(&mut granted) {
        let right = Right {
            verb,
            group: "",
            resource,
            namespace: Some(place.to_owned()),
            name: name.map(str::to_owned),
            without: "virtfleetctl does not reach the collector",
            status: CheckStatus::Fail,
        };
        match right.is_granted(client, None).await {
            Ok(is_granted) => *granted = is_granted,
            Err(error) => {
                let detail = format!("your right to {} cannot be checked: {error}", right.text());
                return CheckResult::warn(CALLER, detail, "kubectl auth whoami");
            }
        }
    }
    let [proxy, pods, forward, token] = granted;
    let granted = CallerRights {
        proxy,
        token,
        forward: pods && forward,
    };
    rights_result(namespace, ways, granted)
}

fn rights_result(namespace: &str, ways: &[CallerWay], granted: CallerRights) -> CheckResult {
    if let Some(way) = ways.iter().find(|way| way.is_open(granted)) {
        return CheckResult::ok(CALLER, format!("you may use {way}"));
    }
    let mut others = ways.iter().filter_map(CallerWay::other);
    if let Some(other) = others.find(|other| other.is_open(granted)) {
        let via = if other.is_forward {
            "port-forward"
        } else {
            "service-proxy"
        };
        let next = format!("virtfleetctl status --via {via}");
        return CheckResult::warn(CALLER, format!("you may use {other}"), next);
    }
    let account = ways.iter().find_map(CallerWay::account);
    let account = account.map(|(namespace, name)| format!("{namespace}/{name}"));
    let account = account.unwrap_or_default();
    if granted.proxy {
        let detail = format!("you may use the service proxy, but not request tokens of {account}");
        let next = "virtfleetctl status --service-account NAMESPACE/NAME, with an account of your own, or \
                    --token-file FILE";
        return CheckResult::warn(CALLER, detail, next);
    }
    let without = if granted.forward {
        format!("; a port-forward needs a token, and you may not request tokens of {account}")
    } else {
        ", nor list pods and create pods/portforward".to_owned()
    };
    let detail = format!(
        "virtfleetctl does not reach the collector: you may not get services/proxy in {namespace}{without}"
    );
    CheckResult::fail(CALLER, detail, format!("an admin: {GRANT}"))
}

/// Whether the shipped roles, bindings and the account of users are there.
pub(super) async fn roles(client: &Client, namespace: &str) -> CheckResult {
    let next = format!(
        "helm upgrade virtfleet packaging/helm/virtfleet -n {namespace} --reset-then-reuse-values, or {GRANT}"
    );
    let reader = ObjectWriter {
        client: client.clone(),
        dry_run: true,
    };
    let objects = shipped(namespace);
    let mut missing = Vec::new();
    for object in &objects {
        match reader.read(object).await {
            Ok(Some(_)) => {}
            Ok(None) => missing.push(title(object)),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let detail = format!("{error}: {}", cause.unwrap_or_default());
                return CheckResult::skip(ROLES, detail, next);
            }
        }
    }
    if missing.is_empty() {
        return CheckResult::ok(
            ROLES,
            format!("all {} roles, bindings and accounts are there", objects.len()),
        );
    }
    let detail = format!(
        "missing: {}; users and virtfleetctl are refused",
        missing.join(", ")
    );
    CheckResult::warn(ROLES, detail, next)
}

/// The objects, in the namespace of the installation.
fn shipped(namespace: &str) -> Vec<Value> {
    let documents = parse_yaml(ACCESS).unwrap_or_default();
    let mut objects: Vec<Value> = documents.iter().map(Node::to_json).collect();
    for object in &mut objects {
        if let Some(own) = object.pointer_mut("/metadata/namespace") {
            *own = namespace.into();
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn way(token: CallerToken, is_forward: bool) -> CallerWay {
        CallerWay { token, is_forward }
    }

    fn account() -> CallerToken {
        CallerToken::Account {
            namespace: "fleet".to_owned(),
            name: "virtfleetctl".to_owned(),
        }
    }

    /// The result for the rights on the service proxy, on tokens, and on port-forwards.
    fn found(ways: &[CallerWay], [proxy, token, forward]: [bool; 3]) -> CheckResult {
        let granted = CallerRights {
            proxy,
            token,
            forward,
        };
        rights_result("fleet", ways, granted)
    }

    #[test]
    fn one_way_to_the_collector_is_enough() {
        let ways = [way(CallerToken::Own, true), way(account(), false)];
        for rights in [[true, true, false], [false, false, true], [true, false, true]] {
            let found = found(&ways, rights);
            assert_eq!(found.status, CheckStatus::Ok, "{rights:?}");
        }
        assert_eq!(found(&ways, [true, false, false]).status, CheckStatus::Warn);
        for rights in [[false, true, false], [false; 3]] {
            let found = found(&ways, rights);
            assert_eq!(found.status, CheckStatus::Fail, "{rights:?}");
            assert!(found.next.contains("access.yaml"), "{found:?}");
        }
    }

    #[test]
    fn a_port_forward_is_no_way_without_a_token() {
        let ways = [way(account(), false)];
        assert_eq!(found(&ways, [true, true, false]).status, CheckStatus::Ok);
        let by_flag = found(&ways, [false, true, true]);
        assert_eq!(by_flag.status, CheckStatus::Warn);
        assert!(by_flag.next.ends_with("--via port-forward"), "{by_flag:?}");
        let no_token = found(&ways, [false, false, true]);
        assert_eq!(no_token.status, CheckStatus::Fail);
        assert!(
            no_token.detail.contains("a port-forward needs a token"),
            "{no_token:?}"
        );
        assert_eq!(found(&ways, [true, false, true]).status, CheckStatus::Warn);
    }

    #[test]
    fn only_ways_that_the_flags_choose_count() {
        // --token-file
        let file = [way(CallerToken::File, false)];
        let by_proxy = found(&file, [true, false, false]);
        assert_eq!(
            (by_proxy.status, by_proxy.detail.as_str()),
            (
                CheckStatus::Ok,
                "you may use the service proxy, with the token of --token-file"
            )
        );
        let by_forward = found(&file, [false, true, true]);
        assert_eq!(by_forward.status, CheckStatus::Warn);
        assert!(by_forward.next.ends_with("--via port-forward"), "{by_forward:?}");
        // --via port-forward
        let forward = [way(account(), true)];
        let by_proxy = found(&forward, [true, true, false]);
        assert_eq!(by_proxy.status, CheckStatus::Warn);
        assert!(by_proxy.next.ends_with("--via service-proxy"), "{by_proxy:?}");
        assert_eq!(found(&forward, [false, true, true]).status, CheckStatus::Ok);
        // The token of a kubeconfig never passes the service proxy.
        let own = [way(CallerToken::Own, true), way(account(), true)];
        assert_eq!(found(&own, [true, false, false]).status, CheckStatus::Warn);
    }

    #[tokio::test]
    async fn requests_that_do_not_pass_the_api_server_need_no_rights_there() {
        let service =
            tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
        let found = rights(&Client::new(service, "fleet"), "fleet", &[]).await;
        assert_eq!(found.status, CheckStatus::Skip);
        assert!(found.detail.starts_with("not checked"), "{found:?}");
    }

    #[test]
    fn the_shipped_objects_are_those_of_the_namespace() {
        let titles: Vec<String> = shipped("fleet").iter().map(title).collect();
        assert_eq!(
            titles,
            [
                "ClusterRole virtfleet-viewer",
                "ClusterRole virtfleet-admin",
                "Role fleet/virtfleet-clients",
                "RoleBinding fleet/virtfleet-clients",
                "ServiceAccount fleet/virtfleetctl",
                "ClusterRoleBinding virtfleetctl",
            ]
        );
    }
}
