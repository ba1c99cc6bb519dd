//! Software bill of materials of an image: CycloneDX 1.5 in JSON, from cargo's metadata and lock
//! file.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
};

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, Package, PackageId};
use serde_json::{Value, json};

/// Licences of crates with a file in place of an expression. Read the file of a new version.
const LICENCE_FILES: &[(&str, &str)] = &[("libyaml-safer 0.3.0", "MIT")];

/// The licence of a crate, as an SPDX expression or in the older form with `/`.
pub fn licence(package: &Package) -> Option<&str> {
    let name = format!("{} {}", package.name, package.version);
    let file = LICENCE_FILES.iter().find(|(of, _)| *of == name);
    package.license.as_deref().or(file.map(|(_, licence)| *licence))
}

/// Options of `cargo metadata` for a bill of the image: only the crates of Linux on this machine's
/// architecture. Cargo would download those of all other systems, too.
pub fn metadata_options() -> Vec<String> {
    let platform = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    vec!["--filter-platform".to_owned(), platform]
}

/// All crates that are linked into the programs of `package`: name, version, licence, package URL
/// and hash. `lock` is the text of Cargo.lock, `metadata` is that of the whole workspace with its
/// dependencies, read with [`metadata_options`].
pub fn sbom(metadata: &Metadata, lock: &str, package: &str) -> Result<Vec<u8>> {
    let packages: BTreeMap<&PackageId, _> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package))
        .collect();
    let resolve = metadata
        .resolve
        .as_ref()
        .context("metadata without dependencies")?;
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let root = metadata
        .packages
        .iter()
        .find(|found| found.name.as_str() == package);
    let root = root.with_context(|| format!("no package {package}"))?;
    let mut linked = BTreeSet::from([&root.id]);
    let mut queue = vec![&root.id];
    while let Some(id) = queue.pop() {
        let node = nodes
            .get(id)
            .with_context(|| format!("no dependencies of {id}"))?;
        for dependency in &node.deps {
            let is_linked = dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal);
            if is_linked && linked.insert(&dependency.pkg) {
                queue.push(&dependency.pkg);
            }
        }
    }
    let hashes = hashes(lock);
    let mut components = Vec::new();
    for id in linked {
        let package = packages.get(id).with_context(|| format!("no package {id}"))?;
        let (name, version) = (package.name.as_str(), package.version.to_string());
        let mut component = json!({
            "type": "library",
            "bom-ref": format!("{name}@{version}"),
            "name": name,
            "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
        });
        if let Some(licence) = licence(package) {
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        if let Some(hash) = hashes.get(&(name, version.as_str())) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": hash }]);
        }
        components.push(component);
    }
    components.sort_by_key(|component| component["bom-ref"].as_str().map(str::to_owned));
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "container", "name": root.name.as_str(), "version": root.version.to_string(),
        } },
        "components": Value::Array(components),
    });
    Ok(serde_json::to_vec_pretty(&document)?)
}

/// Hashes of Cargo.lock, by name and version. Crates of the workspace have none.
fn hashes(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let field = |block: &'_ str, name: &str| -> Option<(usize, usize)> {
        let start = block.find(&format!("\n{name} = \""))? + name.len() + 5;
        Some((start, start + block[start..].find('"')?))
    };
    let blocks = lock.split("[[package]]").skip(1);
    let entry = |block| -> Option<((&str, &str), &str)> {
        let text = |name| field(block, name).map(|(start, end)| &block[start..end]);
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    blocks.filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_found_by_name_and_version() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        assert_eq!(hashes(lock), BTreeMap::from([(("a", "1.0.0"), "ff")]));
    }
}
