//! Tier 3: accounts of the collector in the user clusters of a KKP seed (`credentials: Account`),
//! on real API servers, with the shipped rights on both sides.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_tests::{
    cluster::{
        self, ApiServer, Client, Fault, MERGE_PATCH, Proxy, User,
        live::{self, Collector, WAIT_TIMEOUT},
        platforms::{definition, kkp, secret, source},
    },
    install::shipped,
    parts, skip, wait,
};
use virtfleet_wire::layered::parse_yaml;

const NODE: &str = "/api/v1/nodes/vm-1";
const SOURCE: &str = "/apis/virtfleet.io/v1alpha1/clustersources/seed";
const MARKERS: &str = "/api/v1/namespaces/virtfleet/secrets?labelSelector=virtfleet.io%2Fcredential";
/// User clusters whose API server does not answer: more than the collector works on at once.
const SILENT_CLUSTERS: usize = 12;

/// An infra cluster, and a seed that is also the user cluster whose kubeconfigs it keeps.
struct AccountStage {
    collector: Collector,
    infra: ApiServer,
    seed: ApiServer,
    _folder: TempDir,
}

fn secret_path(cluster: &str) -> String {
    format!("/api/v1/namespaces/virtfleet-kubeconfigs/secrets/source-{cluster}")
}

