//! Rights that only one feature needs: `virtfleetctl drain`, volumes of VMs, ClusterSources.
//! Without them the rest works, so a missing one is never a failure; the result says what is
//! missing and what grants it.

use kube::{Api, Client, api::ListParams};

use super::{
    CheckResult, CheckStatus,
    rights::{KUBECONFIG_NAMESPACE, Right},
};
use crate::{config::CollectorConfig, objects::ClusterSource};

/// Maximum ClusterSources that are read.
const MAX_SOURCES: u32 = 500;
const MANIFESTS: &str = "packaging/collector/kubernetes";

/// A feature, and the rights that it needs beyond those of the collector.
#[derive(Debug)]
struct Feature {
    /// What the check is called.
    name: &'static str,
    /// What works with these rights.
    purpose: &'static str,
    rights: Vec<Right>,
    /// Why the feature is not used, so that a missing right is as it should be.
    unused: Option<&'static str>,
    /// The command or value that grants the rights.
    grant: String,
}

/// A result for each feature. `own_namespace` is that of the collector. The rights are those of the
/// client's own account, or of `account`, a ServiceAccount of `own_namespace`.
pub(super) async fn check(
    config: &CollectorConfig,
    client: &Client,
    own_namespace: &str,
    account: Option<&str>,
) -> Vec<CheckResult> {
    let account = account.map(|name| (own_namespace, name));
    let sources = sources(client).await;
    let mut results = Vec::new();
    for feature in [
        drain(config, own_namespace),
        volumes(config, own_namespace),
        cluster_sources(&sources, own_namespace),
    ] {
        let mut missing = Vec::new();
        for right in &feature.rights {
            match right.is_granted(client, account).await {
                Ok(true) => {}
                Ok(false) => missing.push(format!("{} {} ({})", right.text(), right.place(), right.without)),
                Err(error) => missing.push(format!("{}: cannot be checked: {error}", right.text())),
            }
        }
        results.push(result(&feature, &missing));
    }
    results
}

fn result(feature: &Feature, missing: &[String]) -> CheckResult {
    if missing.is_empty() {
        return CheckResult::ok(feature.name, format!("granted: {}", feature.purpose));
    }
    if let Some(unused) = feature.unused {
        let detail = format!("not granted: {}; {unused}", feature.purpose);
        return CheckResult::skip(feature.name, detail, &feature.grant);
    }
    let detail = format!("not granted: {}", missing.join(", "));
    CheckResult::warn(feature.name, detail, &feature.grant)
}

fn drain(config: &CollectorConfig, own_namespace: &str) -> Feature {
    let without = "virtfleetctl drain does not know the volumes of VMs";
    let claims = in_namespaces(config).map(|namespace| get("", "persistentvolumeclaims", namespace, without));
    let zones = "virtfleetctl drain does not know the zones of volumes";
    let zones = get("", "persistentvolumes", None, zones);
    Feature {
        name: "drain",
        purpose: "virtfleetctl drain shows volumes of VMs and their zones",
        rights: claims.chain([zones]).collect(),
        unused: None,
        grant: grant_of_rbac(config, own_namespace),
    }
}

/// Claims and DataVolumes of VMs that wait for them, and claims of VMs that run.
fn volumes(config: &CollectorConfig, own_namespace: &str) -> Feature {
    let lost =
        "the health of a VM does not name the volume for which it waits, nor a lost claim while it runs";
    let unnamed = "the health of a VM that waits for a volume does not name it";
    let kinds = [
        ("", "persistentvolumeclaims", lost),
        ("cdi.kubevirt.io", "datavolumes", unnamed),
    ];
    let rights = in_namespaces(config).flat_map(|namespace| {
        kinds.map(|(group, resource, without)| get(group, resource, namespace.clone(), without))
    });
    Feature {
        name: "volumes",
        purpose: "the health of a VM names the volume for which it waits, and a claim that is lost",
        rights: rights.collect(),
        unused: None,
        grant: grant_of_rbac(config, own_namespace),
    }
}

fn get(
    group: &'static str,
    resource: &'static str,
    namespace: Option<String>,
    without: &'static str,
) -> Right {
    Right {
        verb: "get",
        group,
        resource,
        namespace,
        name: None,
        without,
        status: CheckStatus::Warn,
    }
}

/// The namespaces to which the collector is limited.
fn watched(config: &CollectorConfig) -> &[String] {
    let cluster = config.inventory.cluster.as_ref();
    cluster.map_or(&[], |cluster| &cluster.namespaces)
}

/// Where rights about VMs are needed: in the namespaces to which the collector is limited, else in
/// all.
fn in_namespaces(config: &CollectorConfig) -> impl Iterator<Item = Option<String>> {
    let watched = watched(config);
    let all = watched.is_empty().then_some(None);
    watched.iter().cloned().map(Some).chain(all)
}

