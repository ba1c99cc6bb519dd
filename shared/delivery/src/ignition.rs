//! A config for Ignition, spec 3.3.0 (<https://coreos.github.io/ignition/configuration-v3_3/>).

use std::io::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};

use crate::payload::{DROP_IN, File, Payload, UNIT, WAITING};

/// The spec version.
pub const VERSION: &str = "3.3.0";

/// Renders the config, merged into `with` if there is an existing config.
///
/// # Errors
/// The existing config is malformed, has another major version, or already has one of the rendered
/// files or units.
pub fn render(payload: &Payload, with: Option<&str>) -> Result<Value, String> {
    let mut config = match with {
        None => json!({}),
        Some(text) => serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?,
    };
    let map = config.as_object_mut().ok_or("not a JSON object")?;
    let version = match map.get("ignition").and_then(|ignition| ignition.get("version")) {
        None if with.is_none() => VERSION.to_owned(),
        Some(Value::String(version)) => newer(version)?,
        _ => return Err("ignition.version is missing; is it an Ignition configuration?".to_owned()),
    };
    object(map, "ignition")?.insert("version".to_owned(), version.into());

    let files = list(object(map, "storage")?, "files", "storage.files")?;
    for file in &payload.files {
        if files.iter().any(|theirs| theirs["path"] == file.path) {
            return Err(format!(
                "storage.files already has {}; remove one of them",
                file.path
            ));
        }
        files.push(entry(file));
    }
    let units = list(object(map, "systemd")?, "units", "systemd.units")?;
    if units.iter().any(|theirs| theirs["name"] == UNIT) {
        return Err(format!("systemd.units already has {UNIT}; remove one of them"));
    }
    units.push(json!({"name": UNIT, "enabled": true, "contents": payload.unit}));
    for name in WAITING {
        let drop_in = json!({"name": DROP_IN, "contents": payload.drop_in});
        match units.iter_mut().find(|theirs| theirs["name"] == name) {
            None => units.push(json!({"name": name, "dropins": [drop_in]})),
            Some(Value::Object(unit)) => list(unit, "dropins", name)?.push(drop_in),
            Some(_) => return Err(format!("systemd.units: {name} is not an object")),
        }
    }
    Ok(config)
}

/// The version for the result: the existing one if it is newer.
fn newer(theirs: &str) -> Result<String, String> {
    let minor = theirs
        .strip_prefix("3.")
        .and_then(|rest| rest.split(['.', '-']).next()?.parse::<u32>().ok())
        .ok_or_else(|| {
            format!(
                "ignition.version is {theirs}; only spec 3 is supported, and its fields are other ones: translate it \
                 with ign-converter or Butane, or use `render osp` for a profile of KKP"
            )
        })?;
    Ok(if minor >= 3 { theirs } else { VERSION }.to_owned())
}

fn object<'m>(map: &'m mut Map<String, Value>, key: &str) -> Result<&'m mut Map<String, Value>, String> {
    map.entry(key)
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .ok_or_else(|| format!("{key} is not an object"))
}

fn list<'m>(map: &'m mut Map<String, Value>, key: &str, place: &str) -> Result<&'m mut Vec<Value>, String> {
    map.entry(key)
        .or_insert_with(|| json!([]))
        .as_array_mut()
        .ok_or_else(|| format!("{place}: {key} is not a list"))
}

fn entry(file: &File) -> Value {
    let contents = match packed(&file.content) {
        Some(packed) => json!({"source": data(&packed), "compression": "gzip"}),
        None => json!({"source": data(&file.content)}),
    };
    json!({"path": file.path, "mode": file.mode, "overwrite": true, "contents": contents})
}

fn data(content: &[u8]) -> String {
    format!("data:;base64,{}", STANDARD.encode(content))
}

/// The content compressed by gzip, if that is smaller. Equal content gives equal bytes.
fn packed(content: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).ok()?;
    encoder
        .finish()
        .ok()
        .filter(|packed| packed.len() < content.len())
}

#[cfg(test)]
mod tests;
