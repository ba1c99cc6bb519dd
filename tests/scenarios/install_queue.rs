//! The chart's value `mla.queue.persistence`: queues of samples on a PersistentVolume for each
//! replica.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_collector::config::CollectorConfig;
use virtfleet_tests::{
    bins,
    cluster::{ApiServer, ControllerManager, live::WAIT_TIMEOUT},
    install::{self, Helm, RELEASE},
    parts,
    process::Launch,
    skip, wait,
};
use virtfleet_wire::layered::Fragment;

const ENABLED: &str = "mla.queue.persistence.enabled=true";
const SETS: &str = "/apis/apps/v1/namespaces/virtfleet/statefulsets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/virtfleet/deployments";
const CLAIMS: &str = "/api/v1/namespaces/virtfleet/persistentvolumeclaims";

/// Names of the objects in a collection of the API server.
fn names(server: &ApiServer, path: &str) -> Result<Vec<String>> {
    let list = server.admin().get(path)?.ok()?;
    let items = list["items"].as_array().context("items")?.iter();
    Ok(items
        .filter_map(|item| item["metadata"]["name"].as_str())
        .map(str::to_owned)
        .collect())
}

/// The object that runs the collectors.
fn workload(objects: &[Value]) -> &Value {
    let mut found = objects.iter().filter(|object| {
        object["metadata"]["name"] == "virtfleet-collector"
            && matches!(object["kind"].as_str(), Some("Deployment" | "StatefulSet"))
    });
    let one = found.next().unwrap();
    assert!(found.next().is_none(), "both kinds");
    one
}

/// The settings of a rendering, as the collector reads them.
fn settings(objects: &[Value]) -> CollectorConfig {
    let map = objects
        .iter()
        .find(|object| object["kind"] == "ConfigMap")
        .unwrap();
    let text = map["data"]["collector.yaml"].as_str().unwrap().to_owned();
    let file = "collector.yaml".to_owned();
    let loaded = CollectorConfig::load(&[Fragment {
        file,
        text: text.clone(),
    }]);
    assert!(loaded.problems.is_empty(), "{:?}: {text}", loaded.problems);
    loaded.value
}

#[test]
fn tier3_install_queue_volume_is_that_of_the_component_and_limits_the_queues() {
    let test = "tier3_install_queue_volume_is_that_of_the_component_and_limits_the_queues";
    let Some(helm) = skip::need(3, test, Helm::new()).unwrap() else {
        return;
    };
    let base = "namespaces.createRelease=true,checksums=false,tls.source=authority";
    let chart = helm.objects(&["--set", base, "--set", ENABLED]).unwrap();
    let mut component = crate::packaging_queue_volume::stateful_set();
    // The component's template of claims replaces the volume of the same name; the chart has none.
    let volumes = component["spec"]["template"]["spec"]["volumes"]
        .as_array_mut()
        .unwrap();
    volumes.retain(|volume| volume["name"] != "mla");
    assert_eq!(workload(&chart)["kind"], "StatefulSet");
    assert_eq!(workload(&chart)["spec"], component["spec"]);

    let with = |size: &str, config: &Value| {
        let set =
            format!("{ENABLED},mla.queue.persistence.storageClass=fast,mla.queue.persistence.size={size}");
        helm.objects(&["--set", &set, "--set-json", &format!("config={config}")])
    };
    let made = with("22Gi", &json!({ "mla": {} })).unwrap();
    let claim = &workload(&made)["spec"]["volumeClaimTemplates"][0]["spec"];
    assert_eq!(
        *claim,
        json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": { "requests": { "storage": "22Gi" } },
        })
    );
    let queue = |objects: &[Value]| settings(objects).mla.map(|mla| mla.queue);
    assert_eq!(queue(&made).unwrap().max_bytes, 20 << 30, "the default");
    let small = queue(&with("550Mi", &json!({ "mla": {} })).unwrap()).unwrap();
    assert_eq!(
        (small.max_bytes, small.max_bytes_per_stream),
        (500 << 20, 500 << 20)
    );
    let own = json!({ "mla": { "queue": { "maxBytes": 600_000_000_u64 } } });
    let own = queue(&with("5Gi", &own).unwrap()).unwrap();
    assert_eq!(
        (own.max_bytes, own.max_bytes_per_stream),
        (600_000_000, 600_000_000)
    );
    assert_eq!(queue(&with("5Gi", &json!({})).unwrap()), None, "MLA stays off");

    let large = json!({ "mla": { "queue": { "maxBytes": 5_368_709_120_u64 } } });
    for (size, config, part) in [
        ("5Gi", large, "make the volume larger than the queues"),
        ("16Mi", json!({ "mla": {} }), "at least 32Mi"),
        ("5G", json!({}), "/mla/queue/persistence/size"),
    ] {
        let refused = with(size, &config).unwrap_err().to_string();
        assert!(refused.contains(part), "{size}: {refused}");
    }
}

