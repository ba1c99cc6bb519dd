//! Tier 3: the rights that `packaging/collector/kubernetes` gives are enough on both sides, and no
//! request is refused with them; the admission policy there confines the collector to labels.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use virtfleet_collector_core::labels::guard;
use virtfleet_tests::{
    cluster::{self, ApiServer, Client, MERGE_PATCH, STRATEGIC_PATCH, User, live, streamed_list},
    install::shipped,
    parts, skip, wait,
};

const ZONE: &str = "topology.kubernetes.io/zone";

fn apply(server: &ApiServer, path: &str) {
    for object in shipped(path).unwrap() {
        server.apply(&object).unwrap();
    }
}

/// Applies the shipped rights on both sides, and waits until they are effective.
fn grant_rights(infra: &ApiServer, tenant: &ApiServer) {
    apply(infra, "infra/namespace.yaml");
    apply(infra, "infra/rbac.yaml");
    apply(tenant, "user-cluster/rbac.yaml");
    for server in [infra, tenant] {
        server.until_rights_apply().unwrap();
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

/// A streaming list has the same objects as a list, for what the collector watches and with its
/// rights. The collector itself asks for pages, which every server has.
fn lists_can_be_streamed(infra: &ApiServer, account: &User, tenant: &Client) {
    if infra.minor().unwrap() < STREAMS_SINCE {
        return;
    }
    let on_infra = infra.client(account).unwrap();
    let collections = [
        (&on_infra, "/apis/kubevirt.io/v1/virtualmachineinstances"),
        (&on_infra, "/apis/kubevirt.io/v1/virtualmachines"),
        (&on_infra, "/apis/kubevirt.io/v1/virtualmachineinstancemigrations"),
        (&on_infra, "/apis/virtfleet.io/v1alpha1/userclusters"),
        (&on_infra, "/apis/virtfleet.io/v1alpha1/labelpropagations"),
        (&on_infra, "/api/v1/pods"),
        (&on_infra, "/api/v1/nodes"),
        (tenant, "/api/v1/nodes"),
    ];
    let names = |objects: &[Value]| -> BTreeSet<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        objects.iter().map(name).collect()
    };
    for (client, collection) in collections {
        let list = client.get(collection).unwrap().ok().unwrap();
        let listed = names(list["items"].as_array().unwrap());
        let streamed = names(&streamed_list(client, collection).unwrap());
        assert_eq!(streamed, listed, "{collection}");
    }
}

/// The first Kubernetes that streams lists without a feature gate in any later release.
const STREAMS_SINCE: u32 = 34;
/// The first Kubernetes that has ValidatingAdmissionPolicies.
const ADMISSION_POLICIES_SINCE: u32 = 30;
const NODE: &str = "/api/v1/nodes/vm-1";

/// Applies the shipped ValidatingAdmissionPolicy to a user cluster that has a Node vm-1, and waits
/// until it is enforced. Returns whether the server is new enough for it.
fn confine(tenant: &ApiServer, collector: &Client) -> bool {
    if tenant.minor().unwrap() < ADMISSION_POLICIES_SINCE {
        return false;
    }
    apply(tenant, "user-cluster/admission.yaml");
    let probe = json!({ "metadata": { "annotations": { "probe": "probe" } } });
    wait::eventually(live::WAIT_TIMEOUT, "the admission policy is enforced", || {
        let code = collector.patch(NODE, MERGE_PATCH, &probe)?.code;
        // A patch that changes nothing is not an update.
        tenant.admin().patch(
            NODE,
            MERGE_PATCH,
            &json!({ "metadata": { "annotations": { "probe": null } } }),
        )?;
        ensure!(code == 422, "{code}");
        Ok(())
    })
    .unwrap();
    true
}

/// The policy denies the collector every change of a Node except of labels and of its own
/// annotation. It denies other users nothing.
fn is_confined(tenant: &ApiServer, collector: &Client) {
    let taint = json!([{ "key": "k", "value": "v", "effect": "NoExecute" }]);
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u" }]);
    let denied = [
        (
            "the collector may not change a Node's spec",
            json!({ "spec": { "unschedulable": true } }),
        ),
        (
            "the collector may not change a Node's spec",
            json!({ "spec": { "taints": taint } }),
        ),
        (
            "finalizers or owners",
            json!({ "metadata": { "finalizers": ["example.com/f"] } }),
        ),
        (
            "finalizers or owners",
            json!({ "metadata": { "ownerReferences": owner } }),
        ),
        (
            "no annotation but",
            json!({ "metadata": { "annotations": { "other": "x" } } }),
        ),
        (
            "no annotation but",
            json!({ "metadata": { "annotations": { "theirs": null } } }),
        ),
    ];
    // Whatever the collector's own guard protects, the policy does.
    let protected = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/anything",
        "node-role.kubernetes.io/control-plane",
        "node.kubernetes.io/exclude-from-external-load-balancers",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/arch",
        "kubelet.kubernetes.io/x",
        "topology.kubernetes.io/zones",
        "scheduler.alpha.kubernetes.io/x",
        "k8s.io/x",
        "autoscaling.k8s.io/x",
    ];
    let reserved = protected.map(|key| {
        assert!(guard::protected(key).is_some(), "{key}");
        let labels = json!({ "metadata": { "labels": { key: "x" } } });
        ("labels that Kubernetes reserves", labels)
    });
    let removed = json!({ "metadata": { "labels": { "node-role.kubernetes.io/worker": null } } });
    let denied = denied.into_iter().chain(reserved);
    let denied = denied.chain([("labels that Kubernetes reserves", removed)]);
    let theirs = json!({ "metadata": {
        "annotations": { "theirs": "x" }, "labels": { "node-role.kubernetes.io/worker": "" },
    } });
    tenant
        .admin()
        .patch(NODE, MERGE_PATCH, &theirs)
        .unwrap()
        .ok()
        .unwrap();
    for (why, patch) in denied {
        let answer = collector.patch(NODE, MERGE_PATCH, &patch).unwrap();
        assert_eq!(answer.code, 422, "{patch}: {}", answer.body);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(message.contains("virtfleet-collector-metadata-only"), "{message}");
        assert!(message.contains(why), "{patch}: {message}");
    }
    let open = [
        "rack",
        "rack.example.com/x",
        "notkubernetes.io/x",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "infra.node-restriction.kubernetes.io/host",
    ];
    let pairs = open.map(|key| {
        assert_eq!(guard::protected(key), None, "{key}");
        (key.to_owned(), json!("x"))
    });
    let labels = Value::Object(pairs.into_iter().collect());
    let labels =
        json!({ "metadata": { "labels": labels, "annotations": { "virtfleet.io/owned-labels": null } } });
    for client in [collector, tenant.admin()] {
        client.patch(NODE, MERGE_PATCH, &labels).unwrap().ok().unwrap();
    }
    let cordon = json!({ "spec": { "unschedulable": true } });
    tenant
        .admin()
        .patch(NODE, MERGE_PATCH, &cordon)
        .unwrap()
        .ok()
        .unwrap();
    conditions_are_confined(tenant, collector);
}

