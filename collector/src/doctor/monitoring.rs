//! Checks the objects for prometheus-operator: whether they exist, and whether a Prometheus, a
//! PrometheusAgent or a ThanosRuler selects them, as its object says. Which series a Prometheus has
//! is in `prometheus`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};
use serde_json::Value;
use virtfleet_collector_core::facts::Selector;

use super::{CheckResult, CheckStatus};
use crate::objects::LabelSelector;

/// What the check is called.
const WHAT: &str = "monitoring objects";
/// Group of prometheus-operator's API.
const GROUP: &str = "monitoring.coreos.com";
/// Selects the shipped objects.
const SHIPPED: &str = "app.kubernetes.io/name=virtfleet-collector";
/// Label with the name of a namespace, which the API server sets.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// Maximum objects of a kind that are read.
const MAX_OBJECTS: u32 = 500;

/// Kind, version and plural of an API resource.
type MonitoringResource = (&'static str, &'static str, &'static str);

struct ShippedKind {
    resource: MonitoringResource,
    names: &'static [&'static str],
    /// The fields of a Prometheus that select objects of this kind, and their namespaces.
    selectors: [&'static str; 2],
}

static KINDS: [ShippedKind; 3] = [
    ShippedKind {
        resource: ("ScrapeConfig", "v1alpha1", "scrapeconfigs"),
        names: &["virtfleet-guests", "virtfleet-fleet"],
        selectors: ["scrapeConfigSelector", "scrapeConfigNamespaceSelector"],
    },
    ShippedKind {
        resource: ("PodMonitor", "v1", "podmonitors"),
        names: &["virtfleet-collector"],
        selectors: ["podMonitorSelector", "podMonitorNamespaceSelector"],
    },
    ShippedKind {
        resource: ("PrometheusRule", "v1", "prometheusrules"),
        names: &["virtfleet", "virtfleet-recording"],
        selectors: ["ruleSelector", "ruleNamespaceSelector"],
    },
];

/// A kind of servers, which select shipped objects.
struct ServerKind {
    resource: MonitoringResource,
    /// The kinds that it selects: an agent evaluates no rules, and a ThanosRuler does nothing else.
    selects: &'static [&'static str],
}

static SERVERS: [ServerKind; 3] = [
    ServerKind {
        resource: ("Prometheus", "v1", "prometheuses"),
        selects: &["ScrapeConfig", "PodMonitor", "PrometheusRule"],
    },
    ServerKind {
        resource: ("PrometheusAgent", "v1alpha1", "prometheusagents"),
        selects: &["ScrapeConfig", "PodMonitor"],
    },
    ServerKind {
        resource: ("ThanosRuler", "v1", "thanosrulers"),
        selects: &["PrometheusRule"],
    },
];

struct MonitoringServer {
    kind: &'static ServerKind,
    object: DynamicObject,
}

/// What the command for the objects depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct MonitoringOrigin<'a> {
    pub(super) namespace: &'a str,
    /// Helm made the installation, not kustomize or another tool.
    pub(super) is_of_helm: bool,
    /// The collector issues the certificate of its API, and so accepts no client certificate.
    pub(super) issues_certificate: bool,
}

/// A shipped object, and the labels of its namespace.
struct ShippedObject {
    kind: &'static ShippedKind,
    object: DynamicObject,
    namespace: BTreeMap<String, String>,
}

impl ShippedObject {
    fn title(&self) -> String {
        let metadata = &self.object.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        format!("{} {namespace}/{name}", self.kind.resource.0)
    }
}

pub(super) async fn check(client: &Client, origin: MonitoringOrigin<'_>) -> CheckResult {
    let is_there = match client.list_api_groups().await {
        Ok(groups) => groups.groups.iter().any(|group| group.name == GROUP),
        Err(error) => return unknown(&error),
    };
    if !is_there {
        let next = "packaging/collector/prometheus.yaml has the jobs for a Prometheus without the operator";
        return CheckResult::skip(WHAT, "prometheus-operator is not installed", next);
    }
    let mut cut = Vec::new();
    let objects = match shipped(client, &mut cut).await {
        Ok(objects) => objects,
        Err(error) => return unknown(&error),
    };
    let mut servers = Vec::new();
    for kind in &SERVERS {
        match list(client, kind.resource, None, &mut cut).await {
            Ok(found) => servers.extend(found.into_iter().map(|object| MonitoringServer { kind, object })),
            Err(error) => return unknown(&error),
        }
    }
    of_first(result(&objects, &servers, origin), &cut)
}

