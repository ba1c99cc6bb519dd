//! Checks whether the user of virtfleetctl may reach the collector through the API server, and
//! whether the shipped roles and bindings for this exist.

use kube::Client;
use serde_json::Value;
use virtfleet_wire::layered::{Node, parse_yaml};

use super::{CheckResult, CheckStatus, rights::Right, workload::COLLECTOR};
use crate::user_account::{ObjectWriter, title};

/// What the check of the user's rights is called.
const CALLER: &str = "caller";
/// What the check of the shipped roles is called.
const ROLES: &str = "roles";
/// The shipped roles and bindings of users, and the account whose tokens virtfleetctl requests.
const ACCESS: &str = include_str!("../../../packaging/collector/kubernetes/infra/access.yaml");
const ACCOUNT: &str = "virtfleetctl";
const GRANT: &str = "kubectl apply -f packaging/collector/kubernetes/infra/access.yaml";

/// The rights of the client's own account on the way to the collector. `has_token`: the kubeconfig
/// has a token, which the collector would know.
pub(super) async fn rights(client: &Client, namespace: &str, has_token: bool) -> CheckResult {
    let service = format!("https:{COLLECTOR}:api");
    let rights = [
        ("get", "services/proxy", Some(service.as_str())),
        ("create", "serviceaccounts/token", Some(ACCOUNT)),
        ("list", "pods", None),
        ("create", "pods/portforward", None),
    ];
    let mut granted = [false; 4];
    for ((verb, resource, name), granted) in rights.into_iter().zip(&mut granted) {
        let right = Right {
            verb,
            group: "",
            resource,
            namespace: Some(namespace.to_owned()),
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
    let [proxy, token, pods, forward] = granted;
    rights_result(namespace, [proxy, token, pods && forward], has_token)
}

/// `proxy`: the service proxy of the API server; `token`: tokens of the account; `forward`:
/// port-forwards to pods, which carry the token of the kubeconfig, if it has one.
fn rights_result(namespace: &str, [proxy, token, forward]: [bool; 3], has_token: bool) -> CheckResult {
    let account = format!("{namespace}/{ACCOUNT}");
    if proxy && token {
        let detail = format!("you may use the service proxy, with tokens of the ServiceAccount {account}");
        return CheckResult::ok(CALLER, detail);
    }
    if forward && has_token {
        let detail = "you may use a port-forward, with the token of your kubeconfig";
        return CheckResult::ok(CALLER, detail);
    }
    if forward && token {
        let detail = format!("you may use a port-forward, with tokens of the ServiceAccount {account}");
        return CheckResult::warn(CALLER, detail, "virtfleetctl status --via port-forward");
    }
    if proxy {
        let detail = format!("you may use the service proxy, but not request tokens of {account}");
        let next = "virtfleetctl status --service-account NAMESPACE/NAME, with an account of your own, or \
                    --token-file FILE";
        return CheckResult::warn(CALLER, detail, next);
    }
    let without = if forward {
        "; a port-forward needs a token, and your kubeconfig has none"
    } else {
        ", nor list pods and create pods/portforward"
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
    use super::*;

    #[test]
    fn one_way_to_the_collector_is_enough() {
        let status = |rights, has_token| rights_result("fleet", rights, has_token).status;
        for rights in [[true, true, false], [false, false, true], [true, false, true]] {
            assert_eq!(status(rights, true), CheckStatus::Ok, "{rights:?}");
        }
        assert_eq!(status([true, false, false], true), CheckStatus::Warn);
        for rights in [[false, true, false], [false; 3]] {
            let found = rights_result("fleet", rights, true);
            assert_eq!(found.status, CheckStatus::Fail, "{rights:?}");
            assert!(found.next.contains("access.yaml"), "{found:?}");
        }
    }

    #[test]
    fn a_port_forward_is_no_way_without_a_token() {
        let found = |rights| rights_result("fleet", rights, false);
        assert_eq!(found([true, true, false]).status, CheckStatus::Ok);
        let by_flag = found([false, true, true]);
        assert_eq!(by_flag.status, CheckStatus::Warn);
        assert!(by_flag.next.ends_with("--via port-forward"), "{by_flag:?}");
        let no_token = found([false, false, true]);
        assert_eq!(no_token.status, CheckStatus::Fail);
        assert!(
            no_token.detail.contains("a port-forward needs a token"),
            "{no_token:?}"
        );
        assert_eq!(found([true, false, true]).status, CheckStatus::Warn);
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
