//! Reads which claims back the volumes of a VM, and when KubeVirt starts it.
//!
//! An invalid value counts as absent: it must not hide the VM.

use virtfleet_collector_core::{
    facts::RunStrategy,
    volumes::{ClaimVolume, MAX_CLAIM_VOLUMES},
};

use super::field::Field;

/// Maximum volumes of a VM that are searched for claims.
const MAX_VOLUMES: usize = 256;

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
