//! The chart is the one source of the manifests for the infra cluster: the files for kustomize are
//! rendered from it, and the others are compared with it.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{collections::BTreeMap, env, fs, path::Path};

use serde_json::Value;
use virtfleet_collector::config::CollectorConfig;
use virtfleet_tests::{
    install::{DISK_SERIALS_API, Helm, documents, key, objects},
    skip,
};
use virtfleet_wire::layered::Fragment;

use crate::expressions::{read, root};

const KUBERNETES: &str = "packaging/collector/kubernetes";
/// Arguments for the manifests of kustomize: the CustomResourceDefinitions are a resource of their
/// own, the hash of the settings is part of the ConfigMap's name, and the collector issues the
/// certificate of its API.
const BASE: &[&str] = &[
    "--set",
    "namespaces.createRelease=true,crds.keep=false,checksums=false,tls.source=authority",
];
/// Templates with a file of the same name in `infra/`.
const FILES: [&str; 5] = [
    "namespace.yaml",
    "rbac.yaml",
    "access.yaml",
    "deployment.yaml",
    "networkpolicy.yaml",
];
/// Overlays, with the values file of the same name.
const OVERLAYS: [&str; 2] = ["kkp", "gardener"];

fn helm(test: &str) -> Option<Helm> {
    skip::need(3, test, Helm::new()).unwrap()
}

/// Arguments with the values file of an overlay.
fn with_values(overlay: &str) -> Vec<String> {
    let file = Helm::chart().join(format!("values-{overlay}.yaml"));
    let base = BASE.iter().map(|&argument| argument.to_owned());
    base.chain(["--values".to_owned(), file.display().to_string()])
        .collect()
}

/// Compares a file with what is rendered; `UPDATE_GOLDEN=1` writes it.
fn require_same(path: &str, text: &str) {
    let file = root().join(path);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, text).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        text,
        "{path} is not what the chart renders; UPDATE_GOLDEN=1 writes it again"
    );
}

/// The documents of one template in the order of the file, because Helm sorts them by kind. New
/// ones are last.
fn in_order_of(path: &str, rendered: &[(String, String)], template: &str) -> String {
    let old = objects(&fs::read_to_string(root().join(path)).unwrap_or_default()).unwrap();
    let old: Vec<String> = old.iter().map(key).collect();
    let mut texts: Vec<&str> = rendered
        .iter()
        .filter(|(name, _)| name == template)
        .map(|(_, text)| text.as_str())
        .collect();
    texts.sort_by_key(|text| {
        let key = key(&objects(text).unwrap()[0]);
        old.iter().position(|old| *old == key).unwrap_or(usize::MAX)
    });
    texts.join("---\n")
}

/// The settings in the ConfigMap among rendered documents.
fn settings(rendered: &[(String, String)]) -> String {
    let (_, map) = rendered.iter().find(|(name, _)| name == "config.yaml").unwrap();
    let map = &objects(map).unwrap()[0];
    let text = map["data"]["collector.yaml"].as_str().unwrap().trim_end();
    format!("{text}\n")
}

#[test]
fn tier3_install_manifests_for_kustomize_are_those_of_the_chart() {
    let Some(helm) = helm("tier3_install_manifests_for_kustomize_are_those_of_the_chart") else {
        return;
    };
    let rendered = documents(&helm.template(BASE).unwrap());
    for name in FILES {
        let path = format!("{KUBERNETES}/infra/{name}");
        require_same(&path, &in_order_of(&path, &rendered, name));
    }
    require_same(
        &format!("{KUBERNETES}/infra/collector.yaml"),
        &settings(&rendered),
    );
    let sources = [BASE, &["--set", "clusterSources.enabled=true"]].concat();
    let path = format!("{KUBERNETES}/sources/infra.yaml");
    let rendered = documents(&helm.template(&sources).unwrap());
    require_same(&path, &in_order_of(&path, &rendered, "sources.yaml"));
    for overlay in OVERLAYS {
        let arguments = with_values(overlay);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let rendered = documents(&helm.template(&arguments).unwrap());
        require_same(
            &format!("{KUBERNETES}/overlays/{overlay}/collector.yaml"),
            &settings(&rendered),
        );
        if overlay == "gardener" {
            let (_, ingest) = rendered
                .iter()
                .find(|(_, text)| text.contains("name: virtfleet-collector-ingest\n"))
                .unwrap();
            require_same(&format!("{KUBERNETES}/overlays/gardener/ingest.yaml"), ingest);
        }
    }
}