/// With the optional right, the collector can change conditions of its own and nothing else of a
/// Node's status.
fn conditions_are_confined(tenant: &ApiServer, collector: &Client) {
    let status = format!("{NODE}/status");
    let condition = |kind: &str| json!({ "type": kind, "status": "False", "reason": "r", "message": "m" });
    let ours = json!({ "status": { "conditions": [condition("virtfleet.io/DisksReady")] } });
    let patch = |body: &Value| collector.patch(&status, STRATEGIC_PATCH, body).unwrap();
    assert_eq!(patch(&ours).code, 403, "the right is optional");
    apply(tenant, "user-cluster/node-conditions.yaml");
    wait::eventually(live::WAIT_TIMEOUT, "the right is effective", || {
        let answer = collector.patch(&status, STRATEGIC_PATCH, &ours)?;
        ensure!(answer.code == 200, "{}", answer.body);
        Ok(())
    })
    .unwrap();
    let address = json!({ "type": "InternalIP", "address": "10.9.9.9" });
    let delete = |kind: &str| json!({ "$patch": "delete", "type": kind });
    let denied = [
        (
            "no part of a Node's status",
            json!({ "status": { "conditions": [condition("Ready")] } }),
        ),
        (
            "no part of a Node's status",
            json!({ "status": { "conditions": [condition("example.com/X")] } }),
        ),
        (
            "no part of a Node's status",
            json!({ "status": { "conditions": [delete("Ready")] } }),
        ),
        (
            "no part of a Node's status",
            json!({ "status": { "addresses": [address] } }),
        ),
        (
            "no part of a Node's status",
            json!({ "status": { "capacity": { "cpu": "64" } } }),
        ),
        (
            "labels that Kubernetes reserves",
            json!({ "metadata": { "labels": { "node-role.kubernetes.io/x": "" } } }),
        ),
        (
            "no annotation but",
            json!({ "metadata": { "annotations": { "other": "x" } } }),
        ),
    ];
    for (why, body) in denied {
        let answer = patch(&body);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.code, 422, "{body}: {message}");
        assert!(message.contains(why), "{body}: {message}");
    }
    let removed = json!({ "status": { "conditions": [delete("virtfleet.io/DisksReady")] } });
    assert_eq!(patch(&removed).code, 200);
    let node = tenant.admin().get(NODE).unwrap().ok().unwrap();
    let conditions = node["status"]["conditions"].to_string();
    assert!(
        !conditions.contains("virtfleet.io/") && conditions.contains("Ready"),
        "{conditions}"
    );
}