/// The result of lists of which those of the kinds `cut` were not read completely: what was not
/// found may be among the other objects.
fn of_first(found: CheckResult, cut: &[&str]) -> CheckResult {
    if cut.is_empty() {
        return found;
    }
    let detail = format!(
        "of {} only the first {MAX_OBJECTS} were read: {}",
        cut.join(", "),
        found.detail
    );
    let status = match found.status {
        CheckStatus::Warn => CheckStatus::Skip,
        status => status,
    };
    CheckResult {
        status,
        detail,
        ..found
    }
}

fn unknown(error: &kube::Error) -> CheckResult {
    let detail = format!("cannot be checked: {error}");
    CheckResult::skip(
        WHAT,
        detail,
        "kubectl get prometheuses,scrapeconfigs,podmonitors -A",
    )
}

/// Objects of a kind in all namespaces; none if the API server does not have the kind. Adds the
/// kind to `cut` if there are more.
async fn list(
    client: &Client,
    (kind, version, plural): MonitoringResource,
    labels: Option<&str>,
    cut: &mut Vec<&'static str>,
) -> Result<Vec<DynamicObject>, kube::Error> {
    let gvk = GroupVersionKind::gvk(GROUP, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let params = ListParams {
        label_selector: labels.map(str::to_owned),
        ..ListParams::default().limit(MAX_OBJECTS)
    };
    match api.list(&params).await {
        Ok(list) => {
            if list.metadata.continue_.is_some_and(|token| !token.is_empty()) {
                cut.push(kind);
            }
            Ok(list.items)
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn shipped(client: &Client, cut: &mut Vec<&'static str>) -> Result<Vec<ShippedObject>, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut found = Vec::new();
    for kind in &KINDS {
        for object in list(client, kind.resource, Some(SHIPPED), cut).await? {
            let name = object.metadata.namespace.clone().unwrap_or_default();
            // Without the right to read it, its name is known nevertheless.
            let namespace = namespaces.get_opt(&name).await.ok().flatten();
            let labels = namespace.and_then(|namespace| namespace.metadata.labels);
            found.push(ShippedObject {
                kind,
                object,
                namespace: labels.unwrap_or_else(|| [(NAMESPACE_LABEL.to_owned(), name)].into()),
            });
        }
    }
    Ok(found)
}

fn result(
    objects: &[ShippedObject],
    servers: &[MonitoringServer],
    origin: MonitoringOrigin<'_>,
) -> CheckResult {
    let install = install_command(servers, origin);
    if objects.is_empty() {
        return CheckResult::skip(
            WHAT,
            "there are no ScrapeConfigs, PodMonitor and PrometheusRules",
            install,
        );
    }
    let missing = missing(objects);
    if !missing.is_empty() {
        return CheckResult::warn(WHAT, format!("missing: {}", missing.join(", ")), install);
    }
    let (mut selected, mut unselected, mut unused) = (0, Vec::new(), BTreeSet::new());
    for object in objects {
        let kind = object.kind.resource.0;
        let mut candidates = servers
            .iter()
            .filter(|server| server.kind.selects.contains(&kind))
            .peekable();
        if candidates.peek().is_none() {
            unused.insert(kind);
            continue;
        }
        // None if one of them selects it.
        let refusals: Option<Vec<String>> =
            candidates.map(|server| refusal(&server.object, object)).collect();
        match refusals {
            Some(refusals) => unselected.push(format!("{} ({})", object.title(), refusals.join(", "))),
            None => selected += 1,
        }
    }
    if !unselected.is_empty() {
        let detail = format!("no Prometheus selects {}", unselected.join("; "));
        return CheckResult::warn(WHAT, detail, install);
    }
    if selected == 0 {
        let detail = format!(
            "{} objects, and no Prometheus that could select them",
            objects.len()
        );
        let next = "kubectl get prometheuses,prometheusagents,thanosrulers -A";
        return CheckResult::skip(WHAT, detail, next);
    }
    let unused = unused.into_iter();
    let unused: Vec<String> = unused
        .map(|kind| format!("; nothing in this cluster uses a {kind}"))
        .collect();
    let detail = format!(
        "{selected} objects, each selected by a Prometheus{}",
        unused.concat()
    );
    CheckResult::ok(WHAT, detail)
}

/// The shipped objects that do not exist.
fn missing(objects: &[ShippedObject]) -> Vec<String> {
    let mut missing = Vec::new();
    for kind in &KINDS {
        for name in kind.names {
            let is_this = |one: &ShippedObject| {
                one.kind.resource == kind.resource && one.object.metadata.name.as_deref() == Some(*name)
            };
            if !objects.iter().any(is_this) {
                missing.push(format!("{} {name}", kind.resource.0));
            }
        }
    }
    missing
}

/// Why a Prometheus does not select an object; none if it does.
fn refusal(server: &DynamicObject, object: &ShippedObject) -> Option<String> {
    let [of_objects, of_namespaces] = object.kind.selectors;
    let title = |field: &str, what: &str| {
        let name = server.metadata.name.as_deref().unwrap_or_default();
        Some(format!("spec.{field} of {name} {what}"))
    };
    let spec = &server.data["spec"];
    let Some(by_labels) = selector(&spec[of_objects]) else {
        return title(of_objects, "selects nothing");
    };
    let empty = BTreeMap::new();
    if !matches(
        &by_labels,
        object.object.metadata.labels.as_ref().unwrap_or(&empty),
    ) {
        return title(of_objects, "does not match its labels");
    }
    let is_in_scope = match selector(&spec[of_namespaces]) {
        Some(by_namespace) => matches(&by_namespace, &object.namespace),
        // Its own namespace only.
        None => server.metadata.namespace == object.object.metadata.namespace,
    };
    if is_in_scope {
        None
    } else {
        title(of_namespaces, "leaves out its namespace")
    }
}

/// A label selector; none if it is not set.
fn selector(value: &Value) -> Option<Selector> {
    let written: LabelSelector = serde_json::from_value(value.clone()).ok()?;
    Some(Selector::from(&written))
}

fn matches(selector: &Selector, labels: &BTreeMap<String, String>) -> bool {
    selector.matches_with(|key| labels.get(key).map(String::as_str))
}

/// The namespace of the first Prometheus, if it selects only objects there.
fn own_namespace(servers: &[MonitoringServer]) -> Option<&str> {
    let server = servers.first()?;
    let mut kinds = KINDS
        .iter()
        .filter(|kind| server.kind.selects.contains(&kind.resource.0));
    let is_own = kinds.any(|kind| server.object.data["spec"][kind.selectors[1]].is_null());
    server.object.metadata.namespace.as_deref().filter(|_| is_own)
}

/// The command that makes the objects where the first Prometheus selects them, with the labels.
fn install_command(servers: &[MonitoringServer], origin: MonitoringOrigin<'_>) -> String {
    let mut selectors = servers.iter().flat_map(|server| {
        let spec = &server.object.data["spec"];
        KINDS
            .iter()
            .map(move |kind| &spec[kind.selectors[0]]["matchLabels"])
    });
    let labels = selectors.find(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()));
    if origin.is_of_helm {
        // The chart refuses the objects while the API accepts no client certificate.
        let source = if origin.issues_certificate {
            ",tls.source=generated"
        } else {
            ""
        };
        let own = own_namespace(servers).filter(|own| *own != origin.namespace);
        let own = own.map(|own| format!(",monitoring.namespace={own}"));
        let labels = labels.map(|labels| format!(" --set-json 'monitoring.labels={labels}'"));
        return format!(
            "helm upgrade virtfleet packaging/helm/virtfleet -n {} --reset-then-reuse-values --set \
             monitoring.enabled=true{source}{}{}",
            origin.namespace,
            own.unwrap_or_default(),
            labels.unwrap_or_default()
        );
    }
    let component = if origin.issues_certificate {
        "list the component packaging/collector/kubernetes/api-certificate in your overlay; then "
    } else {
        ""
    };
    let labels = labels.map(|labels| format!(", with the labels {labels}"));
    format!(
        "{component}kubectl -n monitoring apply -f packaging/collector/kubernetes/monitoring{}",
        labels.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests;