/// Objects by kind, namespace and name. The settings are parsed, because their comments and the
/// order of their keys mean nothing; names with kustomize's hash lose it.
fn comparable(objects: Vec<Value>) -> BTreeMap<String, Value> {
    const NAME: &str = "virtfleet-settings";
    let unhashed = |name: &mut Value| {
        let text = name.as_str().unwrap_or_default();
        if text.strip_prefix(NAME).is_some_and(|rest| rest.len() == 11) {
            *name = NAME.into();
        }
    };
    let mut all = BTreeMap::new();
    for mut object in objects {
        if object["kind"] == "ConfigMap" {
            unhashed(&mut object["metadata"]["name"]);
            let text = object["data"]["collector.yaml"].as_str().unwrap().to_owned();
            object["data"]["collector.yaml"] = Value::Array(objects_of(&text));
        }
        if object["kind"] == "Deployment" {
            let volumes = &mut object["spec"]["template"]["spec"]["volumes"];
            unhashed(&mut volumes[0]["configMap"]["name"]);
        }
        let key = key(&object);
        assert!(all.insert(key.clone(), object).is_none(), "{key} is there twice");
    }
    all
}

fn objects_of(text: &str) -> Vec<Value> {
    objects(text).unwrap()
}

#[test]
fn tier3_install_overlays_build_what_the_chart_does_with_the_same_values() {
    let Some(helm) = helm("tier3_install_overlays_build_what_the_chart_does_with_the_same_values") else {
        return;
    };
    let base: Vec<String> = BASE.iter().map(|&argument| argument.to_owned()).collect();
    let pairs = OVERLAYS.map(|name| (format!("overlays/{name}"), with_values(name)));
    for (folder, arguments) in pairs.into_iter().chain([("infra".to_owned(), base)]) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let chart = comparable(helm.objects(&arguments).unwrap());
        let built = comparable(helm.kustomized(&format!("{KUBERNETES}/{folder}")).unwrap());
        assert_eq!(
            built.keys().collect::<Vec<_>>(),
            chart.keys().collect::<Vec<_>>(),
            "{folder}"
        );
        for (key, object) in &built {
            assert_eq!(object, &chart[key], "{folder}: {key}");
        }
    }
}

/// The way from here to a folder of the repository: kustomize takes no absolute paths.
fn way_to(folder: &str, from: &Path) -> String {
    let up: Vec<_> = from.components().skip(1).map(|_| "..").collect();
    let to = root().canonicalize().unwrap().join(folder);
    format!("{}{}", up.join("/"), to.display())
}

#[test]
fn tier3_install_component_for_a_given_certificate_builds_what_the_chart_does() {
    let test = "tier3_install_component_for_a_given_certificate_builds_what_the_chart_does";
    let Some(helm) = helm(test) else {
        return;
    };
    let arguments = [BASE, &["--set", "tls.source=secret"]].concat();
    let rendered = helm.template(&arguments).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::write(path.join("collector.yaml"), settings(&documents(&rendered))).unwrap();
    let way = |name: &str| way_to(&format!("{KUBERNETES}/{name}"), &path);
    let overlay = format!(
        "kind: Kustomization\nresources: [{}]\ncomponents: [{}]\nconfigMapGenerator:\n- name: virtfleet-settings\n  \
         namespace: virtfleet\n  behavior: replace\n  files: [collector.yaml]\n",
        way("infra"),
        way("api-certificate")
    );
    fs::write(path.join("kustomization.yaml"), overlay).unwrap();
    let built = comparable(helm.kustomized(path.to_str().unwrap()).unwrap());
    assert_eq!(built, comparable(objects_of(&rendered)));
}

/// The dashboards of a ConfigMap, parsed. Helm writes 0 for 0.0, so numbers become texts of floats.
fn dashboards_in(data: &Value) -> BTreeMap<String, Value> {
    fn comparable(value: &mut Value) {
        match value {
            Value::Number(number) => *value = Value::String(format!("{:?}", number.as_f64())),
            Value::Array(items) => items.iter_mut().for_each(comparable),
            Value::Object(fields) => fields.values_mut().for_each(comparable),
            Value::Null | Value::Bool(_) | Value::String(_) => (),
        }
    }
    let entries = data.as_object().into_iter().flatten();
    let parsed = entries.map(|(name, text)| {
        let mut dashboard: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        comparable(&mut dashboard);
        (name.clone(), dashboard)
    });
    parsed.collect()
}

/// Every object of a shipped file is one that the chart makes with `arguments`.
fn chart_makes(helm: &Helm, path: &str, arguments: &[&str]) {
    let chart = helm.objects(arguments).unwrap();
    for shipped in objects_of(&read(path)) {
        let name = key(&shipped);
        // A file without namespace is applied where the admin wants it.
        let same = |object: &&Value| {
            object["kind"] == shipped["kind"] && object["metadata"]["name"] == shipped["metadata"]["name"]
        };
        let made = chart.iter().find(same).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(
            made["metadata"]["labels"], shipped["metadata"]["labels"],
            "{name}"
        );
        assert_eq!(made["spec"], shipped["spec"], "{path}: spec of {name}");
        assert_eq!(
            dashboards_in(&made["data"]),
            dashboards_in(&shipped["data"]),
            "{path}: data of {name}"
        );
    }
}

