//! Files and units of others at paths that `virtfleet-agent install` writes on the machine.

use std::collections::BTreeSet;

use serde_json::Value;

use super::items::AgentItems;
use crate::{AGENT_PATH, guest, own::OWN};

/// Folder of the units that node-agent writes.
const SYSTEM: &str = "/etc/systemd/system";

/// The paths in `object` that virtfleet would write, too, each with the list that has it. Items of
/// `spec` that are themselves wanted are left to [`super::list`].
pub(super) fn claimed(object: &Value, items: &AgentItems) -> Vec<String> {
    let installed = guest::files(AGENT_PATH).into_iter().map(|file| file.path);
    let mut paths: BTreeSet<String> = installed.chain(OWN.map(str::to_owned)).collect();
    paths.insert(AGENT_PATH.to_owned());
    let wanted: BTreeSet<&str> = items
        .files
        .iter()
        .filter_map(|file| file["path"].as_str())
        .collect();
    let units: BTreeSet<&str> = items
        .units
        .iter()
        .filter_map(|unit| unit["name"].as_str())
        .collect();

    let mut found = Vec::new();
    for (place, list) in [
        ("spec.files", &object["spec"]["files"]),
        ("status.extensionFiles", &object["status"]["extensionFiles"]),
    ] {
        for path in list
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|file| file["path"].as_str())
        {
            let is_planned = place == "spec.files" && wanted.contains(path);
            if !is_planned && (paths.contains(path) || wanted.contains(path)) {
                found.push(format!("{place} has {path}"));
            }
        }
    }
    for (place, list) in [
        ("spec.units", &object["spec"]["units"]),
        ("status.extensionUnits", &object["status"]["extensionUnits"]),
    ] {
        for unit in list.as_array().into_iter().flatten() {
            let name = unit["name"].as_str().unwrap_or_default();
            let is_planned = units.contains(name);
            if is_planned && place == "spec.units" {
                continue;
            }
            // Without content it only sets options of a unit, as an admin may.
            let has_content = unit["content"].is_string() || is_planned;
            if has_content && paths.contains(&format!("{SYSTEM}/{name}")) {
                found.push(format!("{place} has {name}"));
            }
            let drop_ins = unit["dropIns"].as_array().into_iter().flatten();
            for drop_in in drop_ins.filter_map(|drop_in| drop_in["name"].as_str()) {
                if paths.contains(&format!("{SYSTEM}/{name}.d/{drop_in}")) {
                    found.push(format!("{place} has {name} with {drop_in}"));
                }
            }
        }
    }
    found
}
