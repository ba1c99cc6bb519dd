//! Tier 3: the collector on the oldest Kubernetes that is tested, which refuses streaming lists and
//! has no admission policies.

use anyhow::ensure;
use serde_json::json;
use virtfleet_tests::{
    cluster::{
        self, ApiServer,
        live::{self, Collector, WAIT_TIMEOUT},
        scene::policy,
        streamed_list,
    },
    parts, skip, wait,
};

#[test]
fn labels_follow_on_kubernetes_1_20_tier3() {
    let test = "labels_follow_on_kubernetes_1_20_tier3";
    if skip::deferred(3, test, "make oldest-kubernetes") {
        return;
    }
    let Some(assets) = skip::need(3, test, parts::oldest_kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    // One server is both: the infra cluster and a user cluster of its own.
    let server = ApiServer::start_from(&assets, root, &[]).unwrap();
    live::install(&server).unwrap();
    let refused = streamed_list(server.admin(), "/api/v1/nodes").unwrap_err();
    assert!(refused.to_string().contains("422"), "{refused:#}");
    for name in ["prod", "secrets"] {
        server.namespace(name).unwrap();
    }
    let kubeconfig = server.kubeconfig(server.admin_user());
    server.apply(&live::secret("prod", &kubeconfig)).unwrap();
    server.apply(&live::user_cluster("prod", "prod")).unwrap();
    for (host, rack) in [("host-1", "rack-1"), ("host-2", "rack-2")] {
        server
            .apply(&cluster::infra_node(host, &[("rack", rack)]))
            .unwrap();
    }
    let rules = json!([{ "key": "rack", "target": "rack-of-infra", "mode": "Follow" }]);
    server.apply(&policy("places", &rules)).unwrap();
    let node = cluster::user_node("vm-1", "kubevirt://vm-1", &["10.0.0.1", "fd00::1"], &[]);
    server.apply(&node).unwrap();

    let inventory = live::settings(root, &kubeconfig, "").unwrap();
    let election = "leaderElection: { namespace: secrets }\n";
    let collector = Collector::start_with(&root.join("collector"), &inventory, election).unwrap();
    collector.until_ready().unwrap();
    for (host, rack) in [("host-1", "rack-1"), ("host-2", "rack-2")] {
        let vmi = cluster::vmi("prod", "vm-1").phase("Running").on(host);
        server.apply(&vmi).unwrap();
        wait::eventually(WAIT_TIMEOUT, rack, || {
            let now = server.fetch(&node)?.unwrap_or_default();
            let labels = &now["metadata"]["labels"];
            ensure!(labels["rack-of-infra"] == rack, "{labels}");
            Ok(())
        })
        .unwrap();
    }
}
