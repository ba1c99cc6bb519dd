//! Tier 3: what `virtfleetctl install check` says about an installation on a real API server: its
//! caller, versions, definitions, user clusters, and the objects for Prometheus.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    bins,
    cluster::{ApiServer, User, live::WAIT_TIMEOUT},
    install::{self, Helm, RELEASE},
    parts,
    process::Launch,
    skip, wait,
};

/// An API server with an installed chart, whose pods no kubelet runs.
struct Installed {
    server: ApiServer,
    folder: tempfile::TempDir,
}

impl Installed {
    /// Installs the chart with the objects for Prometheus, on a server that has their kinds.
    fn new(helm: &Helm) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = install::server(helm, folder.path())?;
        let mut definitions = install::prometheus_definitions()?;
        definitions.push(prometheus_kind());
        server.install(&definitions)?;
        helm.install(&[
            "--set",
            "trustDomain=fleet.example.org,monitoring.enabled=true,monitoring.labels.release=stack",
        ])?;
        Ok(Self { server, folder })
    }

    /// The results by name, as a user of the API server gets them.
    fn results(&self, user: &User) -> Result<BTreeMap<String, Value>> {
        let file = self.folder.path().join("caller.kubeconfig");
        fs::write(&file, self.server.kubeconfig(user))?;
        let launch = Launch::new(bins::ctl()?).args(["install", "check", "-o", "json", "--kubeconfig"]);
        let (_, said) = launch.arg(&file).said(WAIT_TIMEOUT)?;
        let results: Vec<Value> = serde_json::from_str(&said).with_context(|| said.clone())?;
        let named = results.into_iter().map(|result| {
            let status = result["status"].as_str().unwrap_or_default();
            ensure!(
                status == "ok" || result["next"].as_str().is_some_and(|next| !next.is_empty()),
                "{result}"
            );
            Ok((result["what"].as_str().unwrap_or_default().to_owned(), result))
        });
        named.collect()
    }

    /// Waits until a check has this status, and its result contains each of these words.
    fn until(&self, user: &User, what: &str, status: &str, words: &[&str]) {
        wait::eventually(WAIT_TIMEOUT, &format!("{status} {what}"), || {
            let results = self.results(user)?;
            let result = results.get(what).with_context(|| format!("{results:?}"))?;
            ensure!(result["status"] == status, "{result}");
            let text = ["detail", "next"].map(|key| result[key].as_str().unwrap_or_default());
            let text = text.join("\n");
            for word in words {
                ensure!(text.contains(word), "{word}: {result}");
            }
            Ok(())
        })
        .unwrap();
    }

    /// As the admin.
    fn admin_until(&self, what: &str, status: &str, words: &[&str]) {
        self.until(self.server.admin_user(), what, status, words);
    }

    /// Applies an object of a kind that may not be served yet.
    fn apply(&self, object: &Value) {
        self.server.apply_when_served(object).unwrap();
    }

    fn delete(&self, path: &str) {
        self.server.admin().delete(path).unwrap().ok().unwrap();
    }
}

/// The kind Prometheus, with any content.
fn prometheus_kind() -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "prometheuses.monitoring.coreos.com" },
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": { "kind": "Prometheus", "plural": "prometheuses", "singular": "prometheus" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

/// A Prometheus in the namespace of the installation that selects objects of a release.
fn prometheus(release: &str) -> Value {
    let selector = json!({ "matchLabels": { "release": release } });
    json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus",
        "metadata": { "namespace": RELEASE, "name": "k8s" },
        "spec": {
            "scrapeConfigSelector": selector, "podMonitorSelector": selector, "ruleSelector": selector,
        },
    })
}

#[test]
fn tier3_install_check_names_what_is_missing_with_the_next_command() {
    let test = "tier3_install_check_names_what_is_missing_with_the_next_command";
    let needs = || {
        // Debian's 1.20 publishes no schemas.
        parts::kube_control_plane()?;
        parts::prometheus_operator()?;
        Helm::new()
    };
    let Some(helm) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let installed = Installed::new(&helm).unwrap();
    for (what, status) in [
        ("caller", "ok"),
        ("roles", "ok"),
        ("version of the manifests", "ok"),
        ("definitions", "ok"),
        ("user clusters", "skip"),
    ] {
        installed.admin_until(what, status, &[]);
    }
    monitoring(&installed);
    user_clusters(&installed);
    rights(&installed);
    older(&installed);
    rollout(&installed);
}

