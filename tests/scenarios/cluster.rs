//! The harness of real API servers: what the scenarios of labels and inventories stand on.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{fs, path::Path, time::Instant};

use anyhow::ensure;
use serde_json::json;
use tempfile::TempDir;
use virtfleet_tests::{
    cluster::{self, ApiServer, MERGE_PATCH, SERVER_TIMEOUT, User, kubevirt},
    measure::usage::resident,
    parts, ports, skip,
    wait::eventually,
};

const TIER: u8 = 3;

/// A folder for API servers, or none when there is no kube-apiserver.
fn folder(test: &str) -> Option<TempDir> {
    skip::need(TIER, test, parts::kube_assets()).unwrap()?;
    Some(tempfile::tempdir().unwrap())
}

#[test]
fn tier3_two_api_servers_side_by_side_serve_kubevirts_kinds_and_leave_nothing_behind() {
    let test = "tier3_two_api_servers_side_by_side_serve_kubevirts_kinds_and_leave_nothing_behind";
    let Some(folder) = folder(test) else { return };
    let begin = Instant::now();
    let infra = ApiServer::start(folder.path()).unwrap();
    let first = begin.elapsed();
    let user = ApiServer::start(folder.path()).unwrap();
    assert_ne!(infra.url(), user.url());
    kubevirt::install(&infra).unwrap();
    infra.namespace("cluster-a").unwrap();

    let vmi = cluster::vmi("cluster-a", "worker-0")
        .label("cluster.x-k8s.io/cluster-name", "cluster-a")
        .on("host-1")
        .phase("Running")
        .interface("default", "52:54:00:00:00:01", &["10.0.0.1", "fd00::1"]);
    let made = infra.apply(&vmi).unwrap();
    assert_eq!(
        made["status"]["nodeName"], "host-1",
        "a VMI's status is part of it"
    );
    let moved = infra.apply(&vmi.clone().on("host-2")).unwrap();
    assert_eq!(
        (&moved["metadata"]["uid"], &moved["status"]["nodeName"]),
        (&made["metadata"]["uid"], &"host-2".into())
    );
    let migration = cluster::vmim("cluster-a", "move-1", "worker-0").phase("Running");
    assert_eq!(
        infra.apply(&migration).unwrap()["status"]["phase"],
        "Running",
        "by its status subresource"
    );
    let ended = infra
        .merge_status(&migration, &json!({ "status": { "phase": "Failed" } }))
        .unwrap();
    assert_eq!(ended["status"]["phase"], "Failed");
    infra.apply(&cluster::vm("cluster-a", "worker-0")).unwrap();
    infra
        .merge_status(&vmi, &json!({}))
        .expect_err("VMIs have no status subresource");
    infra.remove(&vmi).unwrap();
    assert_eq!(infra.fetch(&vmi).unwrap(), None);
    user.apply(&vmi).expect_err("the other server knows no such kind");

    let ids = [
        infra.id().unwrap(),
        infra.etcd_id(),
        user.id().unwrap(),
        user.etcd_id(),
    ];
    let resident: Vec<u64> = ids
        .iter()
        .map(|id| resident(*id).unwrap() / 1024 / 1024)
        .collect();
    println!("the first was ready after {first:?}; resident MiB (server, etcd, server, etcd): {resident:?}");
    drop((infra, user));
    for id in ids {
        assert!(
            !Path::new(&format!("/proc/{id}")).exists(),
            "process {id} is left"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "files are left");
}

#[test]
fn tier3_a_dual_stack_node_takes_a_metadata_patch_and_a_stale_one_is_a_conflict() {
    let test = "tier3_a_dual_stack_node_takes_a_metadata_patch_and_a_stale_one_is_a_conflict";
    let Some(folder) = folder(test) else { return };
    let server = ApiServer::start(folder.path()).unwrap();
    let node = cluster::user_node("worker-0", "kubevirt://worker-0", &["10.0.0.1", "fd00::1"], &[]);
    let made = server.apply(&node).unwrap();
    assert_eq!(made["status"]["addresses"].as_array().unwrap().len(), 3);
    let mark = server.audit_mark().unwrap();
    let change = |value: &str| {
        json!({ "metadata": {
            "resourceVersion": made["metadata"]["resourceVersion"],
            "labels": { "topology.kubernetes.io/zone": value },
        } })
    };
    let path = server.path_of(&node).unwrap();
    let first = server.admin().patch(&path, MERGE_PATCH, &change("a")).unwrap();
    assert_eq!(first.code, 200, "{}", first.body);
    let stale = server.admin().patch(&path, MERGE_PATCH, &change("b")).unwrap();
    assert_eq!((stale.code, &stale.body["reason"]), (409, &"Conflict".into()));
    let now = server.fetch(&node).unwrap().unwrap();
    assert_eq!(now["metadata"]["labels"]["topology.kubernetes.io/zone"], "a");
    assert_eq!(now["status"]["addresses"], made["status"]["addresses"]);

    let seen = server.audit_since(mark).unwrap();
    let lines: Vec<_> = seen
        .iter()
        .map(|entry| (entry.verb.as_str(), entry.name.as_str(), entry.code))
        .collect();
    assert_eq!(
        lines,
        [
            ("patch", "worker-0", 200),
            ("patch", "worker-0", 409),
            ("get", "worker-0", 200)
        ]
    );
    assert_eq!(seen[1].request, change("b"), "what was sent is kept");
    assert_eq!(
        (seen[0].user.as_str(), seen[0].user_agent.as_str()),
        ("admin", "virtfleet-tests")
    );
}

#[test]
fn tier3_a_restart_keeps_address_and_data_and_forgets_history() {
    let test = "tier3_a_restart_keeps_address_and_data_and_forgets_history";
    let Some(folder) = folder(test) else { return };
    let mut server = ApiServer::start(folder.path()).unwrap();
    let node = |name: &str| cluster::infra_node(name, &[("topology.kubernetes.io/zone", "a")]);
    let old = server.apply(&node("host-0")).unwrap();
    let version = old["metadata"]["resourceVersion"].as_str().unwrap();
    for number in 1..5 {
        server.apply(&node(&format!("host-{number}"))).unwrap();
    }
    let page = server.admin().get("/api/v1/nodes?limit=2").unwrap().ok().unwrap();
    let next = page["metadata"]["continue"].as_str().unwrap();
    server.apply(&node("host-1").label("later", "yes")).unwrap();
    server.etcd_compact().unwrap();

    server.pause().unwrap();
    let address = server.url().trim_start_matches("https://").parse().unwrap();
    assert!(ports::answers(address), "the kernel still accepts");
    server.resume().unwrap();
    let client = server.admin().clone();
    eventually(SERVER_TIMEOUT, "it is ready again", || {
        client.get("/readyz")?.ok().map(drop)
    })
    .unwrap();
    server.stop();
    client.get("/readyz").expect_err("the API server is stopped");
    server.start_again().unwrap();
    let gone = client
        .get(&format!("/api/v1/nodes?limit=2&continue={next}"))
        .unwrap();
    assert_eq!(gone.code, 410, "{}", gone.body);
    assert_eq!(
        client.get("/api/v1/nodes").unwrap().ok().unwrap()["items"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    assert_eq!(server.fetch(&old).unwrap().unwrap()["metadata"], old["metadata"]);
    let watch = format!("/api/v1/nodes?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let event = client.get(&watch).unwrap();
    assert!(
        event.code == 410 || event.body["object"]["code"] == 410,
        "{event:?}"
    );
    assert!(server.audit().unwrap().iter().any(|entry| entry.verb == "watch"));
}

#[test]
fn tier3_a_user_may_do_what_rbac_grants_and_nothing_else() {
    let test = "tier3_a_user_may_do_what_rbac_grants_and_nothing_else";
    let Some(folder) = folder(test) else { return };
    let collector = User::new("collector", &["virtfleet"]).unwrap();
    let server = ApiServer::start_with(folder.path(), std::slice::from_ref(&collector)).unwrap();
    server.namespace("virtfleet").unwrap();
    let account = server.service_account("virtfleet", "collector").unwrap();
    let rules = json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] }]);
    for user in [&collector, &account] {
        let client = server.client(user).unwrap();
        let refused = client.get("/api/v1/nodes").unwrap();
        assert_eq!(
            (refused.code, &refused.body["reason"]),
            (403, &"Forbidden".into())
        );
        server.grant("nodes", user, None, &rules).unwrap();
        eventually(SERVER_TIMEOUT, "the grant", || {
            ensure!(client.get("/api/v1/nodes")?.code == 200);
            Ok(())
        })
        .unwrap();
        assert_eq!(
            client
                .post("/api/v1/nodes", &cluster::infra_node("mine", &[]))
                .unwrap()
                .code,
            403
        );
        server.revoke("nodes", None).unwrap();
    }
    server.delete_service_account("virtfleet", "collector").unwrap();
    let client = server.client(&account).unwrap();
    eventually(SERVER_TIMEOUT, "the end of a token", || {
        let code = client.get("/api/v1/nodes")?.code;
        ensure!(code == 401, "{code}");
        Ok(())
    })
    .unwrap();

    let config = server.kubeconfig(server.user("collector").unwrap());
    virtfleet_wire::layered::parse_yaml(&config).unwrap();
    assert!(
        config.contains(&server.url()) && config.contains(&collector.token),
        "{config}"
    );
}
