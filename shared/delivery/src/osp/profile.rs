//! The existing profile.

use std::collections::BTreeSet;

use serde_json::Value;
use virtfleet_wire::layered::{Node, NodeValue, parse_yaml};

use super::file::ProfileFile;

/// API group of both kinds.
const API_GROUP: &str = "operatingsystemmanager.k8c.io/";
/// The kind of profiles that KKP copies from a seed.
pub(super) const CUSTOM_KIND: &str = "CustomOperatingSystemProfile";
/// Suffix of a name that is not given.
const SUFFIX: &str = "-virtfleet";

/// The program that applies the profile in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Utility {
    /// cloud-init.
    CloudInit,
    /// Ignition, on Flatcar.
    Ignition,
}

/// A valid profile.
#[derive(Debug, Clone)]
pub struct Profile<'a> {
    file: &'a str,
    text: &'a str,
    node: Node,
    value: Value,
    utility: Utility,
}

impl<'a> Profile<'a> {
    /// Parses a profile. `file` is its name for messages.
    ///
    /// # Errors
    /// Not one YAML document, another kind, or a missing field that every profile has, with its
    /// line.
    pub fn read(file: &'a str, text: &'a str) -> Result<Self, String> {
        let documents = parse_yaml(text)
            .map_err(|error| format!("{file}:{}: not YAML: {}", error.line, error.message))?;
        let node = match documents.as_slice() {
            [one] => one.clone(),
            [] => {
                return Err(format!(
                    "{file}: empty; print one with: kubectl -n kube-system get osp osp-ubuntu -o yaml"
                ));
            }
            [_, second, ..] => {
                return Err(format!(
                    "{file}:{}: a second object starts here; pass one profile",
                    second.line
                ));
            }
        };
        let value = node.to_json();
        let kind = value["kind"].as_str().unwrap_or_default();
        let known = matches!(kind, "OperatingSystemProfile" | CUSTOM_KIND);
        if !known
            || !value["apiVersion"]
                .as_str()
                .is_some_and(|version| version.starts_with(API_GROUP))
        {
            return Err(format!(
                "{file}:{}: not an OperatingSystemProfile of {}: kind is {:?}",
                node.line,
                API_GROUP.trim_end_matches('/'),
                kind
            ));
        }
        for (path, field) in [
            ("metadata.name", &value["metadata"]["name"]),
            ("spec.osName", &value["spec"]["osName"]),
            ("spec.version", &value["spec"]["version"]),
        ] {
            if !field.is_string() {
                return Err(format!("{file}:{}: {path} is missing or not a text", node.line));
            }
        }
        if !value["spec"]["provisioningConfig"].is_object() {
            return Err(format!(
                "{file}:{}: spec.provisioningConfig is missing",
                node.line
            ));
        }
        let utility = match value["spec"]["provisioningUtility"].as_str() {
            None | Some("cloud-init") => Utility::CloudInit,
            Some("ignition") => Utility::Ignition,
            Some(other) => {
                return Err(format!(
                    "{file}: spec.provisioningUtility is {other:?}; only cloud-init and ignition are known"
                ));
            }
        };
        Ok(Self {
            file,
            text,
            node,
            value,
            utility,
        })
    }

    pub(super) fn file(&self) -> &str {
        self.file
    }

