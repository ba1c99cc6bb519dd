//! Which server selects which object, and the next command.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::json;

use super::*;

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

/// All shipped objects, in a namespace and with a label.
fn all(namespace: &str, release: &str) -> Vec<ShippedObject> {
    let mut objects = Vec::new();
    for kind in &KINDS {
        for name in kind.names {
            let labels = json!({ "release": release });
            let metadata = json!({ "namespace": namespace, "name": name, "labels": labels });
            objects.push(ShippedObject {
                kind,
                object: object(&json!({ "metadata": metadata })),
                namespace: [(NAMESPACE_LABEL.to_owned(), namespace.to_owned())].into(),
            });
        }
    }
    objects
}

const HELM: MonitoringOrigin<'static> = MonitoringOrigin {
    namespace: "virtfleet",
    is_of_helm: true,
    issues_certificate: false,
};

/// A Prometheus of the namespace `monitoring` that selects the release `stack`.
fn server(namespaces: &Value) -> MonitoringServer {
    let labels = json!({ "matchLabels": { "release": "stack" } });
    let mut spec = json!({});
    for kind in &KINDS {
        spec[kind.selectors[0]] = labels.clone();
        spec[kind.selectors[1]] = namespaces.clone();
    }
    let metadata = json!({ "namespace": "monitoring", "name": "k8s" });
    MonitoringServer {
        kind: &SERVERS[0],
        object: object(&json!({ "metadata": metadata, "spec": spec })),
    }
}

/// Status, detail and next command.
fn found(objects: &[ShippedObject], servers: &[MonitoringServer]) -> (CheckStatus, String, String) {
    let found = result(objects, servers, HELM);
    assert!(
        found.status == CheckStatus::Ok || !found.next.is_empty(),
        "{found:?}"
    );
    (found.status, found.detail, found.next)
}

#[test]
fn objects_count_where_a_prometheus_selects_them() {
    let everywhere = || server(&json!({}));
    let own = || server(&Value::Null);
    let named = server(&json!({ "matchLabels": { NAMESPACE_LABEL: "virtfleet" } }));
    let selected = all("virtfleet", "stack");
    for servers in [vec![everywhere()], vec![own(), named]] {
        assert_eq!(found(&selected, &servers).0, CheckStatus::Ok);
    }
    let in_its_namespace = all("monitoring", "stack");
    assert_eq!(found(&in_its_namespace, &[own()]).0, CheckStatus::Ok);

    let (status, detail, next) = found(&selected, &[own()]);
    assert_eq!(status, CheckStatus::Warn);
    let expected = "virtfleet/virtfleet-collector (spec.podMonitorNamespaceSelector of k8s leaves out";
    assert!(detail.contains(expected), "{detail}");
    assert!(
        next.ends_with(r#"--set-json 'monitoring.labels={"release":"stack"}'"#),
        "{next}"
    );

    let other = all("virtfleet", "other");
    let (status, detail, _) = found(&other, &[everywhere()]);
    assert_eq!(status, CheckStatus::Warn);
    assert!(
        detail.contains("spec.ruleSelector of k8s does not match its labels"),
        "{detail}"
    );
    let mut without = everywhere();
    without.object.data["spec"]["ruleSelector"] = Value::Null;
    let (status, detail, _) = found(&selected, &[without]);
    assert_eq!(status, CheckStatus::Warn);
    assert!(
        detail.contains("spec.ruleSelector of k8s selects nothing"),
        "{detail}"
    );
    assert!(!detail.contains("ScrapeConfig"), "{detail}");

    assert_eq!(found(&[], &[everywhere()]).0, CheckStatus::Skip);
    assert_eq!(found(&selected, &[]).0, CheckStatus::Skip);
    let mut few = all("virtfleet", "stack");
    few.remove(1);
    let (status, detail, _) = found(&few, &[]);
    assert_eq!(
        (status, detail.as_str()),
        (CheckStatus::Warn, "missing: ScrapeConfig virtfleet-fleet")
    );
}

#[test]
fn a_server_is_not_expected_to_select_what_its_kind_does_not_use() {
    let objects = all("virtfleet", "stack");
    let of_kind = |kind: &'static ServerKind| MonitoringServer {
        kind,
        ..server(&json!({}))
    };
    let [_, agent, ruler] = &SERVERS;
    for (kind, detail) in [
        (
            agent,
            "3 objects, each selected by a Prometheus; nothing in this cluster uses a PrometheusRule",
        ),
        (
            ruler,
            "2 objects, each selected by a Prometheus; nothing in this cluster uses a PodMonitor; nothing in \
             this cluster uses a ScrapeConfig",
        ),
    ] {
        let (status, text, _) = found(&objects, &[of_kind(kind)]);
        assert_eq!((status, text.as_str()), (CheckStatus::Ok, detail));
        let other = all("virtfleet", "other");
        assert_eq!(found(&other, &[of_kind(kind)]).0, CheckStatus::Warn);
    }
    let both = [of_kind(agent), of_kind(ruler)];
    let (status, detail, _) = found(&objects, &both);
    assert_eq!(
        (status, detail.as_str()),
        (CheckStatus::Ok, "5 objects, each selected by a Prometheus")
    );
}

