//! Every shipped pod runs without rights: no root, no capability, nothing to write, no token that
//! it does not need.

#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use virtfleet_wire::layered::{Node, parse_yaml};

/// Workloads that call an API server, and so need a ServiceAccount's token.
const WITH_TOKEN: [&str; 1] = ["virtfleet-collector"];

/// All manifests below a folder.
fn manifests(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            manifests(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml") {
            found.push(path);
        }
    }
}

/// Name and pod of an object that makes pods.
fn pod(object: &Value) -> Option<(String, Value)> {
    let name = object["metadata"]["name"].as_str()?.to_owned();
    let spec = match object["kind"].as_str()? {
        "Pod" => &object["spec"],
        "Deployment" | "DaemonSet" | "StatefulSet" | "ReplicaSet" | "Job" => {
            &object["spec"]["template"]["spec"]
        }
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        _ => return None,
    };
    Some((name, spec.clone()))
}

/// What a pod may do that it must not.
fn excess(name: &str, pod: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut require = |place: &str, value: &Value, expected: Value| {
        if *value != expected {
            found.push(format!("{name}: {place} is {value}, not {expected}"));
        }
    };
    let context = &pod["securityContext"];
    require("runAsNonRoot", &context["runAsNonRoot"], json!(true));
    require("runAsUser", &context["runAsUser"], json!(65532));
    require("runAsGroup", &context["runAsGroup"], json!(65532));
    require(
        "seccompProfile",
        &context["seccompProfile"],
        json!({"type": "RuntimeDefault"}),
    );
    // It would list every Service of the namespace in the environment.
    require("enableServiceLinks", &pod["enableServiceLinks"], json!(false));
    if !WITH_TOKEN.contains(&name) {
        let token = &pod["automountServiceAccountToken"];
        require("automountServiceAccountToken", token, json!(false));
    }
    for key in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
        require(key, &pod[key], Value::Null);
    }
    let containers = ["initContainers", "containers"].map(|key| pod[key].as_array().cloned());
    for container in containers.into_iter().flatten().flatten() {
        let context = &container["securityContext"];
        require(
            "container's securityContext",
            context,
            json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            }),
        );
        let memory = &container["resources"]["limits"]["memory"];
        if memory.is_null() {
            require("limits.memory", memory, json!("a limit"));
        }
    }
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        require("hostPath", &volume["hostPath"], Value::Null);
    }
    found
}

#[test]
fn every_shipped_pod_runs_without_rights() {
    let mut files = Vec::new();
    manifests(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging"),
        &mut files,
    );
    let objects = files.iter().flat_map(|file| {
        // Files that are no Kubernetes objects parse too, and have no kind.
        let text = fs::read_to_string(file).unwrap();
        let parsed = parse_yaml(&text).unwrap_or_default();
        parsed.iter().map(Node::to_json).collect::<Vec<_>>()
    });
    let pods: Vec<(String, Value)> = objects.filter_map(|object| pod(&object)).collect();
    let names: Vec<&str> = pods.iter().map(|(name, _)| name.as_str()).collect();
    for expected in ["virtfleet-collector", "virtfleet-relay"] {
        assert!(names.contains(&expected), "{names:?}");
    }
    let found: Vec<String> = pods.iter().flat_map(|(name, pod)| excess(name, pod)).collect();
    assert!(found.is_empty(), "{found:#?}");
    // Each rule is one that a pod can break.
    let open = json!({
        "hostNetwork": true,
        "volumes": [{"hostPath": {"path": "/"}}],
        "containers": [{"securityContext": {"privileged": true}}],
    });
    assert_eq!(excess("other", &open).len(), 10);
}

/// The chart is a template, which is not among the objects above.
#[test]
fn the_webhook_for_gardener_has_no_account_and_connects_to_nothing() {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/helm/virtfleet-gardener/templates");
    let files = fs::read_dir(chart).unwrap();
    let text: String = files
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    for account in ["kind: ServiceAccount", "serviceAccountName", "RoleBinding"] {
        assert!(!text.contains(account), "{account}");
    }
    let count = |line: &str| text.lines().filter(|found| found.trim() == line).count();
    let pods = (
        count("kind: Deployment"),
        count("automountServiceAccountToken: false"),
    );
    assert_eq!(pods, (1, 1));
    let policy = text.split("kind: NetworkPolicy").nth(1).unwrap();
    let policy = policy.split("{{- end }}").next().unwrap();
    assert!(
        policy.contains("policyTypes: [Ingress, Egress]") && !policy.contains("egress:"),
        "{policy}"
    );
}