impl AccountStage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let (infra, seed) = (live::infra(root).unwrap(), ApiServer::start(root).unwrap());
        for file in ["infra/namespace", "infra/rbac", "sources/infra"] {
            for object in shipped(&format!("{file}.yaml")).unwrap() {
                infra.apply(&object).unwrap();
            }
        }
        seed.install(&[definition("kubermatic.k8c.io", "Cluster", &["v1"])])
            .unwrap();
        for object in shipped("sources/kkp.yaml").unwrap() {
            seed.apply(&object).unwrap();
        }
        infra
            .apply(&cluster::infra_node("host-1", &[("rack.example.com/row", "r-1")]))
            .unwrap();
        infra.namespace("cluster-aaaa").unwrap();
        let vmi = cluster::vmi("cluster-aaaa", "vm-1")
            .phase("Running")
            .on("host-1")
            .label("kubermatic.k8c.io/cluster-id", "aaaa");
        infra.apply(&vmi).unwrap();
        let node = cluster::user_node("vm-1", "kubevirt://vm-1", &["10.0.0.1"], &[]);
        seed.apply(&node).unwrap();
        let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
        let inventory = live::settings(root, &infra.kubeconfig(&account), ", sourceInterval: 1s").unwrap();
        let more = format!(
            "leaderElection: {{ namespace: virtfleet }}\n{}",
            live::NO_CONFIRMATION
        );
        let collector = Collector::start_with(&root.join("collector"), &inventory, &more).unwrap();
        collector.until_ready().unwrap();
        let stage = Self {
            collector,
            infra,
            seed,
            _folder: folder,
        };
        let reader = stage.seed.service_account("virtfleet", "virtfleet-source");
        let kubeconfig = stage.seed.kubeconfig(&reader.unwrap());
        let at = secret("virtfleet-kubeconfigs", "seed", "kubeconfig", &kubeconfig);
        stage.infra.apply(&at).unwrap();
        stage
    }

    fn admin_kubeconfig(&self) -> String {
        self.seed.kubeconfig(self.seed.admin_user())
    }

    /// A Cluster of the seed with the kubeconfig of its admin.
    fn add(&self, id: &str, admin: &str) {
        self.seed.namespace(&format!("cluster-{id}")).unwrap();
        self.set_admin(id, admin);
        self.seed.apply(&kkp(id, "kubevirt")).unwrap();
    }

    fn set_admin(&self, id: &str, admin: &str) {
        let namespace = format!("cluster-{id}");
        let theirs = secret(&namespace, "admin-kubeconfig", "kubeconfig", admin);
        self.seed.apply(&theirs).unwrap();
    }

    fn set_credentials(&self, credentials: &str) {
        self.set_source(&json!({ "credentials": credentials }));
    }

    fn set_source(&self, spec: &Value) {
        let change = json!({ "spec": spec });
        let answer = self.infra.admin().patch(SOURCE, MERGE_PATCH, &change);
        answer.unwrap().ok().unwrap();
    }

    fn until(&self, what: &str, check: impl Fn() -> Result<()>) {
        let done = wait::eventually(WAIT_TIMEOUT, what, check);
        done.unwrap_or_else(|error| panic!("{error:#}\n{}", self.collector.process.log()));
    }

    fn until_ready(&self, cluster: &str) {
        let ready = self.collector.until_cluster(cluster, "state", &json!("Ready"));
        ready.unwrap_or_else(|error| panic!("{error:#}\n{}", self.collector.process.log()));
    }

    fn status(&self) -> Result<Value> {
        Ok(self.infra.admin().get(SOURCE)?.ok()?["status"].clone())
    }

    fn secret(&self, cluster: &str) -> Result<Value> {
        self.infra.admin().get(&secret_path(cluster))?.ok()
    }

    /// Server and token of the stored kubeconfig.
    fn stored(&self, cluster: &str) -> Result<(String, String)> {
        let secret = self.secret(cluster)?;
        let text = secret["data"]["kubeconfig"].as_str().context("no kubeconfig")?;
        let text = String::from_utf8(STANDARD.decode(text)?)?;
        let config = parse_yaml(&text).unwrap()[0].to_json();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok((
            word(&config["clusters"][0]["cluster"]["server"]),
            word(&config["users"][0]["user"]["token"]),
        ))
    }

    /// The collector's client of a user cluster.
    fn as_collector(&self, cluster: &str) -> Client {
        let user = User {
            name: "collector".into(),
            groups: Vec::new(),
            token: self.stored(cluster).unwrap().1,
        };
        self.seed.client(&user).unwrap()
    }

    fn markers(&self) -> Result<Vec<String>> {
        let list = self.seed.admin().get(MARKERS)?.ok()?;
        let items = list["items"].as_array().context("items")?;
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(items.iter().map(name).collect())
    }

    /// No object of the infra cluster and no line of the log has the token of the user cluster's
    /// admin.
    fn admin_is_stored_nowhere(&self) {
        let token = self.seed.admin_user().token.as_str();
        let virtfleet = "/apis/virtfleet.io/v1alpha1";
        for path in [
            "/api/v1/secrets",
            "/api/v1/configmaps",
            "/api/v1/events",
            &format!("{virtfleet}/userclusters"),
            &format!("{virtfleet}/clustersources"),
        ] {
            let list = self.infra.admin().get(path).unwrap().ok().unwrap();
            assert!(!list.to_string().contains(token), "{path}");
            for object in list["items"].as_array().unwrap() {
                for (key, data) in object["data"].as_object().into_iter().flatten() {
                    let bytes = STANDARD.decode(data.as_str().unwrap_or_default());
                    let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
                    assert!(
                        !text.contains(token),
                        "{path} {} {key}",
                        object["metadata"]["name"]
                    );
                }
            }
        }
        assert!(!self.collector.process.log().contains(token));
    }

    /// The shipped role reads viewer-kubeconfig. As its comment says, admin-kubeconfig replaces it.
    fn a_missing_right_is_named(&self) {
        self.add("aaaa", &self.admin_kubeconfig());
        let spec = json!({
            "kind": "KKP", "credentials": "Account",
            "kubeconfig": { "secret": { "namespace": "virtfleet-kubeconfigs", "name": "seed" } },
        });
        self.infra.apply(&source("seed", &spec)).unwrap();
        self.until("the missing right is named", || {
            let ready = self.status()?["conditions"][0].clone();
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(ready["reason"] == "CredentialsFailed", "{ready}");
            ensure!(
                message.contains("the verb get on Secret cluster-aaaa/admin-kubeconfig"),
                "{ready}"
            );
            Ok(())
        });
        for mut role in shipped("sources/kkp.yaml").unwrap() {
            if role["kind"] == "ClusterRole" {
                role["rules"][1]["resourceNames"] = json!(["admin-kubeconfig"]);
                self.seed.apply(&role).unwrap();
            }
        }
    }

    fn an_account_is_made(&self) {
        self.until_ready("aaaa");
        let ours = self.as_collector("aaaa");
        assert_eq!(ours.get("/api/v1/nodes").unwrap().code, 200);
        assert_eq!(ours.get("/api/v1/secrets").unwrap().code, 403);
        assert_eq!(ours.get("/api/v1/pods").unwrap().code, 403, "no policy needs it");
        if self.seed.minor().unwrap() >= 28 {
            let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
            let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
            let review = ours.post(path, &review).unwrap().ok().unwrap();
            assert_eq!(
                review["status"]["userInfo"]["username"],
                "system:serviceaccount:virtfleet:virtfleet-collector"
            );
        }
        let annotations = &self.secret("aaaa").unwrap()["metadata"]["annotations"];
        let markers = self.markers().unwrap();
        assert_eq!(annotations["virtfleet.io/credential"], markers[0].as_str());
        assert_eq!(markers.len(), 1, "{markers:?}");
        self.admin_is_stored_nowhere();
    }

    /// A policy of the infra cluster gives the account further rights; the admission policy limits
    /// them.
    fn labels_are_written_with_it(&self) {
        for policy in shipped("examples/labelpropagation.yaml").unwrap() {
            self.infra.apply(&policy).unwrap();
        }
        self.until("the Node has the label of its rack", || {
            let node = self.seed.admin().get(NODE)?.ok()?;
            ensure!(
                node["metadata"]["labels"]["rack.example.com/row"] == "r-1",
                "{node:#}"
            );
            Ok(())
        });
        let ours = self.as_collector("aaaa");
        self.until("the account may list pods", || {
            let code = ours.get("/api/v1/pods")?.code;
            ensure!(code == 200, "{code}");
            Ok(())
        });
        assert_eq!(self.markers().unwrap().len(), 1, "rights need no new token");
        if self.seed.minor().unwrap() >= 30 {
            let cordon = json!({ "spec": { "unschedulable": true } });
            self.until("the admission policy is enforced", || {
                let code = ours.patch(NODE, MERGE_PATCH, &cordon)?.code;
                let undo = json!({ "spec": { "unschedulable": null } });
                self.seed.admin().patch(NODE, MERGE_PATCH, &undo)?.ok()?;
                ensure!(code == 422, "{code}");
                Ok(())
            });
        }
    }

    /// After half of its time a token is replaced, and revoked when the new one is in use. The
    /// annotation stands for the time.
    fn a_token_is_renewed_and_the_old_one_revoked(&self) {
        let theirs = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "virtfleet.io/credential",
            "metadata": { "namespace": "virtfleet", "name": "of-another-collector", "labels": {
                "virtfleet.io/credential": "true",
            } },
        });
        self.seed.apply(&theirs).unwrap();
        let (old, before) = (self.as_collector("aaaa"), self.stored("aaaa").unwrap());
        let change = json!({ "metadata": { "annotations": {
            "virtfleet.io/credential-validity": "1000000000/2000000000",
        } } });
        let patch = |change: &Value| {
            let answer = self
                .infra
                .admin()
                .patch(&secret_path("aaaa"), MERGE_PATCH, change);
            answer.unwrap().ok().unwrap();
        };
        let mut kept = change.clone();
        let validity = &mut kept["metadata"]["annotations"]["virtfleet.io/credential-validity"];
        *validity = "1000000000/9000000000".into();
        patch(&kept);
        // More than half of the time is left: two cycles pass without a renewal.
        for _ in 0..2 {
            let cycles = || -> Result<usize> {
                let entries = self.seed.audit()?;
                Ok(entries
                    .iter()
                    .filter(|entry| entry.verb == "list" && entry.resource == "clusters")
                    .count())
            };
            let seen = cycles().unwrap();
            self.until("a cycle", || {
                ensure!(cycles()? > seen, "no new list");
                Ok(())
            });
        }
        assert_eq!(self.stored("aaaa").unwrap(), before);
        patch(&change);
        self.until("there is a new token", || {
            ensure!(self.stored("aaaa")? != before, "not yet");
            Ok(())
        });
        self.until("the old token is revoked", || {
            let annotations = self.secret("aaaa")?["metadata"]["annotations"].clone();
            let markers = self.markers()?;
            ensure!(
                annotations["virtfleet.io/credentials-to-revoke"].is_null(),
                "{annotations:#}"
            );
            let ours = annotations["virtfleet.io/credential"]
                .as_str()
                .context("marker")?;
            ensure!(markers == ["of-another-collector", ours], "{markers:?} {ours}");
            // An API server remembers tokens for ten seconds.
            let code = old.get("/api/v1/nodes")?.code;
            ensure!(code == 401, "{code}");
            Ok(())
        });
        assert_eq!(self.as_collector("aaaa").get("/api/v1/nodes").unwrap().code, 200);
        self.until_ready("aaaa");
    }

    /// A suspended source renews tokens, and makes no UserCluster.
    fn a_suspended_source_renews(&self) {
        self.set_source(&json!({ "suspend": true }));
        // A cycle that began before would still make its UserCluster.
        self.until("no other cycle runs", || {
            let status = self.status()?;
            ensure!(status["conditions"][0]["reason"] == "Suspended", "{status:#}");
            Ok(())
        });
        self.add("eeee", &self.admin_kubeconfig());
        self.until("the new cluster waits", || {
            let status = self.status()?;
            let skipped = status["skipped"].as_array().context("skipped")?;
            let waits = json!({ "cluster": "eeee", "reason": "SourceSuspended" });
            ensure!(skipped.contains(&waits), "{status:#}");
            Ok(())
        });
        let before = self.stored("aaaa").unwrap();
        let due = json!({ "metadata": { "annotations": {
            "virtfleet.io/credential-validity": "1000000000/2000000000",
        } } });
        let answer = self.infra.admin().patch(&secret_path("aaaa"), MERGE_PATCH, &due);
        answer.unwrap().ok().unwrap();
        self.until("there is a new token", || {
            ensure!(self.stored("aaaa")? != before, "not yet");
            Ok(())
        });
        let made = "/apis/virtfleet.io/v1alpha1/userclusters/eeee";
        assert_eq!(self.infra.admin().get(made).unwrap().code, 404);
        self.seed.remove(&kkp("eeee", "kubevirt")).unwrap();
        self.set_source(&json!({ "suspend": false }));
        self.until_ready("aaaa");
    }

    /// The platform says that the API server has another address and authority.
    fn a_moved_server_is_followed(&self, moved: &Proxy) {
        self.set_admin("aaaa", &moved.kubeconfig(self.seed.admin_user()));
        self.until("the stored kubeconfig names the new server", || {
            let (server, _) = self.stored("aaaa")?;
            ensure!(server != self.seed.url(), "{server}");
            Ok(())
        });
        self.until_ready("aaaa");
        self.admin_is_stored_nowhere();
    }

    /// Of the admins' kubeconfigs that the source has copied, none is left, and clusters that do
    /// not answer delay no other one. All of them are one API server here: with a Node on it,
    /// each would be refused, because they would have the same Nodes.
    fn silent_clusters_delay_no_other_one(&self, silent: &Proxy) {
        self.seed.admin().delete(NODE).unwrap().ok().unwrap();
        let silent_admin = silent.kubeconfig(self.seed.admin_user());
        self.add("b00", &silent_admin);
        self.set_credentials("Admin");
        self.until("both kubeconfigs are the admin's", || {
            for name in ["aaaa", "b00"] {
                let (_, token) = self.stored(name)?;
                ensure!(token == self.seed.admin_user().token, "{name}");
            }
            Ok(())
        });
        silent.set(&[("/", Fault::Hold)]);
        for n in 1..SILENT_CLUSTERS {
            self.add(&format!("b{n:02}"), &silent_admin);
        }
        self.add("cccc", &self.admin_kubeconfig());
        self.set_credentials("Account");
        self.until("no kubeconfig of an admin is left", || {
            let code = self.infra.admin().get(&secret_path("b00"))?.code;
            ensure!(code == 404, "{code}");
            for name in ["aaaa", "cccc"] {
                let (_, token) = self.stored(name)?;
                ensure!(token != self.seed.admin_user().token, "{name}");
            }
            Ok(())
        });
        self.admin_is_stored_nowhere();
        self.until_ready("cccc");
        self.until_ready("aaaa");
        self.until("the failure is shown", || {
            let status = self.status()?;
            ensure!(status["conditions"][0]["reason"] == "Synced", "{status:#}");
            let skipped = status["skipped"].as_array().context("skipped")?;
            let of = |name: &str| skipped.iter().find(|one| one["cluster"] == name);
            let failed = of("b00").context("b00 is not listed")?;
            let message = failed["message"].as_str().unwrap_or_default();
            ensure!(failed["reason"] == "AccountFailed", "{failed}");
            ensure!(
                message.starts_with("it has no account yet: cannot list Secrets"),
                "{message}"
            );
            ensure!(of("aaaa").is_none() && of("cccc").is_none(), "{status:#}");
            Ok(())
        });
        self.collector
            .until_finding("cluster-source-skipped", "AccountFailed")
            .unwrap();
        let failed = "virtfleet_collector_cluster_source_clusters{source=\"seed\",state=\"skipped\"}";
        self.until("the failure is counted", || {
            let count = self.collector.sample(failed)?;
            ensure!(count > 0.5, "{count}");
            Ok(())
        });
        silent.set(&[]);
        // After two failures the next attempt comes a minute later, after three two minutes.
        let what = "the account is made when the server answers";
        wait::eventually(WAIT_TIMEOUT * 4, what, || {
            let (_, token) = self.stored("b00")?;
            ensure!(token != self.seed.admin_user().token, "the admin's");
            Ok(())
        })
        .unwrap();
        self.until_ready("b00");
        self.admin_is_stored_nowhere();
    }
}

#[test]
fn a_source_makes_accounts_in_user_clusters_tier3() {
    let test = "a_source_makes_accounts_in_user_clusters_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let stage = AccountStage::new();
    stage.a_missing_right_is_named();
    stage.an_account_is_made();
    stage.labels_are_written_with_it();
    stage.a_token_is_renewed_and_the_old_one_revoked();
    stage.a_suspended_source_renews();
    let moved = Proxy::start(&stage.seed).unwrap();
    stage.a_moved_server_is_followed(&moved);
    let silent = Proxy::start(&stage.seed).unwrap();
    stage.silent_clusters_delay_no_other_one(&silent);
}
