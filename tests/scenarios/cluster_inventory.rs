//! Tier 3: the inventory from live clusters, against real API servers: what is created, moved and
//! deleted is seen, whatever happens to the servers in between; what cannot be seen is named and
//! removes nothing.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod clusters;
mod flood;

use std::{fs, path::Path, time::Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        self, ApiServer, User,
        live::{Collector, WAIT_TIMEOUT, infra, secret, settings, user_cluster},
        scene,
    },
    parts, skip, wait,
};

use self::clusters::{
    black_hole, is_pending_by_its_label, node_of, one_is_ready_and_one_is_dead, until_nodes, until_state,
};

fn running(name: &str, host: &str) -> cluster::Object {
    let number = name.rsplit('-').next().unwrap_or_default();
    cluster::vmi("vms", name)
        .label("md", "pool-a")
        .phase("Running")
        .on(host)
        .interface("default", "02:00:00:00:00:01", &[&format!("10.0.0.{number}")])
}

fn hosts(infra: &ApiServer) {
    for (name, zone) in [("host-1", "zone-a"), ("host-2", "zone-b")] {
        let labels = [
            ("topology.kubernetes.io/zone", zone),
            ("topology.kubernetes.io/region", "eu"),
        ];
        let node = cluster::infra_node(name, &labels).condition("Ready", "True", "KubeletReady");
        infra.apply(&node).unwrap();
    }
}

