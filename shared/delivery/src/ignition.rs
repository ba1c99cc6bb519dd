//! A config for Ignition, spec 3.3.0 (<https://coreos.github.io/ignition/configuration-v3_3/>).

mod keys;

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    gzip::gzip,
    own::{DELIVER, DELIVER_MODE},
    payload::{Payload, UNIT, UNIT_PATH},
    script::{Mechanism, script},
};

/// The spec version, unless an existing config has another one. All of them have the fields that
/// are rendered.
pub const VERSION: &str = "3.3.0";
/// All stable versions of spec 3 (<https://coreos.github.io/ignition/specs/>).
const VERSIONS: [&str; 7] = ["3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0"];

/// Renders the config, merged into `with` if there is an existing config.
///
/// # Errors
/// The existing config is malformed, has another major version, or Ignition would refuse it with
/// the rendered files and units.
pub fn render(payload: &Payload, with: Option<&str>) -> Result<Value, String> {
    let mut config = match with {
        None => json!({}),
        Some(text) => {
            let config: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
            keys::check(text)?;
            config
        }
    };
    if !config["ignition"]["config"]["replace"]["source"].is_null() {
        let why = "ignition.config.replace has a source, with which Ignition drops the rest, the delivery too; name it in \
                   ignition.config.merge";
        return Err(why.to_owned());
    }
    let map = config.as_object_mut().ok_or("not a JSON object")?;
    let version = match map.get("ignition").and_then(|ignition| ignition.get("version")) {
        None if with.is_none() => VERSION.to_owned(),
        Some(Value::String(version)) => supported(version)?.to_owned(),
        _ => return Err("ignition.version is missing; is it an Ignition configuration?".to_owned()),
    };
    object(map, "ignition")?.insert("version".to_owned(), version.into());

    let storage = object(map, "storage")?;
    // An agent in the image provisions before the script runs.
    let early = if payload.binaries.is_empty() {
        payload.files.len()
    } else {
        0
    };
    let (early, later) = payload.files.split_at(early);
    let files = list(storage, "files", "storage")?;
    for file in early {
        files.push(entry(&file.path, file.mode, &file.content));
    }
    let text = script(payload, Mechanism::Files);
    files.push(entry(DELIVER, DELIVER_MODE, text.as_bytes()));
    let written = later.iter().map(|file| file.path.as_str());
    check_paths(storage, written.chain([UNIT_PATH]))?;
    let units = list(object(map, "systemd")?, "units", "systemd")?;
    units.push(json!({"name": UNIT, "enabled": true, "contents": payload.unit}));
    check_names(units, "systemd.units")?;
    for unit in units.iter() {
        let drop_ins = unit["dropins"].as_array().map_or(&[][..], Vec::as_slice);
        check_names(drop_ins, &format!("systemd.units: dropins of {}", unit["name"]))?;
    }
    Ok(config)
}

/// What Ignition may do with the config in a guest that cannot be checked here.
pub fn note(config: &Value) -> Option<&'static str> {
    let merged = config["ignition"]["config"]["merge"].as_array();
    merged.filter(|configs| !configs.is_empty()).map(|_| {
        "Ignition merges the configurations of ignition.config.merge over this one, which are not checked: a file, link or \
         unit of one of them replaces that of the delivery with the same path or name"
    })
}

/// The version of an existing config.
fn supported(version: &str) -> Result<&str, String> {
    if !version.starts_with("3.") {
        return Err(format!(
            "ignition.version is {version}; only spec 3 is supported, and its fields are other ones: translate it with \
             ign-converter or Butane, or use `render osp` for a profile of KKP"
        ));
    }
    if !VERSIONS.contains(&version) {
        return Err(format!(
            "ignition.version is {version}, which Ignition does not know or drops when it is released; use {VERSION}"
        ));
    }
    Ok(version)
}

/// Refuses paths that Ignition refuses together: a path twice, or one below a link. It accepts one
/// below a file, and then fails in the guest. `written` are files of the script, and its unit.
fn check_paths<'p>(
    storage: &'p Map<String, Value>,
    written: impl Iterator<Item = &'p str>,
) -> Result<(), String> {
    const DIRECTORIES: &str = "storage.directories";
    let mut all = BTreeMap::new();
    for (kind, place) in [
        ("directories", DIRECTORIES),
        ("links", "storage.links"),
        ("files", "storage.files"),
    ] {
        let entries = match storage.get(kind) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(format!("storage: {kind} is not a list")),
        };
        for entry in entries {
            let simplified = |path: &&str| {
                let mut steps = path
                    .strip_prefix('/')
                    .into_iter()
                    .flat_map(|path| path.split('/'));
                *path == "/" || path.starts_with('/') && !steps.any(|step| matches!(step, "" | "." | ".."))
            };
            let path = entry["path"].as_str().filter(simplified).ok_or_else(|| {
                format!(
                    "{place}: {} is not an absolute path without `.`, `..`, `//` and `/` at its end",
                    entry["path"]
                )
            })?;
            if let Some(other) = all.insert(path, place) {
                return Err(format!("{other} already has {path}; remove one of them"));
            }
        }
    }
    for path in written {
        if let Some(other) = all.insert(path, "the delivery") {
            return Err(format!(
                "{other} already has {path}, which the delivery writes; remove it"
            ));
        }
    }
    for (path, place) in &all {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        for above in above {
            let found = all.get(above).filter(|other| **other != DIRECTORIES);
            if let Some(other) = found {
                return Err(format!(
                    "{other} already has {above}, and {path} of {place} is below it; remove one of them"
                ));
            }
        }
    }
    Ok(())
}

/// Refuses a name that occurs twice.
fn check_names(entries: &[Value], place: &str) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for entry in entries {
        let name = entry["name"]
            .as_str()
            .ok_or_else(|| format!("{place}: one has no name"))?;
        if !known.insert(name) {
            return Err(format!("{place} already has {name}; remove one of them"));
        }
    }
    Ok(())
}

/// The object or list of a key. Ignition accepts null in place of an absent one.
fn value<'m>(map: &'m mut Map<String, Value>, key: &str, absent: Value) -> &'m mut Value {
    let value = map.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = absent;
    }
    value
}

fn object<'m>(map: &'m mut Map<String, Value>, key: &str) -> Result<&'m mut Map<String, Value>, String> {
    value(map, key, json!({}))
        .as_object_mut()
        .ok_or_else(|| format!("{key} is not an object"))
}

fn list<'m>(map: &'m mut Map<String, Value>, key: &str, place: &str) -> Result<&'m mut Vec<Value>, String> {
    value(map, key, json!([]))
        .as_array_mut()
        .ok_or_else(|| format!("{place}: {key} is not a list"))
}

fn entry(path: &str, mode: u32, content: &[u8]) -> Value {
    let source = format!("data:;base64,{}", STANDARD.encode(gzip(content)));
    json!({
        "path": path,
        "mode": mode,
        "overwrite": true,
        "contents": {"source": source, "compression": "gzip"},
    })
}

#[cfg(test)]
mod tests;
