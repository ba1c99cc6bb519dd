//! CustomResourceDefinitions of KubeVirt's kinds: names, versions and subresources as in KubeVirt
//! 1.x (`pkg/virt-operator/resource/generate/components/crds.go`), with a schema that keeps every
//! field and validates none.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use virtfleet_wire::layered::parse_yaml;

use super::ApiServer;

/// API group of all these kinds.
pub const GROUP: &str = "kubevirt.io";

/// Installs the kinds VirtualMachine, VirtualMachineInstance and VirtualMachineInstanceMigration.
pub fn install(server: &ApiServer) -> Result<()> {
    server.install(&definitions())
}

/// As [`install`], with the validation of a KubeVirt release: `schemas` contains `KIND.yaml` of
/// each kind (`parts::kubevirt`).
///
/// Replaces existing definitions.
pub fn install_release(server: &ApiServer, schemas: &Path) -> Result<()> {
    let mut definitions = definitions();
    for definition in &mut definitions {
        let kind = definition["spec"]["names"]["kind"].as_str().context("no kind")?;
        let path = schemas.join(format!("{kind}.yaml"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let documents = parse_yaml(&text).with_context(|| path.display().to_string())?;
        let schema = documents.first().context("an empty schema")?.to_json();
        for version in definition["spec"]["versions"]
            .as_array_mut()
            .context("no versions")?
        {
            version["schema"] = schema.clone();
        }
    }
    server.install(&definitions)
}

/// The definitions.
///
/// A VirtualMachineInstance has no status subresource: its status is written with the object. The
/// other two kinds have one.
pub fn definitions() -> Vec<Value> {
    let column = |name: &str, path: &str| {
        let kind = if name == "Age" { "date" } else { "string" };
        json!({ "name": name, "type": kind, "jsonPath": path })
    };
    let age = || column("Age", ".metadata.creationTimestamp");
    let phase = || column("Phase", ".status.phase");
    let ready = || column("Ready", ".status.conditions[?(@.type=='Ready')].status");
    vec![
        definition(
            "VirtualMachine",
            ["vm", "vms"],
            true,
            &[age(), column("Status", ".status.printableStatus"), ready()],
        ),
        definition(
            "VirtualMachineInstance",
            ["vmi", "vmis"],
            false,
            &[
                age(),
                phase(),
                column("IP", ".status.interfaces[0].ipAddress"),
                column("NodeName", ".status.nodeName"),
                ready(),
            ],
        ),
        definition(
            "VirtualMachineInstanceMigration",
            ["vmim", "vmims"],
            true,
            &[phase(), column("VMI", ".spec.vmiName")],
        ),
    ]
}

fn definition(kind: &str, short: [&str; 2], status: bool, columns: &[Value]) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let version = |name: &str, storage: bool| {
        let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let mut version = json!({
            "name": name,
            "served": true,
            "storage": storage,
            "deprecated": !storage,
            "additionalPrinterColumns": columns,
            "schema": { "openAPIV3Schema": {
                "type": "object",
                "properties": { "spec": free, "status": free },
                "x-kubernetes-preserve-unknown-fields": true,
            } },
        });
        if status {
            version["subresources"] = json!({ "status": {} });
        }
        version
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}"), "labels": { "app.kubernetes.io/component": "kubevirt" } },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "singular": singular, "plural": plural,
                "shortNames": short, "categories": ["all"],
            },
            "versions": [version("v1", true), version("v1alpha3", false)],
        },
    })
}