#[test]
fn the_next_command_is_that_of_the_tool_which_made_the_installation() {
    let selecting = |namespaces: &Value, is_of_helm: bool, issues_certificate: bool| {
        let origin = MonitoringOrigin {
            namespace: "fleet",
            is_of_helm,
            issues_certificate,
        };
        result(&[], &[server(namespaces)], origin).next
    };
    let next = |is_of_helm, issues_certificate| selecting(&json!({}), is_of_helm, issues_certificate);
    let labels = r#"{"release":"stack"}"#;
    let helm = "helm upgrade virtfleet packaging/helm/virtfleet -n fleet --reset-then-reuse-values --set \
                monitoring.enabled=true";
    let with_labels = format!(" --set-json 'monitoring.labels={labels}'");
    assert_eq!(next(true, false), format!("{helm}{with_labels}"));
    assert_eq!(
        next(true, true),
        format!("{helm},tls.source=generated{with_labels}")
    );
    assert_eq!(
        selecting(&Value::Null, true, false),
        format!("{helm},monitoring.namespace=monitoring{with_labels}"),
        "it selects objects in its own namespace only"
    );
    let kubectl = format!(
        "kubectl -n monitoring apply -f packaging/collector/kubernetes/monitoring, with the labels {labels}"
    );
    assert_eq!(next(false, false), kubectl);
    let component =
        "list the component packaging/collector/kubernetes/api-certificate in your overlay; then ";
    assert_eq!(next(false, true), format!("{component}{kubectl}"));
}

/// What an API server answers that has all shipped objects, with a label, and more Prometheuses
/// than it lists.
fn answer(path: &str, release: &str) -> (u16, Value) {
    if path == "/apis" {
        let versions = json!([{ "groupVersion": "monitoring.coreos.com/v1", "version": "v1" }]);
        let groups = json!([{ "name": GROUP, "versions": versions }]);
        let list = json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups });
        return (200, list);
    }
    let plural = path.rsplit('/').next().unwrap();
    let (objects, token) = if plural == "prometheuses" {
        (vec![server(&json!({})).object], "more")
    } else {
        let shipped = all("virtfleet", release).into_iter();
        let of_kind = shipped.filter(|object| object.kind.resource.2 == plural);
        (of_kind.map(|object| object.object).collect(), "")
    };
    if objects.is_empty() {
        return (404, json!({ "code": 404 }));
    }
    let metadata = json!({ "continue": token });
    let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": objects });
    (200, list)
}

#[tokio::test]
async fn what_a_list_that_was_cut_lacks_is_no_warning() {
    let checked = async |release: &'static str| {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let (code, body) = answer(request.uri().path(), release);
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok::<_, Infallible>(response)
        });
        check(&Client::new(service, "default"), HELM).await
    };
    let cut = "of Prometheus only the first 500 were read: ";
    let selected = checked("stack").await;
    assert_eq!(
        (selected.status, selected.detail),
        (
            CheckStatus::Ok,
            format!("{cut}5 objects, each selected by a Prometheus")
        )
    );
    let unselected = checked("other").await;
    assert_eq!(unselected.status, CheckStatus::Skip);
    let expected = format!("{cut}no Prometheus selects ScrapeConfig virtfleet/virtfleet-guests");
    assert!(unselected.detail.starts_with(&expected), "{unselected:?}");
}
