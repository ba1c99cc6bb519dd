//! Scope of a manifest by its path in the folder.

use std::path::{Component, Path};

use virtfleet_wire::ids::ClusterName;

/// The clusters to which a manifest's objects belong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManifestScope {
    /// `infra/…`: the infra cluster.
    Infra,
    /// `clusters/<name>/…`: a user cluster.
    Cluster(ClusterName),
    /// `policies/…`: all user clusters.
    Policies,
}

/// The scope of a path relative to the folder.
///
/// # Errors
/// Why the collector reads nothing from there.
pub fn scope(path: &Path) -> Result<ManifestScope, String> {
    let mut parts = path.components().map(|part| match part {
        Component::Normal(name) => name.to_str().unwrap_or_default(),
        _ => "",
    });
    match (parts.next(), parts.next(), parts.next()) {
        (Some("infra"), Some(_), _) => Ok(ManifestScope::Infra),
        (Some("policies"), Some(_), _) => Ok(ManifestScope::Policies),
        (Some("clusters"), Some(name), Some(_)) => {
            name.parse().map(ManifestScope::Cluster).map_err(|error| {
                format!("the name of the folder under clusters/ must be a UserCluster's name: {error}")
            })
        }
        _ => Err("manifests are read from infra/, clusters/<name>/ and policies/".to_owned()),
    }
}

/// Whether a file has the name of a manifest: `*.yaml`, `*.yml`, `*.json`, and not a dotfile.
pub fn is_manifest(name: &str) -> bool {
    let suffix = name.rsplit_once('.').map(|(_, suffix)| suffix);
    !is_hidden(name) && matches!(suffix, Some("yaml" | "yml" | "json"))
}

/// Whether a name is ignored: those of editors and Kubernetes (`.x.swp`, `..data`, `..2026_01_01`).
pub fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names() {
        assert_eq!(scope(Path::new("infra/vmis.yaml")), Ok(ManifestScope::Infra));
        assert_eq!(
            scope(Path::new("infra/deep/er/vmis.yaml")),
            Ok(ManifestScope::Infra)
        );
        assert_eq!(
            scope(Path::new("clusters/a/nodes.yaml")),
            Ok(ManifestScope::Cluster("a".parse().unwrap()))
        );
        for valid in ["policies/zone.yaml", "policies/deep/zone.yaml"] {
            assert_eq!(scope(Path::new(valid)), Ok(ManifestScope::Policies));
        }
        for bad in [
            "vmis.yaml",
            "policies",
            "infra",
            "clusters/a.yaml",
            "clusters/A_b/x.yaml",
            "other/x.yaml",
        ] {
            scope(Path::new(bad)).unwrap_err();
        }
        for valid in ["a.yaml", "a.yml", "a.json", "a.b.yaml"] {
            assert!(is_manifest(valid), "{valid}");
        }
        for bad in [
            "a",
            "a.txt",
            ".a.yaml",
            "..data",
            "a.yaml~",
            "a.yaml.swp",
            "yaml",
            ".yaml",
        ] {
            assert!(!is_manifest(bad), "{bad}");
        }
    }
}
