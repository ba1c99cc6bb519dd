//! User clusters as the API, `virtfleetctl clusters` and metrics show them.

use std::net::TcpListener;

use anyhow::ensure;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        self, ApiServer,
        live::{Collector, WAIT_TIMEOUT},
    },
    wait,
};

use super::until_page;

/// A server that takes connections and never says a word.
pub(super) fn black_hole() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    (listener, url)
}

pub(super) fn node_of(tenant: &ApiServer, name: &str) {
    let node = cluster::user_node(name, &format!("kubevirt://{name}"), &[], &[]);
    tenant.apply(&node).unwrap();
}

pub(super) fn until_nodes(collector: &Collector, cluster: &str, nodes: usize) {
    collector.until_cluster(cluster, "nodes", &json!(nodes)).unwrap();
}

pub(super) fn until_state(collector: &Collector, cluster: &str, state: &str) -> Value {
    collector.until_cluster(cluster, "state", &json!(state)).unwrap()
}

/// A VM has the label of the cluster `prod`, and the UserCluster `prod` does not exist.
pub(super) fn is_pending_by_its_label(collector: &Collector) {
    wait::eventually(WAIT_TIMEOUT, "prod is pending", || {
        let prod = collector.cluster("prod")?;
        let seen = json!([prod["known"], prod["state"], prod["namespace"], prod["vms"]]);
        ensure!(seen == json!([false, "Pending", "vms", 1]), "{prod:#}");
        Ok(())
    })
    .unwrap();
    let table = collector.ctl(&["clusters"]).unwrap();
    let row = table.lines().find(|line| line.starts_with("prod ")).unwrap();
    let words: Vec<_> = row.split_whitespace().collect();
    assert_eq!(words[..4], ["prod", "vms", "Pending", "1"], "{table}");
    let found = collector.until_finding("tenant-pending", "vms/vm-1").unwrap();
    assert!(found.contains("create a UserCluster named prod with"), "{found}");
    // A label assigns nothing.
    collector.until_vm("vms/vm-1", "cluster", &Value::Null).unwrap();
    let unassigned = "virtfleet_vm_placement_info{cluster=\"\",namespace=\"vms\",name=\"vm-1\"";
    until_page(
        unassigned,
        || collector.fleet_metrics(),
        |page| page.contains(unassigned) && !page.contains("cluster=\"prod\""),
    );
}

pub(super) fn one_is_ready_and_one_is_dead(collector: &Collector) {
    wait::eventually(WAIT_TIMEOUT, "prod is ready, and dead is not", || {
        let prod = collector.cluster("prod")?;
        let seen = json!([prod["state"], prod["vms"], prod["message"]]);
        ensure!(seen == json!(["Ready", 1, null]), "{prod:#}");
        let table = collector.ctl(&["clusters", "-o", "wide"])?;
        for (name, state) in [("prod ", " Ready "), ("dead ", " Unreachable ")] {
            let mut rows = table.lines().filter(|line| line.starts_with(name));
            ensure!(rows.any(|row| row.contains(state)), "{table}");
        }
        Ok(())
    })
    .unwrap();
}