/// The objects for Prometheus count where a Prometheus selects them.
fn monitoring(installed: &Installed) {
    const WHAT: &str = "monitoring objects";
    installed.admin_until(WHAT, "skip", &["no Prometheus"]);
    installed.apply(&prometheus("other"));
    installed.admin_until(
        WHAT,
        "warn",
        &[
            "ScrapeConfig virtfleet/virtfleet-guests",
            r#"{"release":"other"}"#,
        ],
    );
    installed.apply(&prometheus("stack"));
    installed.admin_until(WHAT, "ok", &["5 objects"]);
    installed.delete("/apis/monitoring.coreos.com/v1/namespaces/virtfleet/podmonitors/virtfleet-collector");
    installed.admin_until(
        WHAT,
        "warn",
        &["PodMonitor virtfleet-collector", "monitoring.enabled=true"],
    );
}

/// A user cluster is checked by its status. That of one tenant is no failure of the installation.
fn user_clusters(installed: &Installed) {
    let cluster = |name: &str| {
        json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "metadata": { "name": name },
            "spec": { "vmis": { "namespace": "vms" } },
        })
    };
    let phase = |name: &str, phase: &str| {
        let status = json!({ "status": { "phase": phase, "message": "no answer" } });
        installed.server.merge_status(&cluster(name), &status).unwrap();
    };
    installed.apply(&cluster("blue"));
    installed.admin_until(
        "user cluster blue",
        "warn",
        &["no status", "describe usercluster blue"],
    );
    phase("blue", "Unreachable");
    installed.admin_until("user cluster blue", "fail", &["Unreachable: no answer"]);
    for name in ["green", "red"] {
        installed.apply(&cluster(name));
        phase(name, "Ready");
    }
    installed.admin_until("user cluster blue", "warn", &["Unreachable: no answer"]);
    phase("blue", "Ready");
    installed.admin_until("user clusters", "ok", &["3 connected"]);
}

/// A user without rights is named as such, and so are shipped roles that are gone.
fn rights(installed: &Installed) {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let stranger = installed.server.service_account("default", "stranger").unwrap();
    installed.until(
        &stranger,
        "caller",
        "warn",
        &["default/stranger", "--service-account"],
    );
    installed.delete(&format!(
        "{RBAC}/namespaces/virtfleet/rolebindings/virtfleet-clients"
    ));
    installed.until(&stranger, "caller", "fail", &["services/proxy", "access.yaml"]);
    installed.delete(&format!("{RBAC}/clusterroles/virtfleet-viewer"));
    let missing = [
        "ClusterRole virtfleet-viewer",
        "RoleBinding virtfleet/virtfleet-clients",
    ];
    installed.admin_until("roles", "warn", &[missing[0], missing[1], "access.yaml"]);
}

/// A definition without a field that the collector needs is a failure, unless the collector is
/// older than virtfleetctl.
fn older(installed: &Installed) {
    let admin = installed.server.admin();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/userclusters.virtfleet.io";
    let mut definition = admin.get(path).unwrap().ok().unwrap();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = definition.pointer_mut(spec).unwrap().as_object_mut().unwrap();
    fields.remove("nodeConditions").unwrap();
    admin.put(path, &definition).unwrap().ok().unwrap();
    let next = "virtfleet-collector crds | kubectl apply";
    installed.admin_until("definition UserCluster", "fail", &["spec.nodeConditions", next]);

    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": RELEASE, "name": "virtfleet-collector" },
    });
    let labels = json!({ "metadata": { "labels": { "app.kubernetes.io/version": "0.0.1" } } });
    installed.server.merge(&deployment, &labels).unwrap();
    let upgrade = "helm upgrade virtfleet packaging/helm/virtfleet -n virtfleet";
    installed.admin_until("version of the manifests", "warn", &["0.0.1 is older", upgrade]);
    installed.admin_until("definition UserCluster", "warn", &["spec.nodeConditions"]);
}

/// A rollout that has stopped is a failure, although the pods of the last version are available.
fn rollout(installed: &Installed) {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": RELEASE, "name": "virtfleet-collector" },
    });
    let stored = installed.server.fetch(&deployment).unwrap().unwrap();
    let status = |progresses: &str, reason: &str| {
        let status = json!({ "status": {
            "observedGeneration": stored["metadata"]["generation"],
            "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 2,
            "conditions": [{ "type": "Progressing", "status": progresses, "reason": reason, "message": "m" }],
        } });
        installed.server.merge_status(&deployment, &status).unwrap();
    };
    let next = "kubectl -n virtfleet describe pods";
    status("True", "ReplicaSetUpdated");
    installed.admin_until("Deployment", "warn", &["1 of 2 are of the latest version", next]);
    status("False", "ProgressDeadlineExceeded");
    installed.admin_until(
        "Deployment",
        "fail",
        &["2 of 2 replicas", "ProgressDeadlineExceeded", next],
    );
}
