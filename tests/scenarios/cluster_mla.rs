//! Tier 3: `spec.mla` of a UserCluster on a real API server: what the API server refuses, and that
//! Secrets are followed, while their data is shown nowhere.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        ApiServer,
        live::{self, Collector, WAIT_TIMEOUT},
    },
    install::shipped,
    parts,
    pki::Authority,
    skip, wait,
};

/// The first Kubernetes that enforces validation rules of definitions.
const RULES_SINCE: u32 = 25;
/// In every Secret of this test.
const HIDDEN: &str = "g3heim";

fn user_cluster(name: &str, mla: &Value) -> Value {
    json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "metadata": { "name": name },
        "spec": { "vmis": { "namespace": "tenant" }, "mla": mla },
    })
}

/// `spec.mla` with further keys of `remoteWrite` (`rw.`) and of the spec.
fn mla(more: &[(&str, Value)]) -> Value {
    let mut mla = json!({ "remoteWrite": { "url": "https://mla.example.com:30443/api/v1/push" } });
    for (key, value) in more {
        match key.strip_prefix("rw.") {
            Some(key) => mla["remoteWrite"][key] = value.clone(),
            None => mla[*key] = value.clone(),
        }
    }
    mla
}

fn the_api_server_refuses_what_cannot_work(infra: &ApiServer) {
    let header = |name: &str| json!([{ "name": name, "value": "x" }]);
    let bearer = json!({ "bearer": { "secret": { "namespace": "a", "name": "b" } } });
    let schema = [
        vec![("rw.url", json!("mla.example.com"))],
        vec![("rw.url", json!("https://user:password@mla.example.com/"))],
        vec![("rw.protocol", json!("V3"))],
        vec![("rw.timeout", json!("soon"))],
        vec![("rw.tls", json!({}))],
        vec![("rw.headers", json!([{ "name": "X-Scope-OrgID" }]))],
        vec![("rw.headers", header("X Scope"))],
        vec![(
            "rw.auth",
            json!({ "bearer": bearer["bearer"], "basic": bearer["bearer"] }),
        )],
        vec![("externalLabels", json!({ "a": "" }))],
        vec![("placementLabels", json!([{ "source": "Rack" }]))],
        vec![("limits", json!({ "queueBytes": 1 }))],
        vec![("limits", json!({ "seriesPerVm": 0 }))],
        vec![("interval", json!("soon"))],
        vec![("relabel", json!([{ "action": "forget" }]))],
    ];
    let rules = [
        (
            vec![("rw.url", json!("http://mla.example.com/"))],
            "insecure: true",
        ),
        (vec![("rw.headers", header("Host"))], "belongs to HTTP"),
        (vec![("rw.headers", header("content-length"))], "belongs to HTTP"),
        (
            vec![("rw.headers", header("X-Prometheus-Remote-Write-Version"))],
            "belongs to HTTP",
        ),
        (
            vec![
                ("rw.headers", header("AUTHORIZATION")),
                ("rw.auth", bearer.clone()),
            ],
            "must not have Authorization",
        ),
        (
            vec![("externalLabels", json!({ "__replica__": "a" }))],
            "Cortex and Mimir drop",
        ),
        (
            vec![("externalLabels", json!({ "cluster": "a" }))],
            "are reserved",
        ),
        (
            vec![(
                "placementLabels",
                json!([{ "source": "NodeLabel", "name": "rack" }]),
            )],
            "needs key and name",
        ),
        (
            vec![("placementLabels", json!([{ "source": "Zone", "name": "job" }]))],
            "are reserved",
        ),
    ];
    let refused = |more: &[(&str, Value)]| {
        let collection = "/apis/virtfleet.io/v1alpha1/userclusters";
        let object = user_cluster("refused", &mla(more));
        let answer = infra.admin().post(collection, &object).unwrap();
        assert_eq!(answer.code, 422, "{more:?}: {}", answer.body);
        answer.body["message"].as_str().unwrap_or_default().to_owned()
    };
    for more in schema {
        let message = refused(&more);
        assert!(message.contains("spec.mla"), "{message}");
    }
    for (more, expected) in rules {
        if infra.minor().unwrap() >= RULES_SINCE {
            let message = refused(&more);
            assert!(message.contains(expected), "{message}");
        }
    }
    for (at, more) in [
        vec![],
        vec![("rw.url", json!("http://127.0.0.1:9090/api/v1/write"))],
        vec![("rw.url", json!("http://[::1]/"))],
        vec![("rw.url", json!("http://mla.example.com/")), ("rw.insecure", json!(true))],
        vec![("rw.headers", header("Authorization"))],
        vec![(
            "relabel",
            json!([{ "sourceLabels": ["__name__"], "regex": "go_.*", "action": "drop" }, { "action": "labeldrop", "regex": "x" }]),
        )],
    ]
    .iter()
    .enumerate()
    {
        infra.apply(&user_cluster(&format!("valid-{at}"), &mla(more))).unwrap();
    }
}

fn secret(name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "virtfleet-mla", "name": name },
        "stringData": data,
    })
}

