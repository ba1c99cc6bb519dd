//! Tier 3: what a tenant may put in the place of its kubeconfig, which a ClusterSource then finds.
//! With Cluster API, whoever may write to the namespace of a cluster may write its kubeconfig, too.
//! On real API servers, with the shipped rights, for copied kubeconfigs and for accounts.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{
    fs,
    io::ErrorKind,
    net::TcpListener,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_tests::{
    cluster::{
        ApiServer,
        live::{self, Collector, WAIT_TIMEOUT},
        platforms::{definition, secret, source},
    },
    install::shipped,
    parts, skip, wait,
};
use virtfleet_wire::layered::parse_yaml;

/// The kubeconfig that an attack makes of a good one.
type Attack = fn(&AttackStage, Value) -> String;

/// Name, what the refusal says, and the attack.
const ATTACKS: [(&str, &str, Attack); 14] = [
    ("exec", "it runs a program", |stage, config| {
        let api = "client.authentication.k8s.io/v1";
        with_user(
            config,
            &json!({ "exec": { "apiVersion": api, "command": "touch", "args": [stage.canary] } }),
        )
    }),
    ("auth-provider", "it runs a program", |stage, config| {
        let settings = json!({ "cmd-path": "touch", "cmd-args": stage.canary });
        with_user(
            config,
            &json!({ "auth-provider": { "name": "gcp", "config": settings } }),
        )
    }),
    ("token-file", "tokenFile names a file", |stage, config| {
        with_user(config, &json!({ "tokenFile": stage.file }))
    }),
    (
        "client-files",
        "client-certificate names a file",
        |stage, config| {
            with_user(
                config,
                &json!({ "client-certificate": stage.file, "client-key": stage.file }),
            )
        },
    ),
    (
        "authority-file",
        "certificate-authority names a file",
        |stage, config| with_cluster(config, &json!({ "certificate-authority": stage.file })),
    ),
    ("unverified", "insecure-skip-tls-verify is set", |_, config| {
        with_cluster(config, &json!({ "insecure-skip-tls-verify": true }))
    }),
    ("proxy", "proxy-url is not supported", |stage, config| {
        with_cluster(config, &json!({ "proxy-url": stage.forbidden("http") }))
    }),
    ("plain", "does not begin with https://", |stage, config| {
        with_cluster(config, &json!({ "server": stage.forbidden("http") }))
    }),
    ("path", "has a path or a query", |stage, config| {
        let server = format!("{}/latest/meta-data", stage.forbidden("https"));
        with_cluster(config, &json!({ "server": server }))
    }),
    ("metadata", "link-local", |_, config| {
        with_cluster(config, &json!({ "server": "https://169.254.169.254" }))
    }),
    ("infra", "the infra cluster's own API server", |stage, config| {
        with_cluster(config, &json!({ "server": stage.infra.url() }))
    }),
    ("another-context", "it runs a program", |stage, mut config| {
        let exec = json!({ "command": "touch", "args": [stage.canary] });
        let users = config["users"].as_array_mut().unwrap();
        users.push(json!({ "name": "another", "user": { "exec": exec } }));
        config.to_string()
    }),
    ("aliases", "it has YAML aliases", |stage, _| {
        let text = stage.user.kubeconfig(stage.user.admin_user());
        format!("x: &x [x, x, x]\ny: &y [*x, *x, *x]\nz: [*y, *y, *y]\n{text}")
    }),
    ("huge", "has more than 262144 bytes", |_, mut config| {
        config["x"] = "x".repeat(300 << 10).into();
        config.to_string()
    }),
];

/// An infra cluster that is also the management cluster, and a user cluster.
struct AttackStage {
    collector: Collector,
    infra: ApiServer,
    user: ApiServer,
    /// A file that exists if a program was run.
    canary: PathBuf,
    /// A file of the collector's machine.
    file: PathBuf,
    /// Gets no connection.
    forbidden: TcpListener,
    _folder: TempDir,
}

