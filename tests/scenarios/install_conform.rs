//! kubeconform on everything that is applied to a cluster: what the chart renders in all variants,
//! what kustomize builds, and the shipped manifests. The schemas are those of the real API server,
//! made strict: an unknown field is an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{ApiServer, live::WAIT_TIMEOUT},
    install::{DISK_SERIALS_API, Helm, objects, prometheus_definitions},
    parts,
    process::Launch,
    skip, wait,
};

use crate::expressions::root;

const KUBERNETES: &str = "packaging/collector/kubernetes";
const MINUTE: Duration = Duration::from_mins(1);
/// Kinds of other projects whose schemas no test has, and files that are not applied to a cluster.
const WITHOUT_SCHEMA: [&str; 8] = [
    "Certificate",
    "CollectorConfig",
    "Component",
    "Issuer",
    "Kustomization",
    "NodeReadinessRule",
    "RuleGroup",
    "Seed",
];
/// Values of the chart, one rendering each.
const VARIANTS: &[&[&str]] = &[
    &[],
    &[
        "--set",
        "monitoring.enabled=true,dashboards.enabled=true,ingest.enabled=true,clusterSources.enabled=true",
        "--set",
        "priorityClass.create=true,priorityClass.name=virtfleet,namespaces.createRelease=true,namespaces.keep=true",
        "--set-json",
        r#"relays=[{"namespace":"cluster-abcdefghij","allowCIDRs":["10.244.0.0/16"]}]"#,
    ],
    &[
        "--set",
        "mla.queue.persistence.enabled=true,mla.queue.persistence.storageClass=fast,secrets={mla-fleet,prometheus}",
    ],
    &["--set", "watchNamespaces={team-a,team-b},replicas=1,size=large"],
    &[
        "--set",
        "tls.source=certManager,authority.certManager.enabled=true",
    ],
    &[
        "--set",
        "tls.source=secret,networkPolicy.apiServerCIDRs={192.0.2.0/24}",
    ],
    &["--set", "tls.source=authority,clusterSources.enabled=true"],
    &[
        "--set",
        "diskSerials.enabled=true",
        "--api-versions",
        DISK_SERIALS_API,
    ],
];

/// Group, version and kind.
type Gvk = (String, String, String);

fn gvk(object: &Value) -> Option<Gvk> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    Some((group.to_owned(), version.to_owned(), kind.to_owned()))
}

/// All objects, by where they come from.
fn all(helm: &Helm) -> Result<BTreeMap<String, Vec<Value>>> {
    let mut found = BTreeMap::new();
    for arguments in VARIANTS {
        found.insert(format!("chart {arguments:?}"), helm.objects(arguments)?);
    }
    for tls in ["tls.source=certManager", "tls.source=secret,tls.caBundle=x"] {
        let set = format!("agent.image=registry.example.org/agent:1,fleetCA=x,{tls}");
        found.insert(
            format!("chart for Gardener {tls}"),
            helm.gardener_objects(&["--set", &set])?,
        );
    }
    for values in ["values-kkp.yaml", "values-gardener.yaml"] {
        let file = Helm::chart().join(values).display().to_string();
        found.insert(values.to_owned(), helm.objects(&["--values", &file])?);
    }
    for folder in ["infra", "overlays/kkp", "overlays/gardener", "user-cluster"] {
        let built = helm.kustomized(&format!("{KUBERNETES}/{folder}"))?;
        found.insert(folder.to_owned(), built);
    }
    let mut open = vec![root().join(KUBERNETES), root().join("packaging/collector/crds")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = fs::read_to_string(&path)?;
                found.insert(path.display().to_string(), objects(&text)?);
            }
        }
    }
    Ok(found)
}

/// Makes unknown fields an error, as `kubectl --validate=strict` does.
fn strict(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(strict),
        Value::Object(fields) => {
            let is_open = fields.contains_key("additionalProperties")
                || fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            // A field may have the name `properties` or `type`, with a schema.
            let is_object = fields.get("type").is_some_and(Value::is_string)
                && fields.get("properties").is_some_and(Value::is_object);
            if is_object && !is_open {
                fields.insert("additionalProperties".to_owned(), false.into());
            }
            fields.values_mut().for_each(strict);
        }
        _ => {}
    }
}