/// Waits until a user cluster's condition has this status, and returns its message.
fn until_configured(infra: &ApiServer, name: &str, status: &str, reason: &str) -> String {
    let path = format!("/apis/virtfleet.io/v1alpha1/userclusters/{name}");
    let what = format!("{name}: MlaConfigured {status} {reason}");
    wait::eventually(WAIT_TIMEOUT, &what, || {
        let now = infra.admin().get(&path)?.ok()?;
        let conditions = now["status"]["conditions"].as_array().context("conditions")?;
        let found = conditions.iter().find(|one| one["type"] == "MlaConfigured");
        let found = found.with_context(|| now["status"].to_string())?;
        ensure!(found["status"] == status && found["reason"] == reason, "{found}");
        Ok(found["message"].as_str().unwrap_or_default().to_owned())
    })
    .unwrap()
}

/// Changes the settings file of the running collector.
fn mla_is_turned_off_and_on(infra: &ApiServer, file: &Path, cluster: &str) {
    let text = fs::read_to_string(file).unwrap();
    let section = text.lines().find(|line| line.starts_with("mla:")).unwrap();
    fs::write(file, text.replace(section, "")).unwrap();
    until_configured(infra, cluster, "False", "Disabled");
    fs::write(file, &text).unwrap();
    until_configured(infra, cluster, "True", "Configured");
}

#[test]
fn streams_follow_user_clusters_and_secrets_tier3() {
    let test = "streams_follow_user_clusters_and_secrets_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let infra = live::infra(root).unwrap();
    the_api_server_refuses_what_cannot_work(&infra);
    for path in ["infra/namespace.yaml", "infra/rbac.yaml"] {
        for object in shipped(path).unwrap() {
            infra.apply(&object).unwrap();
        }
    }
    // With queues on PersistentVolumes, the collector is a StatefulSet that the API server accepts.
    let set = infra
        .apply(&crate::packaging_queue_volume::stateful_set())
        .unwrap();
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(claim["metadata"]["name"], "mla", "{set:#}");
    infra.namespace("elsewhere").unwrap();
    let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
    let authority = Authority::new("receivers").unwrap();
    let gateway = || {
        let identity = authority.collector().unwrap();
        json!({
            "client.crt": identity.certificate_pem(), "client.key": identity.key_pem(), "ca.crt": authority.pem(),
        })
    };
    let examples = shipped("examples/usercluster-mla.yaml").unwrap();
    for example in &examples {
        infra.apply(example).unwrap();
    }
    let elsewhere = json!({ "basic": { "secret": { "namespace": "elsewhere", "name": "x" } } });
    infra
        .apply(&user_cluster("denied", &mla(&[("rw.auth", elsewhere)])))
        .unwrap();

    let inventory = live::settings(root, &infra.kubeconfig(&account), "").unwrap();
    let queues = root.join("queues");
    let more = format!(
        "leaderElection: {{ namespace: virtfleet }}\nmla: {{ queue: {{ folder: {} }} }}\n",
        queues.display()
    );
    let collector = Collector::start_with(&root.join("collector"), &inventory, &more).unwrap();
    collector.until_ready().unwrap();
    let kkp = "abcdefghij";
    let message = until_configured(&infra, kkp, "False", "SecretMissing");
    assert_eq!(
        message,
        "Secret virtfleet-mla/gateway-abcdefghij does not exist; until then samples are queued"
    );
    let denied = until_configured(&infra, "denied", "False", "SecretUnreadable");
    assert!(denied.contains("with a Role"), "{denied}");

    // Every example works with its Secrets.
    infra.apply(&secret("gateway-abcdefghij", &gateway())).unwrap();
    let credentials = json!({
        "ca.crt": authority.pem(), "token": HIDDEN, "username": HIDDEN, "password": HIDDEN,
    });
    for name in ["mimir", "victoriametrics"] {
        infra.apply(&secret(name, &credentials)).unwrap();
    }
    for example in &examples {
        let name = example["metadata"]["name"].as_str().unwrap();
        let message = until_configured(&infra, name, "True", "Configured");
        assert!(message.starts_with("samples are sent to "), "{message}");
    }

    // A broken certificate changes nothing, and the next valid one is used.
    let mut broken = gateway();
    broken["client.key"] = HIDDEN.into();
    infra.apply(&secret("gateway-abcdefghij", &broken)).unwrap();
    let message = until_configured(&infra, kkp, "False", "InvalidCredentials");
    assert!(message.ends_with("the last valid settings are used"), "{message}");
    let finding = collector.until_finding("mla-not-configured", kkp).unwrap();
    assert!(finding.contains("client.key has no private key"), "{finding}");
    infra.apply(&secret("gateway-abcdefghij", &gateway())).unwrap();
    until_configured(&infra, kkp, "True", "Configured");

    // No answer and no log has the data of a Secret.
    let mut shown = String::new();
    for path in ["/api/v1/findings", "/api/v1/clusters", "/metrics"] {
        shown += &collector.text(path).unwrap();
    }
    shown += &collector.process.log();
    assert!(shown.contains("client.key has no private key"));
    assert!(!shown.contains(HIDDEN) && !shown.contains("BEGIN"), "{shown}");

    mla_is_turned_off_and_on(&infra, &root.join("collector/collector.yaml"), kkp);

    // Without spec.mla there is no condition.
    let without = json!({ "spec": { "mla": null } });
    infra.merge(&examples[0], &without).unwrap();
    wait::eventually(WAIT_TIMEOUT, "the condition is removed", || {
        let now = infra.fetch(&examples[0])?.context("the UserCluster")?;
        let conditions = now["status"]["conditions"].to_string();
        ensure!(!conditions.contains("MlaConfigured"), "{conditions}");
        Ok(())
    })
    .unwrap();
}
