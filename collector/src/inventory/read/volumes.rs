//! Reads which claims back the volumes of a VM, and when KubeVirt starts it.
//!
//! An invalid value counts as absent: it must not hide the VM.

use virtfleet_collector_core::{
    facts::RunStrategy,
    volumes::{ClaimVolume, MAX_CLAIM_VOLUMES, PluggingVolume},
};
use virtfleet_wire::ids::ClaimName;

use super::field::Field;
use crate::bounded::bounded;

/// Maximum volumes of a VM that are searched for claims.
const MAX_VOLUMES: usize = 256;
/// Maximum characters of a volume's name or phase, and of what KubeVirt says about it.
const MAX_NAME_CHARS: usize = 64;
const MAX_SAID_CHARS: usize = 256;

/// The volumes at `path` that a claim backs, without repetition. A name that is no valid name of an
/// object is skipped: it becomes a part of the path of a request.
pub(super) fn claim_volumes(object: &Field<'_>, path: &str) -> Box<[ClaimVolume]> {
    let listed = object.at(path).and_then(|field| field.items());
    let mut found: Vec<ClaimVolume> = Vec::new();
    for volume in listed.unwrap_or_default().iter().take(MAX_VOLUMES) {
        if found.len() == MAX_CLAIM_VOLUMES {
            break;
        }
        if let Some(volume) = claim_volume(volume)
            && !found.iter().any(|one| one.claim == volume.claim)
        {
            found.push(volume);
        }
    }
    found.into()
}

fn claim_volume(volume: &Field<'_>) -> Option<ClaimVolume> {
    let named = |path| volume.at(path).ok()?.text().ok()?;
    let data_volume = named("dataVolume.name");
    let claim = data_volume
        .or_else(|| named("persistentVolumeClaim.claimName"))
        .or_else(|| named("ephemeral.persistentVolumeClaim.claimName"))?;
    Some(ClaimVolume {
        claim: claim.parse().ok()?,
        is_data_volume: data_volume.is_some(),
    })
}

/// The hot-plugged volumes that are not ready: `status.volumeStatus` of a VMI. Those that are being
/// unplugged are not among them, nor are dumps of memory, which use the same way.
pub(super) fn plugging(object: &Field<'_>) -> Box<[PluggingVolume]> {
    let list = |path| object.at(path).and_then(|field| field.items());
    let statuses = list("status.volumeStatus").unwrap_or_default();
    let volumes = list("spec.volumes").unwrap_or_default();
    let statuses = statuses.iter().take(MAX_VOLUMES);
    let found = statuses.filter_map(|status| plugging_volume(status, &volumes));
    found.take(MAX_CLAIM_VOLUMES).collect()
}

/// `volume` is an item of `status.volumeStatus`, and `volumes` are those of the specification.
fn plugging_volume(volume: &Field<'_>, volumes: &[Field<'_>]) -> Option<PluggingVolume> {
    let has = |name| volume.get(name).is_ok_and(|field| field.is_there());
    let text = |name| volume.get(name).ok()?.text().ok()?;
    let phase = text("phase").unwrap_or_default();
    let (is_plugged, is_dump) = (has("hotplugVolume"), has("memoryDumpVolume"));
    let (said, name) = (text("message").or_else(|| text("reason")), text("name")?);
    if !is_plugged || is_dump || ["Ready", "Detaching", "UnMountedFromPod"].contains(&phase) {
        return None;
    }
    Some(PluggingVolume {
        name: bounded(name, MAX_NAME_CHARS).into(),
        phase: bounded(phase, MAX_NAME_CHARS).into(),
        said: said.map(|said| bounded(said, MAX_SAID_CHARS).into()),
        claim: claim_of(volumes, name),
    })
}

fn claim_of(volumes: &[Field<'_>], name: &str) -> Option<ClaimName> {
    let mut volumes = volumes.iter().take(MAX_VOLUMES);
    let named = |volume: &&Field<'_>| {
        let found = volume.get("name").and_then(|field| field.text());
        found.is_ok_and(|found| found == Some(name))
    };
    Some(claim_volume(volumes.find(named)?)?.claim)
}

