//! Tier 3: `virtfleetctl cluster add`, `rotate` and `remove` on real API servers, with a collector
//! that has the shipped rights.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{fs, path::PathBuf, slice};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_tests::{
    bins,
    cluster::{
        self, ApiServer, Client, MERGE_PATCH, User,
        live::{self, Collector, WAIT_TIMEOUT},
    },
    install::shipped,
    parts,
    process::Launch,
    skip, wait,
};
use virtfleet_wire::layered::parse_yaml;

const NODE: &str = "/api/v1/nodes/vm-1";
const SECRET: &str = "/api/v1/namespaces/virtfleet-kubeconfigs/secrets/kubeconfig-blue";
const CLUSTER: &str = "/apis/virtfleet.io/v1alpha1/userclusters/blue";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/virtfleet-collector";
const ACCOUNT: &str = "/api/v1/namespaces/virtfleet/serviceaccounts/virtfleet-collector";

struct VerbStage {
    collector: Collector,
    infra: ApiServer,
    tenant: ApiServer,
    folder: TempDir,
}

impl VerbStage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        // May read what `cluster add` reads in the infra cluster, and write nothing.
        let reader = User::new("reader", &[]).unwrap();
        let infra = ApiServer::start_with(root, slice::from_ref(&reader)).unwrap();
        live::install(&infra).unwrap();
        let rules = json!([
            { "apiGroups": [""], "resources": ["namespaces", "secrets"], "verbs": ["get"] },
            { "apiGroups": ["virtfleet.io"], "resources": ["userclusters", "labelpropagations"], "verbs": ["get", "list"] },
        ]);
        infra.grant("reader", &reader, None, &rules).unwrap();
        let tenant = ApiServer::start(root).unwrap();
        infra.namespace("tenant").unwrap();
        for file in ["namespace", "rbac"] {
            for object in shipped(&format!("infra/{file}.yaml")).unwrap() {
                infra.apply(&object).unwrap();
            }
        }
        infra
            .apply(&cluster::infra_node("host-1", &[("rack", "r-1")]))
            .unwrap();
        let vmi = cluster::vmi("tenant", "vm-1").phase("Running").on("host-1");
        infra.apply(&vmi).unwrap();
        let node = cluster::user_node("vm-1", "kubevirt://vm-1", &["10.0.0.1"], &[]);
        tenant.apply(&node).unwrap();
        let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
        let inventory = live::settings(root, &infra.kubeconfig(&account), "").unwrap();
        let more = "leaderElection: { namespace: virtfleet }\n";
        let collector = Collector::start_with(&root.join("collector"), &inventory, more).unwrap();
        collector.until_ready().unwrap();
        let file = |name: &str, text: String| fs::write(root.join(name), text).unwrap();
        file("tenant.admin", tenant.kubeconfig(tenant.admin_user()));
        file("infra.admin", infra.kubeconfig(infra.admin_user()));
        file("infra.reader", infra.kubeconfig(infra.user("reader").unwrap()));
        Self {
            collector,
            infra,
            tenant,
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code and both streams of `virtfleetctl cluster VERB NAME …`.
    fn verb(&self, infra: &str, arguments: &[&str]) -> (i32, String) {
        let mut launch = Launch::new(bins::ctl().unwrap()).arg("cluster").args(arguments);
        if !arguments.contains(&"--infra-only") {
            launch = launch.arg("--kubeconfig").arg(self.path("tenant.admin"));
        }
        launch
            .arg("--infra-kubeconfig")
            .arg(self.path(infra))
            .said(WAIT_TIMEOUT * 3)
            .unwrap()
    }

    fn done(&self, arguments: &[&str]) -> String {
        let (code, text) = self.verb("infra.admin", arguments);
        assert_eq!(code, 0, "{text}");
        text
    }

    /// The collector's client of the user cluster.
    fn as_collector(&self) -> Client {
        let secret = self.infra.admin().get(SECRET).unwrap().ok().unwrap();
        let text = STANDARD
            .decode(secret["data"]["kubeconfig"].as_str().unwrap())
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let config = parse_yaml(&text).unwrap()[0].to_json();
        let token = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        let user = User {
            name: "collector".into(),
            groups: Vec::new(),
            token,
        };
        self.tenant.client(&user).unwrap()
    }

    fn until_ready(&self) {
        self.collector
            .until_cluster("blue", "state", &json!("Ready"))
            .unwrap();
    }

    fn markers(&self) -> Result<Vec<String>> {
        let path = "/api/v1/namespaces/virtfleet/secrets?labelSelector=virtfleet.io%2Fcredential";
        let list = self.tenant.admin().get(path)?.ok()?;
        let items = list["items"].as_array().context("items")?;
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(items.iter().map(name).collect())
    }

    /// Everything that the verbs write, with resource versions.
    fn versions(&self) -> Vec<Value> {
        let infra = [SECRET, CLUSTER].map(|path| self.infra.admin().get(path).unwrap().body);
        let tenant = [ROLE, ACCOUNT].map(|path| self.tenant.admin().get(path).unwrap().body);
        // The collector writes the status of the UserCluster.
        let version = |object: Value| match object["metadata"]["generation"].clone() {
            Value::Null => object["metadata"]["resourceVersion"].clone(),
            generation => generation,
        };
        infra.into_iter().chain(tenant).map(version).collect()
    }

    fn dry_run_writes_nothing(&self) {
        let text = self.done(&["add", "blue", "--namespace", "tenant", "--dry-run"]);
        for word in [
            "kind: ClusterRole\n",
            "kind: ValidatingAdmissionPolicy\n",
            "kind: UserCluster\n",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert_eq!(self.tenant.admin().get(ACCOUNT).unwrap().code, 404);
        assert_eq!(self.infra.admin().get(CLUSTER).unwrap().code, 404);
    }

    /// A failure after the user cluster was written says what stays, and leaves no token.
    fn half_a_run_is_continued(&self) {
        let (code, text) = self.verb("infra.reader", &["add", "blue", "--namespace", "tenant"]);
        assert_eq!(code, 1, "{text}");
        for word in [
            "created    user cluster   ClusterRole virtfleet-collector",
            "cannot write Secret virtfleet-kubeconfigs/kubeconfig-blue in the infra cluster",
            "run the same command again",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert_eq!(self.markers().unwrap(), [""; 0]);
    }

    fn added(&self) {
        let text = self.done(&["add", "blue", "--namespace", "tenant", "--label", "tier=gold"]);
        for word in [
            "unchanged  user cluster   ClusterRole virtfleet-collector",
            "created    infra cluster  Secret virtfleet-kubeconfigs/kubeconfig-blue",
            "created    infra cluster  UserCluster blue",
            "The token is valid until",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        self.until_ready();
        let ours = self.as_collector();
        assert_eq!(ours.get("/api/v1/nodes").unwrap().code, 200);
        assert_eq!(ours.get("/api/v1/pods").unwrap().code, 403, "no policy needs it");
        assert_eq!(ours.get("/api/v1/secrets").unwrap().code, 403);
        let cordon = json!({ "spec": { "unschedulable": true } });
        wait::eventually(WAIT_TIMEOUT, "the admission policy is enforced", || {
            let code = ours.patch(NODE, MERGE_PATCH, &cordon)?.code;
            let undo = json!({ "spec": { "unschedulable": null } });
            self.tenant.admin().patch(NODE, MERGE_PATCH, &undo)?.ok()?;
            ensure!(code == 422, "{code}");
            Ok(())
        })
        .unwrap();
        let before = self.versions();
        let text = self.done(&["add", "blue"]);
        assert!(text.contains("nothing was changed"), "{text}");
        let is_kept = |line: &str| !line.starts_with("created") && !line.starts_with("changed");
        assert!(text.lines().all(is_kept), "{text}");
        assert_eq!(self.versions(), before);
    }

    /// Rights follow the policies of the infra cluster, and the options.
    fn rights_are_adjusted(&self) {
        for policy in shipped("examples/labelpropagation.yaml").unwrap() {
            self.infra.apply(&policy).unwrap();
        }
        let text = self.done(&["add", "blue", "--node-condition", "DisksReady"]);
        assert!(
            text.contains("changed    user cluster   ClusterRole virtfleet-collector\n"),
            "{text}"
        );
        let ours = self.as_collector();
        wait::eventually(WAIT_TIMEOUT, "the account may list pods", || {
            let code = ours.get("/api/v1/pods")?.code;
            ensure!(code == 200, "{code}");
            Ok(())
        })
        .unwrap();
        let spec = &self.infra.admin().get(CLUSTER).unwrap().body["spec"];
        assert_eq!(spec["nodeConditions"], json!(["DisksReady"]));
    }

    /// The collector of another infra cluster uses the same account: its rights stay as long as it
    /// has a token.
    fn rights_of_another_collector_stay(&self) {
        let other = "/api/v1/namespaces/virtfleet/secrets";
        let marker = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "virtfleet.io/credential",
            "metadata": { "name": "of-another", "labels": { "virtfleet.io/credential": "true" } },
        });
        self.tenant.admin().post(other, &marker).unwrap().ok().unwrap();
        for policy in shipped("examples/labelpropagation.yaml").unwrap() {
            let name = policy["metadata"]["name"].as_str().unwrap();
            let path = format!("/apis/virtfleet.io/v1alpha1/labelpropagations/{name}");
            self.infra.admin().delete(&path).unwrap().ok().unwrap();
        }
        let text = self.done(&["add", "blue"]);
        for word in [
            "unchanged  user cluster   ClusterRole virtfleet-collector\n",
            "of-another of another collector is bound to the same account",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let may_read_pods = || self.as_collector().get("/api/v1/pods").unwrap().code == 200;
        assert!(may_read_pods());
        let made = format!("{other}/of-another");
        self.tenant.admin().delete(&made).unwrap().ok().unwrap();
        let text = self.done(&["add", "blue"]);
        assert!(
            text.contains("changed    user cluster   ClusterRole virtfleet-collector\n"),
            "{text}"
        );
        wait::eventually(WAIT_TIMEOUT, "the right is gone", || {
            ensure!(!may_read_pods(), "it may still read pods");
            Ok(())
        })
        .unwrap();
    }

    fn rotated(&self) {
        let (before, markers) = (self.as_collector(), self.markers().unwrap());
        assert_eq!(markers.len(), 1, "{markers:?}");
        let text = self.done(&["rotate", "blue", "--duration", "24h"]);
        for word in [
            "used       by the collector",
            "revoked    user cluster",
            "valid until",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert_eq!(self.as_collector().get("/api/v1/nodes").unwrap().code, 200);
        // An API server remembers tokens for ten seconds.
        wait::eventually(WAIT_TIMEOUT, "the old token is revoked", || {
            let code = before.get("/api/v1/nodes")?.code;
            ensure!(code == 401, "{code}");
            Ok(())
        })
        .unwrap();
        let now = self.markers().unwrap();
        assert!(now.len() == 1 && now != markers, "{now:?}");
        self.until_ready();
        let secret = self.infra.admin().get(SECRET).unwrap().body;
        let annotations = &secret["metadata"]["annotations"];
        assert_eq!(annotations["virtfleet.io/credential"], now[0].as_str());
        assert_eq!(annotations["virtfleet.io/credentials-to-revoke"], Value::Null);
    }

    fn removed(&self) {
        let (code, text) = self.verb("infra.admin", &["remove", "blue"]);
        assert!(code == 2 && text.contains("--yes"), "{code} {text}");
        let text = self.done(&["remove", "blue", "--yes"]);
        assert!(
            text.contains("deleted    infra cluster  UserCluster blue"),
            "{text}"
        );
        for path in [SECRET, CLUSTER] {
            assert_eq!(self.infra.admin().get(path).unwrap().code, 404, "{path}");
        }
        let admission = "/apis/admissionregistration.k8s.io/v1";
        for path in [
            ROLE,
            ACCOUNT,
            &format!("{admission}/validatingadmissionpolicies/virtfleet-collector-metadata-only"),
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/virtfleet-collector-node-conditions",
        ] {
            assert_eq!(self.tenant.admin().get(path).unwrap().code, 404, "{path}");
        }
        assert_eq!(self.markers().unwrap(), [""; 0]);
        let text = self.done(&["remove", "blue", "--yes"]);
        assert!(text.contains("nothing of user cluster blue"), "{text}");
    }
}

#[test]
fn a_user_cluster_is_added_rotated_and_removed_tier3() {
    let test = "a_user_cluster_is_added_rotated_and_removed_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let stage = VerbStage::new();
    stage.dry_run_writes_nothing();
    stage.half_a_run_is_continued();
    stage.added();
    stage.rights_are_adjusted();
    stage.rights_of_another_collector_stay();
    stage.rotated();
    stage.removed();
}