/// Runs `helm upgrade --install` with these values.
fn upgrade(helm: &Helm, values: &str) -> Result<String> {
    let chart = Helm::chart();
    let chart = chart.to_str().context("the path is not UTF-8")?;
    let release = [
        "upgrade",
        "--install",
        RELEASE,
        chart,
        "--namespace",
        RELEASE,
        "--create-namespace",
    ];
    let values = ["--set", "trustDomain=fleet.example.org", "--set", values];
    helm.run(&[&release[..], &values].concat())
}

#[test]
fn tier3_install_moves_queues_to_a_volume_of_each_replica() {
    let test = "tier3_install_moves_queues_to_a_volume_of_each_replica";
    let needs = || {
        parts::kube_control_plane()?;
        Helm::new()
    };
    let Some(helm) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = install::server(&helm, folder.path()).unwrap();
    upgrade(&helm, "replicas=2").unwrap();
    let _manager = ControllerManager::start_with(&server, &["statefulset-controller"]).unwrap();
    assert_eq!(names(&server, DEPLOYMENTS).unwrap(), ["virtfleet-collector"]);

    // Helm replaces the Deployment, and each replica gets a claim of its own.
    let said = upgrade(&helm, &format!("replicas=2,{ENABLED}")).unwrap();
    assert!(
        said.contains("rollout status statefulset/virtfleet-collector"),
        "{said}"
    );
    assert_eq!(names(&server, DEPLOYMENTS).unwrap(), [""; 0]);
    let both = ["mla-virtfleet-collector-0", "mla-virtfleet-collector-1"];
    let claims = || names(&server, CLAIMS);
    wait::eventually(WAIT_TIMEOUT, "a claim for each replica", || {
        let claims = claims()?;
        ensure!(claims == both, "{claims:?}");
        Ok(())
    })
    .unwrap();
    for name in ["virtfleet-collector-0", "virtfleet-collector-1"] {
        let path = format!("/api/v1/namespaces/virtfleet/pods/{name}");
        let pod = wait::eventually(WAIT_TIMEOUT, "the pod", || server.admin().get(&path)?.ok()).unwrap();
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let of_queue: Vec<_> = volumes.iter().filter(|volume| volume["name"] == "mla").collect();
        assert_eq!(
            of_queue[0]["persistentVolumeClaim"]["claimName"],
            format!("mla-{name}"),
            "{of_queue:?}"
        );
    }

    // The check and the bundle read the StatefulSet.
    let kubeconfig = folder.path().join("admin.kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig(server.admin_user())).unwrap();
    let ctl = Launch::new(bins::ctl().unwrap()).args(["install", "check", "-o", "json", "--kubeconfig"]);
    let (_, said) = ctl.arg(&kubeconfig).said(WAIT_TIMEOUT).unwrap();
    let results: Value = serde_json::from_str(&said).unwrap();
    let result = |what: &str| {
        let mut all = results.as_array().unwrap().iter();
        all.find(|result| result["what"] == what).unwrap().clone()
    };
    let replicas = result("StatefulSet");
    assert!(
        replicas["detail"]
            .as_str()
            .unwrap()
            .starts_with("0 of 2 replicas"),
        "{replicas}"
    );
    assert_eq!(result("settings")["status"], "ok", "{said}");

    // Another size: the API server refuses it until the StatefulSet is made again. The claims stay.
    let larger = format!("replicas=2,{ENABLED},mla.queue.persistence.size=30Gi");
    let refused = upgrade(&helm, &larger).unwrap_err().to_string();
    assert!(refused.contains("updates to statefulset spec"), "{refused}");
    let path = format!("{SETS}/virtfleet-collector");
    server.admin().delete(&path).unwrap().ok().unwrap();
    wait::eventually(WAIT_TIMEOUT, "the StatefulSet is gone", || {
        let sets = names(&server, SETS)?;
        ensure!(sets.is_empty(), "{sets:?}");
        Ok(())
    })
    .unwrap();
    upgrade(&helm, &larger).unwrap();
    let set = server.admin().get(&path).unwrap().ok().unwrap();
    let requests = &set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"];
    assert_eq!(requests["storage"], "30Gi");
    assert_eq!(claims().unwrap(), both);

    // Removal keeps the claims: what they hold is not sent yet.
    helm.run(&["uninstall", RELEASE, "--namespace", RELEASE]).unwrap();
    assert_eq!(names(&server, SETS).unwrap(), [""; 0]);
    assert_eq!(claims().unwrap(), both);
}