/// What grants the rights of the packaged ClusterRole, and of the Roles in its place.
fn grant_of_rbac(config: &CollectorConfig, own_namespace: &str) -> String {
    let manifests = if watched(config).is_empty() {
        format!("{MANIFESTS}/infra/rbac.yaml")
    } else {
        format!("{MANIFESTS}/infra/rbac.yaml, and of {MANIFESTS}/namespaced/rbac.yaml in each namespace")
    };
    format!(
        "helm upgrade virtfleet packaging/helm/virtfleet -n {own_namespace} --reset-then-reuse-values, or \
         kubectl apply -f {manifests}"
    )
}

/// `namespaces` are those to which ClusterSources copy kubeconfigs.
fn cluster_sources(namespaces: &[String], own_namespace: &str) -> Feature {
    let right = |verb, group, resource, namespace: Option<&str>, without| Right {
        verb,
        group,
        resource,
        namespace: namespace.map(str::to_owned),
        name: None,
        without,
        status: CheckStatus::Warn,
    };
    let mut rights: Vec<Right> = ["create", "patch", "delete"]
        .map(|verb| {
            let without = "UserClusters do not follow the source";
            right(verb, "virtfleet.io", "userclusters", None, without)
        })
        .into();
    let packaged = [KUBECONFIG_NAMESPACE.to_owned()];
    let places = if namespaces.is_empty() {
        &packaged
    } else {
        namespaces
    };
    for namespace in places {
        rights.extend(["create", "patch", "delete"].map(|verb| {
            let without = "kubeconfigs are not copied";
            right(verb, "", "secrets", Some(namespace), without)
        }));
    }
    Feature {
        name: "ClusterSources",
        purpose: "UserClusters are made from KKP, Cluster API or Gardener",
        rights,
        unused: namespaces.is_empty().then_some("there is no ClusterSource"),
        grant: format!(
            "helm upgrade virtfleet packaging/helm/virtfleet -n {own_namespace} --reset-then-reuse-values --set \
             clusterSources.enabled=true, or kubectl apply -f {MANIFESTS}/sources/infra.yaml"
        ),
    }
}

/// The namespaces to which ClusterSources copy kubeconfigs. Empty if there is no ClusterSource, or
/// if they cannot be listed, which has a check of its own.
async fn sources(client: &Client) -> Vec<String> {
    let api: Api<ClusterSource> = Api::all(client.clone());
    let list = api.list(&ListParams::default().limit(MAX_SOURCES)).await;
    let sources = list.map(|list| list.items).unwrap_or_default();
    let mut namespaces: Vec<String> = sources
        .into_iter()
        .map(|source| source.spec.secret_namespace)
        .collect();
    namespaces.sort();
    namespaces.dedup();
    namespaces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(feature: &Feature) -> Vec<String> {
        let text = |right: &Right| format!("{} {}", right.text(), right.place());
        feature.rights.iter().map(text).collect()
    }

    #[test]
    fn a_missing_optional_right_is_never_a_failure() {
        let config = CollectorConfig::default();
        let drain = drain(&config, "fleet");
        assert_eq!(result(&drain, &[]).status, CheckStatus::Ok);
        let missing = result(&drain, &["get persistentvolumes".to_owned()]);
        assert_eq!(missing.status, CheckStatus::Warn);
        assert!(
            missing.next.contains("-n fleet") && missing.next.contains("infra/rbac.yaml"),
            "{missing:?}"
        );

        let denied = ["create secrets".to_owned()];
        let unused = result(&cluster_sources(&[], "fleet"), &denied);
        assert_eq!(unused.status, CheckStatus::Skip);
        assert!(unused.detail.ends_with("there is no ClusterSource"), "{unused:?}");
        assert!(unused.next.contains("clusterSources.enabled=true"), "{unused:?}");
        let used = cluster_sources(&["kubeconfigs-eu".to_owned()], "fleet");
        let places: Vec<String> = used.rights.iter().map(Right::place).collect();
        assert_eq!(places[3..], ["-n kubeconfigs-eu"; 3].map(str::to_owned));
        assert_eq!(result(&used, &denied).status, CheckStatus::Warn);
    }

    #[test]
    fn a_collector_of_some_namespaces_needs_the_claims_there() {
        let mut config = CollectorConfig::default();
        let cluster = crate::config::ClusterInventory {
            namespaces: vec!["team-a".to_owned(), "team-b".to_owned()],
            ..crate::config::ClusterInventory::default()
        };
        config.inventory.cluster = Some(cluster);
        let drain = drain(&config, "virtfleet");
        assert_eq!(
            texts(&drain),
            [
                "get persistentvolumeclaims -n team-a",
                "get persistentvolumeclaims -n team-b",
                "get persistentvolumes --all-namespaces",
            ]
        );
        assert!(drain.grant.contains("namespaced/rbac.yaml"), "{}", drain.grant);
        let volumes = volumes(&config, "virtfleet");
        assert_eq!(
            texts(&volumes),
            [
                "get persistentvolumeclaims -n team-a",
                "get datavolumes.cdi.kubevirt.io -n team-a",
                "get persistentvolumeclaims -n team-b",
                "get datavolumes.cdi.kubevirt.io -n team-b",
            ]
        );
    }
}