/// When KubeVirt starts a VirtualMachine.
pub(super) fn run_strategy(object: &Field<'_>) -> Option<RunStrategy> {
    let strategy = object.at("spec.runStrategy").and_then(|field| field.text());
    if let Ok(Some(strategy)) = strategy {
        return Some(RunStrategy::of(strategy));
    }
    let running = object.at("spec.running").ok().filter(Field::is_there)?;
    match running.flag() {
        Ok(true) => Some(RunStrategy::Always),
        Ok(false) => Some(RunStrategy::Halted),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use virtfleet_wire::layered::parse_yaml;

    use super::*;

    fn read<T>(object: &Value, read: impl FnOnce(&Field<'_>) -> T) -> T {
        let parsed = parse_yaml(&object.to_string()).unwrap();
        read(&Field::top(&parsed[0]))
    }

    fn volumes(volumes: &Value) -> Vec<(String, bool)> {
        let object = json!({ "spec": { "volumes": volumes } });
        let found = read(&object, |object| claim_volumes(object, "spec.volumes"));
        let found = found.iter();
        found
            .map(|one| (one.claim.to_string(), one.is_data_volume))
            .collect()
    }

    #[test]
    fn every_source_with_a_claim_is_read() {
        let found = volumes(&json!([
            { "name": "a", "dataVolume": { "name": "root" } },
            { "name": "b", "persistentVolumeClaim": { "claimName": "data", "hotpluggable": true } },
            { "name": "c", "ephemeral": { "persistentVolumeClaim": { "claimName": "golden" } } },
            { "name": "d", "cloudInitNoCloud": { "userData": "secret" } },
            { "name": "e", "containerDisk": { "image": "i" } },
            { "name": "f", "persistentVolumeClaim": { "claimName": "root" } },
        ]));
        let expected = [("root", true), ("data", false), ("golden", false)];
        assert_eq!(
            found,
            expected.map(|(claim, is_data)| (claim.to_owned(), is_data))
        );
    }

    #[test]
    fn names_that_are_none_never_become_a_part_of_a_request() {
        for name in [
            json!("../secrets/root"),
            json!("root?watch=1"),
            json!("root/status"),
            json!("..;rm -rf"),
            json!(""),
            json!("\u{1b}[2J"),
            json!("a".repeat(254)),
            json!(7),
            json!(["root"]),
        ] {
            let found = volumes(&json!([
                { "name": "a", "dataVolume": { "name": name } },
                { "name": "b", "persistentVolumeClaim": { "claimName": name } },
            ]));
            assert_eq!(found, [], "{name}");
        }
        let many: Vec<Value> = (0..1000)
            .map(|n| json!({ "persistentVolumeClaim": { "claimName": format!("c{n}") } }))
            .collect();
        assert_eq!(volumes(&json!(many)).len(), MAX_CLAIM_VOLUMES);
        assert_eq!(volumes(&json!("none")), []);
    }

    #[test]
    fn volumes_that_are_being_plugged_in_are_kept_with_their_phases() {
        let plugged = |name: &str, phase: &str| json!({ "name": name, "phase": phase, "hotplugVolume": {} });
        let mut dump = plugged("dump", "MemoryDumpVolumeInProgress");
        dump["memoryDumpVolume"] = json!({ "claimName": "dump" });
        let mut stuck = plugged("data", "AttachedToNode");
        stuck["message"] = json!("mount failed");
        let statuses = json!([
            { "name": "root", "phase": "Ready" }, { "name": "cd", "phase": "Pending" },
            plugged("ready", "Ready"), plugged("going", "Detaching"), plugged("gone", "UnMountedFromPod"),
            dump, stuck, plugged("new", ""), plugged("later", "PhaseOfALaterVersion"), 7,
        ]);
        let volumes = json!([
            { "name": "root", "dataVolume": { "name": "root" } },
            { "name": "data", "persistentVolumeClaim": { "claimName": "disk-1" } },
            { "name": "new", "persistentVolumeClaim": { "claimName": "../x" } },
        ]);
        let object = json!({ "spec": { "volumes": volumes }, "status": { "volumeStatus": statuses } });
        let found = read(&object, plugging);
        let found: Vec<_> = found
            .iter()
            .map(|one| {
                let claim = one.claim.as_ref().map(ClaimName::as_str);
                (&*one.name, &*one.phase, one.said.as_deref(), claim)
            })
            .collect();
        let expected = [
            ("data", "AttachedToNode", Some("mount failed"), Some("disk-1")),
            ("new", "", None, None),
            ("later", "PhaseOfALaterVersion", None, None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn run_strategy_and_its_older_field_say_when_a_vm_is_started() {
        use RunStrategy::{Always, Halted, Manual, Once, Other, RerunOnFailure};
        for (spec, expected) in [
            (json!({ "runStrategy": "Halted" }), Some(Halted)),
            (json!({ "runStrategy": "Always" }), Some(Always)),
            (json!({ "runStrategy": "Manual" }), Some(Manual)),
            (json!({ "runStrategy": "RerunOnFailure" }), Some(RerunOnFailure)),
            (json!({ "runStrategy": "Once" }), Some(Once)),
            (json!({ "runStrategy": "WaitAsReceiver" }), Some(Other)),
            (json!({ "running": false }), Some(Halted)),
            (json!({ "running": true }), Some(Always)),
            (json!({ "running": "no" }), None),
            (json!({}), None),
        ] {
            assert_eq!(read(&json!({ "spec": spec }), run_strategy), expected, "{spec}");
        }
    }
}