    pub(super) fn text(&self) -> &str {
        self.text
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// Whether Ignition applies it, as on Flatcar.
    pub fn is_ignition(&self) -> bool {
        self.utility == Utility::Ignition
    }

    pub(super) fn utility(&self) -> Utility {
        self.utility
    }

    /// Paths of all files in the provisioning configuration, those of container runtimes included,
    /// with their lines.
    pub(super) fn paths(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        let provisioning = self
            .node
            .get("spec")
            .and_then(|spec| spec.get("provisioningConfig"));
        let mut collect = |files: Option<&Node>| {
            for file in items(files) {
                if let Some(path) = file.get("path").and_then(Node::as_str) {
                    found.push((path.to_owned(), file.line));
                }
            }
        };
        collect(provisioning.and_then(|config| config.get("files")));
        for runtime in items(provisioning.and_then(|config| config.get("supportedContainerRuntimes"))) {
            collect(runtime.get("files"));
        }
        found
    }

    /// The new `metadata.name`.
    pub(super) fn new_name(&self, given: Option<&str>) -> Result<String, String> {
        let old = self.value["metadata"]["name"].as_str().unwrap_or_default();
        let name = given.map_or_else(|| format!("{old}{SUFFIX}"), str::to_owned);
        // RFC 1123 subdomain, as Kubernetes requires of names.
        let label = |label: &str| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        if name.len() > 253 || !name.split('.').all(label) {
            return Err(format!(
                "--name {name}: a name has lowercase letters, digits, `-` and `.`, and at most 253 characters"
            ));
        }
        if name == old {
            return Err(format!(
                "--name {name}: this is the name of the original, which its owner overwrites; choose another one"
            ));
        }
        Ok(name)
    }

    /// The new `spec.version`. The default changes whenever the profile changes.
    pub(super) fn new_version(
        &self,
        given: Option<&str>,
        digest: &dyn Fn(&str) -> String,
        entries: &[ProfileFile],
    ) -> Result<String, String> {
        let old = self.value["spec"]["version"].as_str().unwrap_or_default();
        if let Some(version) = given {
            return if is_version(version) {
                Ok(version.to_owned())
            } else {
                Err(format!(
                    "--version {version}: OSM requires a version such as v1.2.3 or v1.2.3-virtfleet.1"
                ))
            };
        }
        if !is_version(old) {
            return Err(format!(
                "{}: spec.version is {old:?}, not a version such as v1.2.3",
                self.file
            ));
        }
        let added: Vec<Value> = entries.iter().map(ProfileFile::to_json).collect();
        let hash = digest(&format!("{}{}", self.value["spec"], Value::Array(added)));
        let base = old.split('+').next().unwrap_or(old);
        let join = if base.contains('-') { '.' } else { '-' };
        Ok(format!("{base}{join}virtfleet-{hash}"))
    }

    /// What the user should know about the original.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let spec = &self.value["spec"];
        let has_units = ["bootstrapConfig", "provisioningConfig"].iter().any(|part| {
            spec[part]["units"]
                .as_array()
                .is_some_and(|units| !units.is_empty())
        });
        if has_units && spec["osName"] != "flatcar" {
            notes.push(format!(
                "{}: OSM's webhook refuses `units` of a system other than Flatcar",
                self.file
            ));
        }
        let clouds: BTreeSet<&str> = spec["supportedCloudProviders"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|cloud| cloud["name"].as_str())
            .collect();
        if !clouds.contains("kubevirt") {
            notes.push(format!(
                "{}: spec.supportedCloudProviders does not list kubevirt",
                self.file
            ));
        }
        notes
    }
}

fn items(node: Option<&Node>) -> &[Node] {
    match node.map(|node| &node.value) {
        Some(NodeValue::Sequence(items)) => items,
        _ => &[],
    }
}

/// Whether the CRD accepts this `spec.version`: a semantic version with the letter v.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    let (rest, build) = rest
        .split_once('+')
        .map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest
        .split_once('-')
        .map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let pre_part = |part: &str| word(part) && (number(part) || part.bytes().any(|b| !b.is_ascii_digit()));
    let core: Vec<&str> = core.split('.').collect();
    core.len() == 3
        && core.iter().all(|part| number(part))
        && pre.is_none_or(|pre| pre.split('.').all(pre_part))
        && build.is_none_or(|build| build.split('.').all(word))
}

#[cfg(test)]
mod tests {
    use super::is_version;

    #[test]
    fn versions_are_those_of_the_crds_pattern() {
        for good in [
            "v0.0.0",
            "v1.11.2",
            "v1.2.3-rc.1",
            "v1.2.3-virtfleet-01ab",
            "v1.2.3-a+b.01",
        ] {
            assert!(is_version(good), "{good}");
        }
        for bad in [
            "1.2.3",
            "v1.2",
            "v01.2.3",
            "v1.2.3-01",
            "v1.2.3-",
            "v1.2.3+",
            "v1.2.3-a_b",
            "v1.2.x",
            "",
        ] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
