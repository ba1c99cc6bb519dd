//! Tier 3: the rights that `packaging/collector/kubernetes` gives are enough on both sides, and no request is refused with them.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{self, ApiServer, live},
    parts, skip, wait,
};
use virtfleet_wire::layered::parse_yaml;

const ZONE: &str = "topology.kubernetes.io/zone";

/// The objects of a shipped manifest.
fn shipped(path: &str) -> Vec<Value> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/collector/kubernetes");
    let text = fs::read_to_string(top.join(path)).unwrap();
    let documents = parse_yaml(&text).unwrap();
    documents
        .iter()
        .map(virtfleet_wire::layered::Node::to_json)
        .collect()
}

fn apply(server: &ApiServer, path: &str) {
    for object in shipped(path) {
        server.apply(&object).unwrap();
    }
}

fn refused(server: &ApiServer) -> Vec<String> {
    let entries = server.audit().unwrap().into_iter();
    let ours: Vec<_> = entries
        .filter(|entry| entry.user.starts_with("system:serviceaccount:"))
        .collect();
    assert!(
        ours.len() > 3,
        "the collector has asked as itself: {}",
        ours.len()
    );
    let refused = ours
        .into_iter()
        .filter(|entry| entry.code == 403 || entry.code == 401);
    refused
        .map(|entry| format!("{} {} {}", entry.verb, entry.resource, entry.subresource))
        .collect()
}

#[test]
fn shipped_rights_are_enough_tier3() {
    let test = "shipped_rights_are_enough_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (infra, tenant) = (live::infra(root).unwrap(), ApiServer::start(root).unwrap());
    for name in ["virtfleet", "tenant"] {
        infra.namespace(name).unwrap();
    }
    apply(&infra, "infra/rbac.yaml");
    apply(&tenant, "user-cluster/rbac.yaml");
    let ours = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
    let theirs = tenant
        .service_account("kube-system", "virtfleet-collector")
        .unwrap();

    for (name, zone) in [("host-1", "zone-a"), ("host-2", "zone-b")] {
        infra.apply(&cluster::infra_node(name, &[(ZONE, zone)])).unwrap();
    }
    let at = |host: &str| cluster::vmi("tenant", "vm-1").phase("Running").on(host);
    infra.apply(&at("host-1")).unwrap();
    let node = cluster::user_node("vm-1", "kubevirt://vm-1", &["10.0.0.1", "fd00::1"], &[]);
    tenant.apply(&node).unwrap();
    let mut blue = live::user_cluster("blue", "tenant");
    blue["spec"]["kubeconfig"]["secret"]["namespace"] = "virtfleet".into();
    infra.apply(&blue).unwrap();
    let mut secret = live::secret("blue", &tenant.kubeconfig(&theirs));
    secret["metadata"]["namespace"] = "virtfleet".into();
    infra.apply(&secret).unwrap();
    for policy in shipped("examples/labelpropagation.yaml") {
        infra.apply(&policy).unwrap();
    }

    let inventory = live::settings(root, &infra.kubeconfig(&ours), "").unwrap();
    let election = "leaderElection: { namespace: virtfleet }\n";
    let collector = live::Collector::start_with(&root.join("collector"), &inventory, election).unwrap();
    collector.until_ready().unwrap();
    let until_zone = |zone: &str| {
        wait::eventually(live::PATIENCE, zone, || {
            let now = tenant.fetch(&node)?.unwrap_or_default();
            let labels = &now["metadata"]["labels"];
            ensure!(labels[ZONE] == zone, "{labels}");
            Ok(())
        })
        .unwrap();
    };
    until_zone("zone-a");
    // A pod with a volume makes it look at everything that it may look at.
    tenant.namespace("shop").unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "shop", "name": "web" },
        "spec": { "nodeName": "vm-1", "automountServiceAccountToken": false,
                  "containers": [{ "name": "web", "image": "web" }],
                  "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] },
    });
    tenant.apply(&pod).unwrap();
    infra.apply(&at("host-2")).unwrap();
    until_zone("zone-b");

    let kept = |path: &str, ready: &dyn Fn(&Value) -> bool| -> Result<()> {
        wait::eventually(live::PATIENCE, path, || {
            let now = infra.admin().get(path)?.ok()?;
            ensure!(ready(&now), "{now:#}");
            Ok(())
        })
    };
    let ours = "/apis/virtfleet.io/v1alpha1";
    kept(&format!("{ours}/namespaces/tenant/guesthealths/vm-1"), &|now| {
        let conditions = now["status"]["conditions"].to_string();
        conditions.contains("LabelsTrue") && now["status"]["placement"]["infraNode"] == "host-2"
    })
    .unwrap();
    kept(&format!("{ours}/userclusters/blue"), &|now| {
        now["status"]["phase"] == "Ready"
    })
    .unwrap();
    kept(&format!("{ours}/labelpropagations/placement"), &|now| {
        let conditions = now["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == "Accepted" && one["status"] == "True")
        })
    })
    .unwrap();
    kept("/apis/events.k8s.io/v1/events", &|now| {
        now.to_string().contains("LabelsMoved")
    })
    .unwrap();
    assert_eq!(refused(&infra), Vec::<String>::new());
    assert_eq!(refused(&tenant), Vec::<String>::new());

    // And no more than that: what they are not for is refused.
    let with = tenant.client(&theirs).unwrap();
    for path in ["/api/v1/secrets", "/api/v1/configmaps", "/api/v1/namespaces"] {
        assert_eq!(with.get(path).unwrap().code, 403, "{path}");
    }
    assert_eq!(with.delete("/api/v1/nodes/vm-1").unwrap().code, 403);
}
