//! Keys that earlier versions had. Settings files that name them stay valid: the schema marks the
//! keys as deprecated, and the loader ignores them. `docs/contracts.md` lists them.

use schemars::Schema;
use serde_json::{Value, json};

/// Collectors that earlier versions had: no KubeVirt guest has their hardware.
pub const REMOVED_COLLECTORS: [&str; 6] = [
    "cpufreq",
    "edac",
    "powersupplyclass",
    "rapl",
    "tapestats",
    "thermal_zone",
];
/// Those with a section of settings under `metrics`.
const REMOVED_SECTIONS: [&str; 3] = ["powersupplyclass", "rapl", "tapestats"];
/// Keys of `metrics` that contain names of collectors.
const KEYED_BY_COLLECTOR: [&str; 2] = ["collectors", "maxSeriesOf"];

/// Adds the removed keys to the schema of the section `metrics`.
pub(super) fn add_removed_keys(schema: &mut Schema) {
    let Some(metrics) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for section in REMOVED_SECTIONS {
        metrics.insert(section.to_owned(), removed_key());
    }
    for key in KEYED_BY_COLLECTOR {
        if let Some(map) = metrics.get_mut(key).and_then(Value::as_object_mut) {
            let names = REMOVED_COLLECTORS.map(|name| (name.to_owned(), removed_key()));
            map.insert(
                "properties".to_owned(),
                Value::Object(names.into_iter().collect()),
            );
        }
    }
}

fn removed_key() -> Value {
    json!({
        "description": "Ignored: the agent no longer has this collector.",
        "deprecated": true,
    })
}