#[test]
fn tier3_install_options_of_the_chart_are_the_shipped_manifests() {
    let Some(helm) = helm("tier3_install_options_of_the_chart_are_the_shipped_manifests") else {
        return;
    };
    let monitoring = [
        "--set",
        "monitoring.enabled=true,monitoring.namespace=monitoring,dashboards.enabled=true",
    ];
    for name in [
        "scrape",
        "prometheusrule",
        "prometheusrule-recording",
        "dashboards",
    ] {
        chart_makes(
            &helm,
            &format!("{KUBERNETES}/monitoring/{name}.yaml"),
            &monitoring,
        );
    }
    let relays = r#"relays=[{"namespace":"cluster-abcdefghij","allowCIDRs":["10.244.0.0/16"]}]"#;
    chart_makes(
        &helm,
        &format!("{KUBERNETES}/relay.yaml"),
        &["--set-json", relays],
    );
    let push = ["--set-json", relays, "--set", "ingest.enabled=true"];
    chart_makes(&helm, &format!("{KUBERNETES}/push.yaml"), &push);
    let serials = ["--set", "diskSerials.enabled=true"];
    let known = [&serials[..], &["--api-versions", DISK_SERIALS_API]].concat();
    chart_makes(&helm, &format!("{KUBERNETES}/disk-serials/policy.yaml"), &known);
    let refused = helm.template(&serials).unwrap_err().to_string();
    for word in ["diskSerials.enabled", "Kubernetes 1.36", &known[2..].join(" ")] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    let namespaces = ["--set", "watchNamespaces={TENANT-NAMESPACE}"];
    let refused = helm.template(&namespaces).unwrap_err().to_string();
    assert!(refused.contains("/watchNamespaces/0"), "{refused}");

    let objects = helm
        .objects(&["--set", "secrets={mla-fleet,prometheus}"])
        .unwrap();
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    for name in ["mla-fleet", "prometheus"] {
        let volume = volumes
            .iter()
            .find(|one| one["secret"]["secretName"] == name)
            .unwrap();
        let mount = mounts.iter().find(|one| one["name"] == volume["name"]).unwrap();
        assert_eq!(mount["mountPath"], format!("/etc/virtfleet/secrets/{name}"));
    }

    // The rights of `namespaced/` and no others: the ClusterRole reads no VM and no pod.
    let objects = helm.objects(&["--set", "watchNamespaces={team-a}"]).unwrap();
    let of_kind = |kind: &str, namespace: Value| {
        let found = objects.iter().find(|object| {
            object["kind"] == kind
                && object["metadata"]["name"] == "virtfleet-collector"
                && object["metadata"]["namespace"] == namespace
        });
        &found.unwrap()["rules"]
    };
    let shipped = objects_of(&read(&format!("{KUBERNETES}/namespaced/rbac.yaml")));
    assert_eq!(*of_kind("Role", "team-a".into()), shipped[0]["rules"]);
    let cluster_wide = of_kind("ClusterRole", Value::Null);
    let mut rules = cluster_wide.as_array().unwrap().iter();
    let of_namespaces = rules.find(|rule| rule["resources"][0] == "namespaces").unwrap();
    assert_eq!(of_namespaces["resourceNames"][0], "team-a");
    let cluster_wide = cluster_wide.to_string();
    for absent in ["pods", "virtualmachines", "guesthealths", "events"] {
        assert!(
            !cluster_wide.contains(&format!("\"{absent}\"")),
            "{absent}: {cluster_wide}"
        );
    }
}

/// KKP takes NetworkPolicies of tenants' namespaces from the datacenter's settings
/// (kubermatic, `CustomNetworkPolicy` in `pkg/apis/kubermatic/v1/datacenter.go`).
#[test]
fn install_policies_in_kkps_datacenter_are_the_shipped_ones() {
    let datacenter = &objects_of(&read(&format!("{KUBERNETES}/overlays/kkp/datacenter.yaml")))[0];
    let policies = &datacenter["spec"]["datacenters"]["DATACENTER"]["spec"]["kubevirt"];
    let policies = policies["customNetworkPolicies"].as_array().unwrap();
    let files = ["pull", "push-egress"].map(|name| read(&format!("{KUBERNETES}/{name}.yaml")));
    let shipped: Vec<Value> = files.iter().flat_map(|text| objects_of(text)).collect();
    assert_eq!(policies.len(), shipped.len());
    for (policy, shipped) in policies.iter().zip(&shipped) {
        assert_eq!(policy["name"], shipped["metadata"]["name"]);
        assert_eq!(policy["spec"], shipped["spec"]);
    }
}