fn with_user(mut config: Value, user: &Value) -> String {
    config["users"][0]["user"] = user.clone();
    config.to_string()
}

/// A server with files or without verification has no authority.
fn with_cluster(mut config: Value, fields: &Value) -> String {
    let cluster = &mut config["clusters"][0]["cluster"];
    for (key, value) in fields.as_object().unwrap() {
        cluster[key] = value.clone();
        if matches!(key.as_str(), "certificate-authority" | "insecure-skip-tls-verify") {
            cluster
                .as_object_mut()
                .unwrap()
                .remove("certificate-authority-data");
        }
    }
    config.to_string()
}

fn start(root: &Path, infra: &ApiServer) -> Collector {
    for file in ["infra/namespace", "infra/rbac", "sources/infra"] {
        for object in shipped(&format!("{file}.yaml")).unwrap() {
            infra.apply(&object).unwrap();
        }
    }
    let capi = definition("cluster.x-k8s.io", "Namespaced", &["v1beta2", "v1beta1"]);
    infra.install(&[capi]).unwrap();
    let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
    let rules = json!([
        { "apiGroups": ["cluster.x-k8s.io"], "resources": ["clusters"], "verbs": ["get", "list"] },
        { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] },
    ]);
    for namespace in ["copies", "accounts"] {
        infra.namespace(namespace).unwrap();
        infra.grant(namespace, &account, Some(namespace), &rules).unwrap();
    }
    let inventory = live::settings(root, &infra.kubeconfig(&account), ", sourceInterval: 1s").unwrap();
    let election = "leaderElection: { namespace: virtfleet }\n";
    let collector = Collector::start_with(&root.join("collector"), &inventory, election).unwrap();
    collector.until_ready().unwrap();
    collector
}

impl AttackStage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let (infra, user) = (live::infra(root).unwrap(), ApiServer::start(root).unwrap());
        let file = root.join("secret");
        fs::write(&file, "hunter2").unwrap();
        let forbidden = TcpListener::bind("127.0.0.1:0").unwrap();
        forbidden.set_nonblocking(true).unwrap();
        Self {
            collector: start(root, &infra),
            infra,
            user,
            canary: root.join("canary"),
            file,
            forbidden,
            _folder: folder,
        }
    }

    /// A URL of the listener.
    fn forbidden(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.forbidden.local_addr().unwrap())
    }

    /// The kubeconfig of the user cluster's admin.
    fn good(&self) -> Value {
        let text = self.user.kubeconfig(self.user.admin_user());
        parse_yaml(&text).unwrap()[0].to_json()
    }

    /// A Cluster of a source with its kubeconfig.
    fn add(&self, source: &str, name: &str, kubeconfig: &str) {
        let name = format!("{source}-{name}");
        let theirs = secret(source, &format!("{name}-kubeconfig"), "value", kubeconfig);
        self.infra.apply(&theirs).unwrap();
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "namespace": source, "name": name },
            "spec": { "infrastructureRef": { "kind": "KubevirtCluster", "name": name } },
        });
        self.infra.apply(&cluster).unwrap();
    }

    fn until(&self, what: &str, check: impl Fn() -> Result<()>) {
        let done = wait::eventually(WAIT_TIMEOUT, what, check);
        done.unwrap_or_else(|error| panic!("{error:#}\n{}", self.collector.process.log()));
    }

    fn until_ready(&self, cluster: &str) {
        let ready = self.collector.until_cluster(cluster, "state", &json!("Ready"));
        ready.unwrap_or_else(|error| panic!("{error:#}\n{}", self.collector.process.log()));
    }

    fn status(&self, source: &str) -> Result<Value> {
        let path = format!("/apis/virtfleet.io/v1alpha1/clustersources/{source}");
        Ok(self.infra.admin().get(&path)?.ok()?["status"].clone())
    }

    /// A copied kubeconfig is refused by its UserCluster, and one that is too large by the source.
    fn a_copy_is_refused(&self, name: &str, word: &str) {
        self.until(&format!("the copy of {name} is refused"), || {
            if name == "huge" {
                let ready = self.status("copies")?["conditions"][0].clone();
                let message = ready["message"].as_str().context("no message")?;
                ensure!(
                    message.contains("copies-huge") && message.contains(word),
                    "{ready:#}"
                );
                return Ok(());
            }
            let cluster = self.collector.cluster(&format!("copies-{name}"))?;
            let message = cluster["message"].as_str().context("no message")?;
            ensure!(
                cluster["state"] == "Unreachable" && message.contains(word),
                "{cluster:#}"
            );
            Ok(())
        });
    }

    /// No account is made with it.
    fn no_account_is_made(&self, name: &str, word: &str) {
        self.until(&format!("no account is made for {name}"), || {
            let status = self.status("accounts")?;
            let skipped = status["skipped"].as_array().context("none is skipped")?;
            let key = format!("accounts/accounts-{name}");
            let found = skipped.iter().find(|one| one["cluster"] == key.as_str());
            let found = found.with_context(|| format!("no {key} in {status:#}"))?;
            let message = found["message"].as_str().context("no message")?;
            ensure!(
                found["reason"] == "AccountFailed" && message.contains(word),
                "{found:#}"
            );
            Ok(())
        });
    }

    /// Neither the collector's API nor the objects show a secret.
    fn nothing_is_shown(&self) {
        let token = self.user.admin_user().token.as_str();
        let mut texts = vec![self.collector.process.log()];
        for path in ["/api/v1/clusters", "/api/v1/findings"] {
            texts.push(self.collector.json(path).unwrap().to_string());
        }
        for kind in ["userclusters", "clustersources"] {
            let path = format!("/apis/virtfleet.io/v1alpha1/{kind}");
            texts.push(self.infra.admin().get(&path).unwrap().ok().unwrap().to_string());
        }
        for text in texts {
            assert!(!text.contains(token) && !text.contains("hunter2"), "{text}");
        }
    }
}

