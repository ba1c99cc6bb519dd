//! Tier 3: UserClusters from the Clusters of a KKP seed and of Cluster API, on real API servers,
//! with the shipped rights on both sides.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_tests::{
    cluster::{
        self, ApiServer,
        live::{self, Collector, WAIT_TIMEOUT},
        platforms::{definition, kkp, secret, source},
    },
    parts, skip, wait,
};
use virtfleet_wire::layered::{Node, parse_yaml};

const CLUSTERS: &str = "/apis/virtfleet.io/v1alpha1/userclusters";

struct SourceStage {
    collector: Collector,
    infra: ApiServer,
    seed: ApiServer,
    _folder: TempDir,
}

fn apply(server: &ApiServer, path: &str) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/collector/kubernetes");
    let text = fs::read_to_string(top.join(path)).unwrap();
    for object in parse_yaml(&text).unwrap().iter().map(Node::to_json) {
        server.apply(&object).unwrap();
    }
}

impl SourceStage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let (infra, seed) = (live::infra(root).unwrap(), ApiServer::start(root).unwrap());
        for file in ["infra/namespace", "infra/rbac", "sources/infra"] {
            apply(&infra, &format!("{file}.yaml"));
        }
        let kkp = definition("kubermatic.k8c.io", "Cluster", &["v1"]);
        seed.install(&[kkp]).unwrap();
        apply(&seed, "sources/kkp.yaml");
        // The seed is also the user cluster whose kubeconfigs it keeps.
        let node = cluster::user_node("vm-1", "kubevirt://vm-1", &["10.0.0.1"], &[]);
        seed.apply(&node).unwrap();
        let capi = definition("cluster.x-k8s.io", "Namespaced", &["v1beta2", "v1beta1"]);
        infra.install(&[capi]).unwrap();
        let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
        let more = ", sourceInterval: 1s";
        let inventory = live::settings(root, &infra.kubeconfig(&account), more).unwrap();
        let election = "leaderElection: { namespace: virtfleet }\n";
        let collector = Collector::start_with(&root.join("collector"), &inventory, election).unwrap();
        collector.until_ready().unwrap();
        Self {
            collector,
            infra,
            seed,
            _folder: folder,
        }
    }

    /// The admin's kubeconfig of the seed, in the place of a user cluster's.
    fn user_kubeconfig(&self) -> String {
        self.seed.kubeconfig(self.seed.admin_user())
    }

    fn user_cluster(&self, name: &str) -> Result<Option<Value>> {
        let answer = self.infra.admin().get(&format!("{CLUSTERS}/{name}"))?;
        Ok(if answer.code == 404 {
            None
        } else {
            Some(answer.ok()?)
        })
    }

    fn until(&self, what: &str, check: impl Fn() -> Result<()>) {
        let log = || self.collector.process.log();
        let done = wait::eventually(WAIT_TIMEOUT, what, check);
        done.unwrap_or_else(|error| panic!("{error:#}\n{}", log()));
    }

    fn status(&self, name: &str) -> Result<Value> {
        let path = format!("/apis/virtfleet.io/v1alpha1/clustersources/{name}");
        Ok(self.infra.admin().get(&path)?.ok()?["status"].clone())
    }

    fn refuses_what_cannot_work(&self) {
        for (spec, word) in [
            (
                json!({ "kind": "ClusterAPI" }),
                "set credentials to Account or Admin",
            ),
            (json!({ "kind": "Gardener" }), "set vms.namespace"),
            (
                json!({ "kind": "KKP", "expirationSeconds": 600 }),
                "only kubeconfigs of a garden",
            ),
            (json!({ "kind": "Kamaji" }), "Unsupported value"),
        ] {
            let error = self.infra.apply(&source("bad", &spec)).unwrap_err();
            assert!(format!("{error:#}").contains(word), "{spec}: {error:#}");
        }
    }

    /// Clusters of a seed, with one that a person has added before.
    fn follows_a_seed(&self) {
        let by_hand = live::user_cluster("dddd", "tenant-d");
        self.infra.apply(&by_hand).unwrap();
        let reader = self
            .seed
            .service_account("virtfleet", "virtfleet-source")
            .unwrap();
        let kubeconfig = self.seed.kubeconfig(&reader);
        let at = secret("virtfleet-kubeconfigs", "seed", "kubeconfig", &kubeconfig);
        self.infra.apply(&at).unwrap();
        for (id, cloud) in [
            ("aaaa", "kubevirt"),
            ("bbbb", "aws"),
            ("cccc", "kubevirt"),
            ("dddd", "kubevirt"),
        ] {
            self.seed.apply(&kkp(id, cloud)).unwrap();
            self.seed.namespace(&format!("cluster-{id}")).unwrap();
        }
        let theirs = secret(
            "cluster-aaaa",
            "viewer-kubeconfig",
            "kubeconfig",
            &self.user_kubeconfig(),
        );
        self.seed.apply(&theirs).unwrap();
        let spec = json!({
            "kind": "KKP", "selector": { "matchLabels": { "project-id": "p1" } },
            "kubeconfig": { "secret": { "namespace": "virtfleet-kubeconfigs", "name": "seed" } },
            "template": { "labels": { "tier": "gold" }, "copyLabels": ["project-id"] },
        });
        self.infra.apply(&source("seed", &spec)).unwrap();
        self.until("the status of the source", || {
            let status = self.status("seed")?;
            ensure!(status["conditions"][0]["reason"] == "Synced", "{status:#}");
            let skipped = json!([{ "cluster": "dddd", "reason": "NameTaken" }]);
            ensure!(status["skipped"] == skipped, "{status:#}");
            let counts = [&status["found"], &status["selected"], &status["userClusters"]];
            ensure!(counts == [&json!(4), &json!(3), &json!(2)], "{status:#}");
            Ok(())
        });
        self.collector
            .until_cluster("aaaa", "state", &json!("Ready"))
            .unwrap();
        self.collector
            .until_cluster("cccc", "state", &json!("Pending"))
            .unwrap();
        let made = self.user_cluster("aaaa").unwrap().unwrap();
        assert_eq!(made["spec"]["vmis"]["namespace"], "cluster-aaaa");
        assert_eq!(
            made["metadata"]["labels"],
            json!({ "tier": "gold", "project-id": "p1", "virtfleet.io/cluster-source": "seed" })
        );
        assert!(self.user_cluster("bbbb").unwrap().is_none());
        let hand_made = self.user_cluster("dddd").unwrap().unwrap();
        assert_eq!(hand_made["spec"], {
            let mut spec = by_hand["spec"].clone();
            spec["kubeconfig"]["secret"]["key"] = "kubeconfig".into();
            spec["suspend"] = false.into();
            spec
        });
        self.collector
            .until_finding("cluster-source-skipped", "dddd")
            .unwrap();
    }

    /// A kubeconfig that the platform replaces is copied again.
    fn follows_a_rotation(&self) {
        let other = self.seed.service_account("default", "other").unwrap();
        let replaced = self.seed.kubeconfig(&other);
        let theirs = secret("cluster-aaaa", "viewer-kubeconfig", "kubeconfig", &replaced);
        self.seed.apply(&theirs).unwrap();
        self.until("the copied kubeconfig is the new one", || {
            let path = "/api/v1/namespaces/virtfleet-kubeconfigs/secrets/source-aaaa";
            let copy = self.infra.admin().get(path)?.ok()?;
            ensure!(
                copy["data"]["kubeconfig"] == STANDARD.encode(&replaced),
                "not yet"
            );
            ensure!(
                copy["metadata"]["ownerReferences"][0]["name"] == "aaaa",
                "{copy:#}"
            );
            Ok(())
        });
    }

    /// A source that does not answer removes nothing.
    fn keeps_everything_without_its_source(&mut self) {
        self.seed.stop();
        self.collector
            .until_finding("cluster-source-failed", "seed")
            .unwrap();
        let status = self.status("seed").unwrap();
        assert_eq!(status["userClusters"], 2, "the last numbers stay: {status:#}");
        assert!(self.user_cluster("aaaa").unwrap().is_some());
        self.seed.start_again().unwrap();
        self.until("the source works again", || {
            let status = self.status("seed")?;
            ensure!(status["conditions"][0]["status"] == "True", "{status:#}");
            Ok(())
        });
    }

    /// A source that does not accept its kubeconfig any more removes nothing.
    fn keeps_everything_without_access(&self) {
        let mut reader = self
            .seed
            .service_account("virtfleet", "virtfleet-source")
            .unwrap();
        let good = self.seed.kubeconfig(&reader);
        "expired".clone_into(&mut reader.token);
        let bad = self.seed.kubeconfig(&reader);
        let store = |kubeconfig: &str| {
            let at = secret("virtfleet-kubeconfigs", "seed", "kubeconfig", kubeconfig);
            self.infra.apply(&at).unwrap();
        };
        store(&bad);
        self.until("the refusal is named", || {
            let ready = self.status("seed")?["conditions"][0].clone();
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(ready["reason"] == "Unauthorized", "{ready}");
            ensure!(
                message.ends_with("the Secret virtfleet-kubeconfigs/seed"),
                "{ready}"
            );
            Ok(())
        });
        self.collector
            .until_finding("cluster-source-failed", "virtfleet-kubeconfigs/seed")
            .unwrap();
        assert!(self.user_cluster("aaaa").unwrap().is_some());
        store(&good);
        self.until("the source works again", || {
            let status = self.status("seed")?;
            ensure!(status["conditions"][0]["status"] == "True", "{status:#}");
            Ok(())
        });
    }

    fn removes_what_is_gone(&self) {
        self.seed.remove(&kkp("aaaa", "kubevirt")).unwrap();
        self.until("the UserCluster is removed", || {
            ensure!(self.user_cluster("aaaa")?.is_none(), "it is there");
            let path = "/api/v1/namespaces/virtfleet-kubeconfigs/secrets/source-aaaa";
            let code = self.infra.admin().get(path)?.code;
            ensure!(code == 404, "{code}");
            Ok(())
        });
        assert!(self.user_cluster("cccc").unwrap().is_some());
        assert!(self.user_cluster("dddd").unwrap().is_some());
    }

    /// Cluster API on the infra cluster itself.
    fn follows_cluster_api(&self) {
        let spec = json!({ "kind": "ClusterAPI", "credentials": "Admin", "namespace": "team" });
        self.infra.namespace("team").unwrap();
        self.infra.apply(&source("capi", &spec)).unwrap();
        self.until("the missing right is named", || {
            let message = self.status("capi")?["conditions"][0]["message"].to_string();
            ensure!(message.contains("clusters.cluster.x-k8s.io"), "{message}");
            Ok(())
        });
        let account = self
            .infra
            .service_account("virtfleet", "virtfleet-collector")
            .unwrap();
        let rules = json!([
            { "apiGroups": ["cluster.x-k8s.io"], "resources": ["clusters"], "verbs": ["get", "list"] },
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] },
        ]);
        self.infra.grant("capi", &account, Some("team"), &rules).unwrap();
        let cluster = |version: &str, name: &str| {
            json!({
                "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Cluster",
                "metadata": { "namespace": "team", "name": name },
                "spec": { "infrastructureRef": { "kind": "KubevirtCluster", "name": name } },
            })
        };
        self.infra.apply(&cluster("v1beta2", "blue")).unwrap();
        let theirs = secret("team", "blue-kubeconfig", "value", &self.user_kubeconfig());
        self.infra.apply(&theirs).unwrap();
        self.collector
            .until_cluster("blue", "state", &json!("Ready"))
            .unwrap();
        let made = self.user_cluster("blue").unwrap().unwrap();
        assert_eq!(
            made["spec"]["vmis"],
            json!({ "namespace": "team", "selector": { "matchLabels": {
                "cluster.x-k8s.io/cluster-name": "blue",
                "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "team",
            } } })
        );
    }
}

#[test]
fn user_clusters_follow_kkp_and_cluster_api_tier3() {
    let test = "user_clusters_follow_kkp_and_cluster_api_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let mut stage = SourceStage::new();
    stage.refuses_what_cannot_work();
    stage.follows_a_seed();
    stage.follows_a_rotation();
    stage.keeps_everything_without_its_source();
    stage.keeps_everything_without_access();
    stage.removes_what_is_gone();
    stage.follows_cluster_api();
}
