//! What a path inside the folder means.

use std::path::{Component, Path};

use virtfleet_wire::ids::ClusterName;

/// Whose objects a manifest holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `infra/…`: the infra cluster's.
    Infra,
    /// `clusters/<name>/…`: a user cluster's.
    Cluster(ClusterName),
    /// `policies/…`: what is asked for all user clusters.
    Policies,
}

/// The place of a path relative to the folder, or why nothing is read from there.
pub fn place(path: &Path) -> Result<Place, String> {
    let mut parts = path.components().map(|part| match part {
        Component::Normal(name) => name.to_str().unwrap_or_default(),
        _ => "",
    });
    match (parts.next(), parts.next(), parts.next()) {
        (Some("infra"), Some(_), _) => Ok(Place::Infra),
        (Some("policies"), Some(_), _) => Ok(Place::Policies),
        (Some("clusters"), Some(name), Some(_)) => name
            .parse()
            .map(Place::Cluster)
            .map_err(|error| format!("the folder's name under clusters/ is the UserCluster's: {error}")),
        _ => Err("manifests are read from infra/, clusters/<name>/ and policies/".to_owned()),
    }
}

/// Whether a file's name is that of a manifest: `*.yaml`, `*.yml`, `*.json`, and not a dotfile.
pub fn is_manifest(name: &str) -> bool {
    let suffix = name.rsplit_once('.').map(|(_, suffix)| suffix);
    !is_hidden(name) && matches!(suffix, Some("yaml" | "yml" | "json"))
}

/// Whether a name is passed by: editors' and Kubernetes' own (`.x.swp`, `..data`, `..2026_01_01`).
pub fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names() {
        assert_eq!(place(Path::new("infra/vmis.yaml")), Ok(Place::Infra));
        assert_eq!(place(Path::new("infra/deep/er/vmis.yaml")), Ok(Place::Infra));
        assert_eq!(
            place(Path::new("clusters/a/nodes.yaml")),
            Ok(Place::Cluster("a".parse().unwrap()))
        );
        for good in ["policies/zone.yaml", "policies/deep/zone.yaml"] {
            assert_eq!(place(Path::new(good)), Ok(Place::Policies));
        }
        for bad in [
            "vmis.yaml",
            "policies",
            "infra",
            "clusters/a.yaml",
            "clusters/A_b/x.yaml",
            "other/x.yaml",
        ] {
            place(Path::new(bad)).unwrap_err();
        }
        for good in ["a.yaml", "a.yml", "a.json", "a.b.yaml"] {
            assert!(is_manifest(good), "{good}");
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