#[test]
fn kubeconfigs_of_attackers_reach_nothing_tier3() {
    let test = "kubeconfigs_of_attackers_reach_nothing_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let stage = AttackStage::new();
    for (name, _, attack) in ATTACKS {
        let kubeconfig = attack(&stage, stage.good());
        for source in ["copies", "accounts"] {
            stage.add(source, name, &kubeconfig);
        }
    }
    for source in ["copies", "accounts"] {
        stage.add(source, "good", &stage.good().to_string());
    }
    // Many contexts do no harm.
    let mut many = stage.good();
    for number in 0..1000 {
        let name = format!("other-{number}");
        let context = json!({ "name": name, "context": { "cluster": name, "user": name } });
        many["contexts"].as_array_mut().unwrap().push(context);
    }
    stage.add("copies", "many", &many.to_string());
    for (name, credentials) in [("copies", "Admin"), ("accounts", "Account")] {
        let spec = json!({ "kind": "ClusterAPI", "credentials": credentials, "namespace": name });
        stage.infra.apply(&source(name, &spec)).unwrap();
    }

    for cluster in ["copies-good", "copies-many", "accounts-good"] {
        stage.until_ready(cluster);
    }
    for (name, word, _) in ATTACKS {
        stage.a_copy_is_refused(name, word);
        stage.no_account_is_made(name, word);
    }
    assert!(!stage.canary.exists(), "a program was run");
    let knocked = stage.forbidden.accept().map(|(_, from)| from);
    assert_eq!(knocked.unwrap_err().kind(), ErrorKind::WouldBlock);
    stage.nothing_is_shown();
    // What attackers do costs the others nothing.
    for cluster in ["copies-good", "copies-many", "accounts-good"] {
        assert_eq!(stage.collector.cluster(cluster).unwrap()["state"], "Ready");
    }
    // A corrected kubeconfig is used.
    stage.add("copies", "exec", &stage.good().to_string());
    stage.until_ready("copies-exec");
}