/// The objects of these paths, as one manifest.
fn manifest(server: &ApiServer, paths: &[&str]) -> String {
    let mut items = Vec::new();
    for path in paths {
        let list = server.admin().get(path).unwrap().ok().unwrap();
        let kind = list["kind"].as_str().unwrap().trim_end_matches("List").to_owned();
        for item in list["items"].as_array().unwrap() {
            let mut item = item.clone();
            item["kind"] = kind.clone().into();
            item["apiVersion"] = list["apiVersion"].clone();
            items.push(item);
        }
    }
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

/// What is said of all VMs, without what only a clock says.
fn said(collector: &Collector) -> Value {
    let mut all = json!({});
    for path in ["vms", "hosts", "clusters"] {
        let mut list = collector.json(&format!("/api/v1/{path}")).unwrap();
        for item in list["items"].as_array_mut().unwrap() {
            for about_agents in ["agent", "agentsUp", "agentsSilent"] {
                item.as_object_mut().unwrap().remove(about_agents);
            }
            if let Some(health) = item.get_mut("health") {
                // They were started one after the other.
                health["sinceMs"].take();
            }
        }
        all[path] = list["items"].take();
    }
    all
}

/// Waits until a page of metrics holds what `what` says.
fn until_page(what: &str, read: impl Fn() -> Result<String>, holds: impl Fn(&str) -> bool) {
    wait::eventually(WAIT_TIMEOUT, what, || {
        let page = read()?;
        ensure!(holds(&page), "{page}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn folder_and_live_cluster_say_the_same_tier3() {
    let test = "folder_and_live_cluster_say_the_same_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (infra, tenant) = (infra(root).unwrap(), ApiServer::start(root).unwrap());
    for name in ["vms", "secrets"] {
        infra.namespace(name).unwrap();
    }
    hosts(&infra);
    let migration = json!({
        "sourceNode": "host-1", "targetNode": "host-2", "completed": true,
        "startTimestamp": "2026-01-01T00:00:00Z", "endTimestamp": "2026-01-01T00:00:09Z",
    });
    let vmi = infra.apply(&running("vm-1", "host-1")).unwrap();
    // In the VMI the guest agent says 10.0.0.1; its pod has another address. The one that ended had
    // a third.
    infra.apply(&cluster::launcher(&vmi, &["127.0.0.77"])).unwrap();
    let ended = cluster::launcher(&vmi, &["127.0.0.78"]).phase("Succeeded");
    infra
        .apply(&ended.with("/metadata/name", "virt-launcher-vm-1-ended"))
        .unwrap();
    infra
        .apply(&running("vm-2", "host-2").migration_state(migration.clone()))
        .unwrap();
    infra.apply(&cluster::vm("vms", "vm-3")).unwrap();
    let moved = cluster::vmim("vms", "move-1", "vm-2").with("/status/migrationState", migration);
    infra.apply(&moved).unwrap();
    infra.apply(&user_cluster("prod", "vms")).unwrap();
    infra
        .apply(&secret("prod", &tenant.kubeconfig(tenant.admin_user())))
        .unwrap();
    for name in ["vm-1", "vm-2"] {
        let node = cluster::user_node(name, &format!("kubevirt://{name}"), &["10.0.0.1"], &[("a", "b")])
            .condition("Ready", "True", "KubeletReady");
        tenant.apply(&node).unwrap();
    }

    let inventory = settings(root, &infra.kubeconfig(infra.admin_user()), "").unwrap();
    let live = Collector::start(&root.join("live"), &inventory).unwrap();
    live.until_ready().unwrap();
    live.until_vm("vms/vm-2", "userNode", &json!("vm-2")).unwrap();
    live.until_vm("vms/vm-1", "userNode", &json!("vm-1")).unwrap();

    let manifests = root.join("manifests");
    let write = |name: &str, text: String| {
        let file = manifests.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let kubevirt = "/apis/kubevirt.io/v1/namespaces/vms";
    let paths = [
        format!("{kubevirt}/virtualmachineinstances"),
        format!("{kubevirt}/virtualmachines"),
        format!("{kubevirt}/virtualmachineinstancemigrations"),
        "/api/v1/nodes".to_owned(),
        "/api/v1/namespaces/vms/pods".to_owned(),
    ];
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    write("infra/all.json", manifest(&infra, &paths));
    write("clusters/prod/nodes.json", manifest(&tenant, &["/api/v1/nodes"]));
    write(
        "clusters/prod/cluster.json",
        manifest(&infra, &["/apis/virtfleet.io/v1alpha1/userclusters"]),
    );
    let inventory = format!("{{ folder: {} }}", manifests.display());
    let by_folder = Collector::start(&root.join("folder"), &inventory).unwrap();
    by_folder.until_ready().unwrap();
    let expected = said(&by_folder);
    assert_eq!(expected["vms"].as_array().unwrap().len(), 3, "{expected:#}");
    wait::eventually(WAIT_TIMEOUT, "both say the same", || {
        let now = said(&live);
        ensure!(now == expected, "{now:#}\nand the folder\n{expected:#}");
        Ok(())
    })
    .unwrap();
    for collector in [&live, &by_folder] {
        let vm = |name: &str| collector.json(&format!("/api/v1/vms/vms/{name}")).unwrap();
        wait::eventually(WAIT_TIMEOUT, "the address of the pod", || {
            let agent = vm("vm-1")["agent"].clone();
            ensure!(agent["address"] == "127.0.0.77:10911", "{agent:#}");
            Ok(())
        })
        .unwrap();
        let alone = vm("vm-2");
        assert_eq!(
            alone["agent"]["address"],
            Value::Null,
            "an address reported by the guest agent is dialled: {alone:#}"
        );
    }
    for line in [
        "virtfleet_collector_watch_synced{kind=\"VirtualMachineInstance\",cluster=\"\"} 1",
        "virtfleet_collector_watch_objects{kind=\"Node\",cluster=\"prod\"} 2",
    ] {
        until_page(line, || live.metrics(), |page| page.contains(line));
    }
}

#[test]
fn what_happens_is_seen_and_a_restart_removes_nothing_tier3() {
    let test = "what_happens_is_seen_and_a_restart_removes_nothing_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut infra = infra(root).unwrap();
    infra.namespace("vms").unwrap();
    hosts(&infra);
    for name in ["vm-1", "vm-2", "vm-3"] {
        infra.apply(&running(name, "host-1")).unwrap();
    }
    let inventory = settings(root, &infra.kubeconfig(infra.admin_user()), "").unwrap();
    let collector = Collector::start(&root.join("live"), &inventory).unwrap();
    collector.until_ready().unwrap();
    collector
        .until_vms(&["vms/vm-1", "vms/vm-2", "vms/vm-3"])
        .unwrap();

    // Created, moved, deleted.
    infra.apply(&running("vm-4", "host-1")).unwrap();
    infra
        .merge(
            &running("vm-1", "host-1"),
            &json!({ "status": { "nodeName": "host-2" } }),
        )
        .unwrap();
    infra.remove(&running("vm-3", "host-1")).unwrap();
    let all = ["vms/vm-1", "vms/vm-2", "vms/vm-4"];
    collector.until_vms(&all).unwrap();
    collector.until_vm("vms/vm-1", "zone", &json!("zone-b")).unwrap();

    // An object that cannot be read keeps its last good state and is named.
    infra
        .merge(
            &running("vm-2", "host-1"),
            &json!({ "status": { "nodeName": "no node" } }),
        )
        .unwrap();
    let message = collector
        .until_finding("inventory-object-unreadable", "vms/vm-2")
        .unwrap();
    assert!(message.contains("status.nodeName"), "{message}");
    collector
        .until_vm("vms/vm-2", "infraNode", &json!("host-1"))
        .unwrap();

    // The server is away, comes back and has forgotten every version: at no moment is a VM gone.
    infra.stop();
    collector
        .until_finding("inventory-watch-failing", "virtualmachineinstances")
        .unwrap();
    assert_eq!(collector.vms().unwrap(), all);
    infra.start_again().unwrap();
    infra.etcd_compact().unwrap();
    wait::eventually(WAIT_TIMEOUT, "no watch fails", || {
        assert_eq!(collector.vms().unwrap(), all, "nothing was deleted");
        ensure!(collector.finding("inventory-watch-failing", "").is_err());
        Ok(())
    })
    .unwrap();
    assert_eq!(collector.vms().unwrap(), all);

    // Deleted while no watch was open: the next complete list shows it.
    collector.process.signal(Signal::SIGSTOP).unwrap();
    infra.remove(&running("vm-4", "host-1")).unwrap();
    infra.start_again().unwrap();
    collector.process.signal(Signal::SIGCONT).unwrap();
    collector.until_vms(&["vms/vm-1", "vms/vm-2"]).unwrap();
    infra.apply(&running("vm-5", "host-2")).unwrap();
    collector
        .until_vms(&["vms/vm-1", "vms/vm-2", "vms/vm-5"])
        .unwrap();
}

#[test]
fn what_may_not_be_listed_is_named_and_namespaces_are_enough_tier3() {
    let test = "what_may_not_be_listed_is_named_and_namespaces_are_enough_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let infra = infra(root).unwrap();
    for name in ["vms", "more", "other", "system"] {
        infra.namespace(name).unwrap();
    }
    hosts(&infra);
    for namespace in ["vms", "more", "other"] {
        infra.apply(&cluster::vmi(namespace, "vm-1")).unwrap();
    }
    let user: User = infra.service_account("system", "collector").unwrap();
    let reads = |group: &str, resources: &[&str]| json!([{ "apiGroups": [group], "resources": resources, "verbs": ["list", "watch"] }]);
    let kinds = ["virtualmachines", "virtualmachineinstances"];
    infra
        .grant("kubevirt", &user, Some("vms"), &reads("kubevirt.io", &kinds))
        .unwrap();
    for namespace in ["vms", "more"] {
        infra
            .grant("pods", &user, Some(namespace), &reads("", &["pods"]))
            .unwrap();
    }
    infra.grant("nodes", &user, None, &reads("", &["nodes"])).unwrap();
    let ours = reads("virtfleet.io", &["userclusters", "labelpropagations"]);
    infra.grant("ours", &user, None, &ours).unwrap();

    let inventory = settings(root, &infra.kubeconfig(&user), ", namespaces: [vms, more]").unwrap();
    let collector = Collector::start(&root.join("live"), &inventory).unwrap();
    let message = collector
        .until_finding(
            "inventory-watch-failing",
            "virtualmachines.kubevirt.io in namespace more",
        )
        .unwrap();
    assert!(
        message.contains("list and watch") && message.contains("Role"),
        "{message}"
    );
    wait::eventually(WAIT_TIMEOUT, "only the forbidden namespace is waited for", || {
        let waits = collector.waits_for()?;
        let forbidden = "virtualmachineinstances.kubevirt.io in namespace more";
        ensure!(
            waits.contains(forbidden) && !waits.contains("in namespace vms"),
            "{waits}"
        );
        Ok(())
    })
    .unwrap();
    assert_eq!(collector.json("/api/v1/vms").unwrap()["partial"], json!(true));
    // Findings name a UserCluster in an unwatched namespace and a policy that selects nothing.
    infra.apply(&user_cluster("elsewhere", "other")).unwrap();
    let mut policy = scene::policy("idle", &json!([{ "key": "rack" }]));
    policy["spec"]["clusterSelector"] = json!({ "matchLabels": { "no": "cluster" } });
    infra.apply(&policy).unwrap();
    let found = collector
        .until_finding("user-cluster-unwatched", "elsewhere")
        .unwrap();
    assert!(found.contains("inventory.cluster.namespaces"), "{found}");
    wait::eventually(WAIT_TIMEOUT, "the cluster says it, too", || {
        let message = collector.cluster("elsewhere")?["message"].to_string();
        ensure!(
            message.contains("none of its VMs is in the inventory"),
            "{message}"
        );
        Ok(())
    })
    .unwrap();

    infra
        .grant("kubevirt", &user, Some("more"), &reads("kubevirt.io", &kinds))
        .unwrap();
    collector.until_ready().unwrap();
    collector.until_vms(&["more/vm-1", "vms/vm-1"]).unwrap();
    collector.until_finding("policy-selects-nothing", "idle").unwrap();
    // Migrations stay forbidden, which is said and holds nothing up.
    collector
        .until_finding("inventory-kind-absent", "virtualmachineinstancemigrations")
        .unwrap();
}

/// The Secret of `prod` is missing, and the token of `dead` says that it has expired.
fn kubeconfigs_that_are_missing_or_expired_are_named(collector: &Collector) {
    wait::eventually(WAIT_TIMEOUT, "the cluster says what to do", || {
        let message = collector.cluster("prod")?["message"].to_string();
        let expected = "Secret secrets/prod does not exist; virtfleetctl cluster add prod";
        ensure!(message.contains(expected), "{message}");
        Ok(())
    })
    .unwrap();
    let message = collector
        .until_finding("user-cluster-credential-expiring", "dead")
        .unwrap();
    assert!(message.contains("expired at 1970-01-01T00:00:01Z"), "{message}");
}

#[test]
fn user_clusters_come_go_and_die_alone_tier3() {
    let test = "user_clusters_come_go_and_die_alone_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root: &Path = folder.path();
    let (infra, mut tenant) = (infra(root).unwrap(), ApiServer::start(root).unwrap());
    for name in ["vms", "secrets"] {
        infra.namespace(name).unwrap();
    }
    tenant.namespace("system").unwrap();
    node_of(&tenant, "node-1");
    let (_hole, url) = black_hole();
    // Its token says that it has expired ({"exp":1}).
    let dead = tenant
        .kubeconfig(tenant.admin_user())
        .replace(&tenant.url(), &url)
        .replace("token: ", "token: h.eyJleHAiOjF9.s #");
    infra.apply(&user_cluster("dead", "dead")).unwrap();
    infra.apply(&secret("dead", &dead)).unwrap();
    let vmi = running("vm-1", "host-1").label("kubermatic.k8c.io/cluster-id", "prod");
    infra.apply(&vmi).unwrap();

    let inventory = settings(root, &infra.kubeconfig(infra.admin_user()), "").unwrap();
    let collector = Collector::start(&root.join("live"), &inventory).unwrap();
    collector.until_ready().unwrap();
    is_pending_by_its_label(&collector);
    // Pending until there is a Secret; the dead one delays nothing.
    infra.apply(&user_cluster("prod", "vms")).unwrap();
    collector.until_finding("user-cluster-pending", "prod").unwrap();
    collector.until_vm("vms/vm-1", "cluster", &json!("prod")).unwrap();
    assert_eq!(until_state(&collector, "prod", "Pending")["known"], json!(true));
    kubeconfigs_that_are_missing_or_expired_are_named(&collector);
    let first = tenant.service_account("system", "collector").unwrap();
    let nodes = json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"] }]);
    let begun = Instant::now();
    infra.apply(&secret("prod", &tenant.kubeconfig(&first))).unwrap();
    let message = collector
        .until_finding("user-cluster-unreachable", "prod")
        .unwrap();
    assert!(message.contains("list and watch on nodes"), "{message}");
    let prod = until_state(&collector, "prod", "Unreachable");
    let why = prod["message"].as_str().unwrap();
    assert!(why.contains("list and watch on nodes"), "{prod:#}");
    tenant.grant("nodes", &first, None, &nodes).unwrap();
    until_nodes(&collector, "prod", 1);
    one_is_ready_and_one_is_dead(&collector);
    assert!(begun.elapsed() < WAIT_TIMEOUT);
    collector
        .until_finding("user-cluster-unreachable", "dead")
        .unwrap();

    flood::costs_itself(&infra, &tenant, &collector);
    one_is_ready_and_one_is_dead(&collector);

    // A kubeconfig that runs a program is refused, and what is known stays.
    let exec = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {exec: {command: touch, args: [/tmp/x]}}}]\n";
    infra.apply(&secret("prod", exec)).unwrap();
    collector
        .until_finding("user-cluster-unreachable", "runs a program")
        .unwrap();
    until_nodes(&collector, "prod", 1);

    // Rotated: the new one is used, and Nodes that went meanwhile go.
    tenant
        .remove(&cluster::user_node("node-1", "", &[], &[]))
        .unwrap();
    node_of(&tenant, "node-2");
    node_of(&tenant, "node-3");
    infra
        .apply(&secret("prod", &tenant.kubeconfig(tenant.admin_user())))
        .unwrap();
    until_nodes(&collector, "prod", 2);
    wait::eventually(WAIT_TIMEOUT, "prod is reached", || {
        ensure!(collector.finding("user-cluster-unreachable", "prod").is_err());
        Ok(())
    })
    .unwrap();

    // Its API server dies: what is known stays; it comes back: what is new is seen.
    tenant.stop();
    collector
        .until_finding("user-cluster-unreachable", "prod")
        .unwrap();
    until_nodes(&collector, "prod", 2);
    tenant.start_again().unwrap();
    node_of(&tenant, "node-4");
    until_nodes(&collector, "prod", 3);

    // It is suspended; the object says the same.
    until_state(&collector, "prod", "Ready");
    infra
        .merge(
            &user_cluster("prod", "vms"),
            &json!({ "spec": { "suspend": true } }),
        )
        .unwrap();
    until_state(&collector, "prod", "Suspended");

    // The object goes, and its Nodes with it; then the VM whose label still names it.
    infra.remove(&user_cluster("prod", "vms")).unwrap();
    is_pending_by_its_label(&collector);
    infra.remove(&vmi).unwrap();
    wait::eventually(WAIT_TIMEOUT, "prod is gone", || {
        let list = collector.json("/api/v1/clusters")?;
        ensure!(!list.to_string().contains("prod"), "{list:#}");
        ensure!(collector.finding("user-cluster-missing", "prod").is_err());
        ensure!(!collector.metrics()?.contains("cluster=\"prod\""));
        Ok(())
    })
    .unwrap();
}