/// Writes the API server's schema of each kind as `GROUP_VERSION_KIND.json`.
fn write_schemas(server: &ApiServer, kinds: &BTreeSet<Gvk>, folder: &Path) -> Result<()> {
    let paths = server.admin().get("/openapi/v3")?.ok()?;
    let groups: BTreeSet<_> = kinds.iter().map(|(group, version, _)| (group, version)).collect();
    for (group, version) in groups {
        let path = match group.as_str() {
            "" => format!("api/{version}"),
            group => format!("apis/{group}/{version}"),
        };
        let url = paths["paths"][&path]["serverRelativeURL"].as_str();
        let url = url.with_context(|| format!("the API server does not have {path}"))?;
        let mut document = server.admin().get(url)?.ok()?;
        strict(&mut document["components"]["schemas"]);
        let schemas = document["components"]["schemas"].as_object().context("schemas")?;
        for (_, _, kind) in kinds.iter().filter(|kind| (&kind.0, &kind.1) == (group, version)) {
            let is_this =
                |one: &Value| one["group"] == *group && one["version"] == *version && one["kind"] == *kind;
            let name = schemas.iter().find(|(_, schema)| {
                let kinds = schema["x-kubernetes-group-version-kind"].as_array();
                kinds.is_some_and(|kinds| kinds.iter().any(is_this))
            });
            let (name, _) = name.with_context(|| format!("{path} has no {kind}"))?;
            let schema = json!({ "$ref": format!("#/components/schemas/{name}"), "components": { "schemas": schemas } });
            // kubeconform takes the version of the core group as its name.
            let group = if group.is_empty() { version } else { group };
            let file = format!("{group}_{version}_{}.json", kind.to_lowercase());
            fs::write(folder.join(file), schema.to_string())?;
        }
    }
    Ok(())
}

/// Exit code and output of kubeconform for these objects.
fn conform(program: &Path, schemas: &Path, objects: &[&Value]) -> Result<(i32, String)> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let location = format!(
        "{}/{{{{.Group}}}}_{{{{.ResourceAPIVersion}}}}_{{{{.ResourceKind}}}}.json",
        schemas.display()
    );
    Launch::new(program)
        .args(["-strict", "-summary", "-schema-location", &location])
        .stdin(list.to_string())
        .said(MINUTE)
}

#[test]
fn tier3_install_manifests_conform_to_the_schemas_of_the_api_server() {
    let test = "tier3_install_manifests_conform_to_the_schemas_of_the_api_server";
    let needs = || {
        // Debian's 1.20 has no `/openapi/v3`.
        parts::kube_control_plane()?;
        parts::prometheus_operator()?;
        Ok((parts::kubeconform()?, Helm::new()?))
    };
    let Some((program, helm)) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::start(folder.path()).unwrap();
    let mut definitions =
        objects(&fs::read_to_string(root().join("packaging/collector/crds/virtfleet.io.yaml")).unwrap())
            .unwrap();
    definitions.extend(prometheus_definitions().unwrap());
    server.install(&definitions).unwrap();

    let mut all = all(&helm).unwrap();
    let has_schema = |object: &Value| {
        let kind = object["kind"].as_str();
        kind.is_some_and(|kind| !WITHOUT_SCHEMA.contains(&kind)) && gvk(object).is_some()
    };
    for objects in all.values_mut() {
        objects.retain(has_schema);
    }
    let kinds: BTreeSet<Gvk> = all.values().flatten().filter_map(gvk).collect();
    let schemas = folder.path().join("schemas");
    fs::create_dir(&schemas).unwrap();
    // The API server publishes new kinds only after a while.
    wait::eventually(WAIT_TIMEOUT, "the schemas are published", || {
        write_schemas(&server, &kinds, &schemas)
    })
    .unwrap();
    let mut count = 0;
    for (source, objects) in &all {
        let objects: Vec<&Value> = objects.iter().collect();
        if objects.is_empty() {
            continue;
        }
        let (code, said) = conform(&program, &schemas, &objects).unwrap();
        assert_eq!(code, 0, "{source}: {said}");
        assert!(
            said.contains(&format!("Valid: {}, ", objects.len())),
            "{source}: {said}"
        );
        count += objects.len();
    }
    assert!(count > 300, "{count} objects");
    refuses_mistakes(&program, &schemas, &all).unwrap();
}

/// Each of these mistakes is found.
fn refuses_mistakes(program: &Path, schemas: &Path, all: &BTreeMap<String, Vec<Value>>) -> Result<()> {
    for (kind, place, value) in [
        ("Deployment", "/spec/template/spec/containers/0/imag", json!("x")),
        (
            "StatefulSet",
            "/spec/volumeClaimTemplates/0/spec/accessMode",
            json!(["ReadWriteOnce"]),
        ),
        ("Deployment", "/spec/replicas", json!("two")),
        ("UserCluster", "/spec/vmi", json!({})),
        ("NetworkPolicy", "/spec/ingres", json!([])),
        ("PrometheusRule", "/spec/group", json!([])),
    ] {
        let mut found = all.values().flatten().filter(|object| object["kind"] == kind);
        let mut broken = found.next().with_context(|| kind.to_owned())?.clone();
        let (parent, field) = place.rsplit_once('/').context("a place")?;
        broken.pointer_mut(parent).with_context(|| place.to_owned())?[field] = value;
        let (code, said) = conform(program, schemas, &[&broken])?;
        ensure!(code == 1 && said.contains("Invalid: 1"), "{kind}{place}: {said}");
    }
    Ok(())
}
