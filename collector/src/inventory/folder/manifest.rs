//! Parses one manifest into its facts, or its first problem.

use std::collections::BTreeMap;

use serde_json::Value;
use virtfleet_collector_core::facts::{Fact, FactKey};
use virtfleet_wire::layered::{Node, parse_yaml};

use super::{
    convert::{Converted, convert},
    scope::ManifestScope,
};
use crate::inventory::read::{Field, ManifestSecret, Problem};

/// Maximum size of a manifest in bytes.
pub(super) const MAX_MANIFEST_BYTES: usize = 16 * 1024 * 1024;

/// Content of a valid manifest.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Manifest {
    /// Its facts, and the line of each.
    pub(super) facts: BTreeMap<FactKey, (usize, Fact)>,
    /// Objects of unused kinds: line and kind.
    pub(super) ignored: Vec<(usize, String)>,
    /// `spec.mla` of its UserCluster.
    pub(super) mla: Option<Value>,
    /// Its Secrets in a user cluster's folder, and the line of each.
    pub(super) secrets: Vec<(usize, ManifestSecret)>,
}

/// Parses a manifest: one or more documents, each an object or a list of objects.
pub(super) fn read(text: &str, scope: &ManifestScope) -> Result<Manifest, Problem> {
    if text.len() > MAX_MANIFEST_BYTES {
        return Err(too_large(text.len() as u64));
    }
    let documents = parse_yaml(text.trim_start_matches('\u{feff}')).map_err(|error| Problem {
        line: error.line,
        message: error.message,
    })?;
    if documents.is_empty() {
        let message = "empty: delete the file to remove its objects".to_owned();
        return Err(Problem { line: 1, message });
    }
    let mut manifest = Manifest::default();
    for document in &documents {
        take(document, scope, &mut manifest)?;
    }
    Ok(manifest)
}

pub(super) fn too_large(bytes: u64) -> Problem {
    let message = format!("{bytes} bytes, but a manifest may have at most {MAX_MANIFEST_BYTES}; split it");
    Problem { line: 1, message }
}

fn take(document: &Node, scope: &ManifestScope, manifest: &mut Manifest) -> Result<(), Problem> {
    let object = Field::top(document);
    let kind = object.get("kind")?.required_text()?;
    let items = object.get("items")?;
    // `kubectl get -o yaml` prints the kind List; the API itself returns VirtualMachineInstanceList
    // and so on.
    if kind.ends_with("List") && (items.is_there() || kind == "List") {
        // Items of a typed list from the API have no kind.
        let version = object.get("apiVersion")?.text()?;
        let of_list = version.zip(kind.strip_suffix("List").filter(|kind| !kind.is_empty()));
        return items
            .items()?
            .iter()
            .try_for_each(|item| take_one(item, of_list, scope, manifest));
    }
    take_one(&object, None, scope, manifest)
}

fn take_one(
    object: &Field<'_>,
    of_list: Option<(&str, &str)>,
    scope: &ManifestScope,
    manifest: &mut Manifest,
) -> Result<(), Problem> {
    let line = object.line;
    match convert(object, of_list, scope)? {
        Converted::Ignored(kind) => manifest.ignored.push((line, kind)),
        Converted::Secret(secret) => manifest.secrets.push((line, secret)),
        Converted::Fact(fact) => {
            let key = fact.key();
            if let Some((first, _)) = manifest.facts.get(&key) {
                let message = format!(
                    "{} occurs in this file twice, first on line {first}",
                    describe(&key)
                );
                return Err(Problem { line, message });
            }
            if matches!(fact, Fact::UserCluster(_)) {
                manifest.mla = object.at("spec.mla")?.json();
            }
            manifest.facts.insert(key, (line, fact));
        }
    }
    Ok(())
}

/// An object's kind and name for display.
pub(super) fn describe(key: &FactKey) -> String {
    match key {
        FactKey::Vmi(vm) => format!("VirtualMachineInstance {vm}"),
        FactKey::Vm(vm) => format!("VirtualMachine {vm}"),
        FactKey::InfraNode(node) => format!("Node {node}"),
        FactKey::UserCluster(cluster) => format!("UserCluster {cluster}"),
        FactKey::VmiMove(namespace, name) => format!("VirtualMachineInstanceMigration {namespace}/{name}"),
        FactKey::LauncherPod(namespace, name) => format!("Pod {namespace}/{name}"),
        FactKey::Policy(name) => format!("LabelPropagation {name}"),
        FactKey::Namespace(name) => format!("Namespace {name}"),
        FactKey::UserNode(cluster, node) => format!("Node {node} of cluster {cluster}"),
    }
}