/// Waits until an object of the infra cluster is as it should be.
fn kept(infra: &ApiServer, path: &str, ready: &dyn Fn(&Value) -> bool) -> Result<()> {
    wait::eventually(live::WAIT_TIMEOUT, path, || {
        let now = infra.admin().get(path)?.ok()?;
        ensure!(ready(&now), "{now:#}");
        Ok(())
    })
}

/// On the infra cluster no Secret but kubeconfigs, and those only as a list; no other Lease, no
/// other address, no list of volumes.
fn reads_nothing_else(infra: &ApiServer, account: &User) {
    let on_infra = infra.client(account).unwrap();
    for path in [
        "/api/v1/namespaces/virtfleet/secrets",
        "/api/v1/namespaces/virtfleet-kubeconfigs/secrets/kubeconfig-blue",
        "/apis/coordination.k8s.io/v1/namespaces/virtfleet/leases/another",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        // Volumes are read by name, never listed.
        "/api/v1/persistentvolumeclaims",
        "/api/v1/namespaces/tenant/persistentvolumeclaims",
        "/apis/cdi.kubevirt.io/v1beta1/namespaces/tenant/datavolumes",
    ] {
        assert_eq!(on_infra.get(path).unwrap().code, 403, "{path}");
    }
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
    infra.namespace("tenant").unwrap();
    grant_rights(&infra, &tenant);
    let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
    let theirs = tenant
        .service_account("virtfleet", "virtfleet-collector")
        .unwrap();

    for (name, zone) in [("host-1", "zone-a"), ("host-2", "zone-b")] {
        infra.apply(&cluster::infra_node(name, &[(ZONE, zone)])).unwrap();
    }
    let at = |host: &str| cluster::vmi("tenant", "vm-1").phase("Running").on(host);
    infra.apply(&at("host-1")).unwrap();
    let node = cluster::user_node("vm-1", "kubevirt://vm-1", &["10.0.0.1", "fd00::1"], &[]);
    tenant.apply(&node).unwrap();
    let with = tenant.client(&theirs).unwrap();
    let confined = confine(&tenant, &with);
    let mut blue = live::user_cluster("blue", "tenant");
    blue["spec"]["kubeconfig"]["secret"]["namespace"] = "virtfleet-kubeconfigs".into();
    infra.apply(&blue).unwrap();
    let mut secret = live::secret("blue", &tenant.kubeconfig(&theirs));
    secret["metadata"]["namespace"] = "virtfleet-kubeconfigs".into();
    infra.apply(&secret).unwrap();
    for policy in shipped("examples/labelpropagation.yaml").unwrap() {
        infra.apply(&policy).unwrap();
    }

    let inventory = live::settings(root, &infra.kubeconfig(&account), "").unwrap();
    let election = "leaderElection: { namespace: virtfleet, service: virtfleet-collector-leader }\n";
    let collector = live::Collector::start_with(&root.join("collector"), &inventory, election).unwrap();
    collector.until_ready().unwrap();
    let until_zone = |zone: &str| {
        wait::eventually(live::WAIT_TIMEOUT, zone, || {
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

    let ours = "/apis/virtfleet.io/v1alpha1";
    kept(
        &infra,
        &format!("{ours}/namespaces/tenant/guesthealths/vm-1"),
        &|now| {
            let conditions = now["status"]["conditions"].to_string();
            conditions.contains("LabelsInSync") && now["status"]["placement"]["infraNode"] == "host-2"
        },
    )
    .unwrap();
    let slices = "/apis/discovery.k8s.io/v1/namespaces/virtfleet/endpointslices";
    kept(&infra, &format!("{slices}/virtfleet-collector-leader"), &|now| {
        now["endpoints"][0]["addresses"][0] == live::POD_ADDRESS
    })
    .unwrap();
    kept(&infra, &format!("{ours}/userclusters/blue"), &|now| {
        now["status"]["phase"] == "Ready"
    })
    .unwrap();
    kept(&infra, &format!("{ours}/labelpropagations/placement"), &|now| {
        let conditions = now["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == "Accepted" && one["status"] == "True")
        })
    })
    .unwrap();
    kept(&infra, "/apis/events.k8s.io/v1/events", &|now| {
        now.to_string().contains("LabelsMoved")
    })
    .unwrap();
    assert_eq!(refused(&infra), Vec::<String>::new());
    assert_eq!(refused(&tenant), Vec::<String>::new());
    lists_can_be_streamed(&infra, &account, &with);

    // The accounts have no further rights: these requests are refused.
    for path in ["/api/v1/secrets", "/api/v1/configmaps", "/api/v1/namespaces"] {
        assert_eq!(with.get(path).unwrap().code, 403, "{path}");
    }
    assert_eq!(with.delete(NODE).unwrap().code, 403);
    reads_nothing_else(&infra, &account);
    if confined {
        // Everything above was done under the policy.
        drop(collector);
        is_confined(&tenant, &with);
    }
}