/// Every settings file that the chart or an overlay has is valid, whatever the source of the
/// certificate.
#[test]
fn tier3_install_settings_of_every_variant_are_valid() {
    let Some(helm) = helm("tier3_install_settings_of_every_variant_are_valid") else {
        return;
    };
    let mut texts: Vec<String> = ["generated", "authority", "certManager", "secret"]
        .iter()
        .map(|source| {
            let set = format!("tls.source={source},ingest.enabled=true,authority.certManager.enabled=true");
            settings(&documents(&helm.template(&["--set", &set]).unwrap()))
        })
        .collect();
    assert!(
        texts[0].contains("agentsSecret: virtfleet-agents-ca"),
        "{}",
        texts[0]
    );
    texts.extend(OVERLAYS.map(|name| read(&format!("{KUBERNETES}/overlays/{name}/collector.yaml"))));
    for text in texts {
        let file = "collector.yaml".to_owned();
        let fragment = Fragment {
            file,
            text: text.clone(),
        };
        let loaded = CollectorConfig::load(&[fragment]);
        assert!(loaded.problems.is_empty(), "{:?}: {text}", loaded.problems);
    }
}

#[test]
fn tier3_install_chart_passes_helms_linter_and_refuses_unknown_values() {
    let Some(helm) = helm("tier3_install_chart_passes_helms_linter_and_refuses_unknown_values") else {
        return;
    };
    let chart = Helm::chart();
    let chart = chart.to_str().unwrap();
    for values in ["values.yaml", "values-kkp.yaml", "values-gardener.yaml"] {
        let file = format!("{chart}/{values}");
        let said = helm.run(&["lint", "--strict", chart, "--values", &file]).unwrap();
        assert!(said.contains("0 chart(s) failed"), "{said}");
    }
    for (set, place) in [
        ("imagee.tag=x", "imagee"),
        ("size=huge", "/size"),
        ("tls.source=none", "/tls/source"),
        (
            "tls.source=authority,monitoring.enabled=true",
            "client certificate of Prometheus",
        ),
        ("replicas=0", "/replicas"),
        ("image.digest=sha256:1", "/image/digest"),
        ("priorityClass.create=true", "/priorityClass/name"),
        ("trustDomain=UPPER", "/trustDomain"),
        ("diskSerials.enabled=1", "/diskSerials/enabled"),
        ("monitoring.runbookBaseUrl=docs", "/monitoring/runbookBaseUrl"),
    ] {
        let refused = helm.template(&["--set", set]).unwrap_err().to_string();
        assert!(refused.contains(place), "{set}: {refused}");
    }
    documents_every_value(Path::new(chart));
    // `virtfleetctl install check` compares the version of the chart with its own.
    let about = objects_of(&fs::read_to_string(Path::new(chart).join("Chart.yaml")).unwrap()).remove(0);
    assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn tier3_install_chart_for_gardener_passes_helms_linter_and_refuses_what_machines_cannot_use() {
    let test = "tier3_install_chart_for_gardener_passes_helms_linter_and_refuses_what_machines_cannot_use";
    let Some(helm) = helm(test) else {
        return;
    };
    let folder = Helm::gardener_chart();
    let (chart, needed) = (
        folder.to_str().unwrap(),
        "agent.image=registry.example.org/agent:1,fleetCA=x",
    );
    let said = helm.run(&["lint", "--strict", chart, "--set", needed]).unwrap();
    assert!(said.contains("0 chart(s) failed"), "{said}");
    for (set, words) in [
        ("fleetCA=x".to_owned(), "agent.image is empty"),
        (
            "agent.image=registry.example.org/agent:1".to_owned(),
            "fleetCA is empty",
        ),
        (
            "agent.image=registry.example.org/agent,fleetCA=x".to_owned(),
            "/agent/image",
        ),
        (format!("{needed},tls.source=secret"), "/tls/caBundle"),
        (format!("{needed},delivry.settings=x"), "delivry"),
    ] {
        let refused = helm.gardener_objects(&["--set", &set]).unwrap_err().to_string();
        assert!(refused.contains(words), "{set}: {refused}");
    }
    documents_every_value(&folder);
}

/// Each value has a property in the schema, and each property a default.
fn documents_every_value(chart: &Path) {
    let values = objects_of(&fs::read_to_string(chart.join("values.yaml")).unwrap()).remove(0);
    let schema = fs::read_to_string(chart.join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    let names = values.as_object().unwrap();
    for name in names.keys() {
        assert!(
            properties.contains_key(name),
            "{name} is not in values.schema.json"
        );
    }
    for name in properties.keys() {
        assert!(
            name == "global" || names.contains_key(name),
            "{name} is not in values.yaml"
        );
    }
}
