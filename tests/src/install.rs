//! The shipped manifests.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;
use virtfleet_wire::layered::{Node, parse_yaml};

/// The objects of a file below `packaging/collector/kubernetes`, without empty documents.
///
/// # Errors
/// The file cannot be read, or is not YAML.
pub fn shipped(path: &str) -> Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/collector/kubernetes");
    let file = folder.join(path);
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let documents = parse_yaml(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    let objects = documents.iter().map(Node::to_json);
    Ok(objects.filter(|object| !object.is_null()).collect())
}
