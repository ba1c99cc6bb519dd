//! cloud-init's fields: what cloud-init made of its data source comes before the data source itself.

use virtfleet_agent_core::identity::cloud::{Seed, config_drive, datasource, instance_data, nocloud, plain};
use virtfleet_wire::{
    identity::{Identity, Sourced},
    layered::YamlError,
};

use super::look::{At, LARGE, Look, SMALL};

type Parse = fn(&str) -> Result<Seed, YamlError>;

/// Strongest first. `instance-data-sensitive.json` is never read: it holds user-data.
const SEEDS: [(&str, usize, Parse); 5] = [
    ("/run/cloud-init/instance-data.json", LARGE, instance_data),
    ("/var/lib/cloud/seed/nocloud/meta-data", SMALL, nocloud),
    ("/var/lib/cloud/seed/nocloud-net/meta-data", SMALL, nocloud),
    (
        "/var/lib/cloud/seed/config_drive/openstack/latest/meta_data.json",
        SMALL,
        config_drive,
    ),
    (
        "/var/lib/cloud/seed/config_drive/openstack/2012-08-10/meta_data.json",
        SMALL,
        config_drive,
    ),
];

pub(super) fn fill(identity: &mut Identity, look: &mut Look<'_>) {
    let mut seeds: Vec<(&str, Seed)> = Vec::new();
    let mut reasons = Vec::new();
    for (path, cap, parse) in SEEDS {
        let read = At::Root(path)
            .read(look.roots, cap)
            .map_err(|error| error.to_string());
        match read.and_then(|text| parse(&text).map_err(|error| error.to_string())) {
            Ok(seed) => seeds.push((path, seed)),
            Err(reason) => reasons.push(format!("{path}: {reason}")),
        }
    }
    let pick = |field: fn(&Seed) -> &Option<String>| {
        seeds
            .iter()
            .find_map(|(path, seed)| Some(Sourced::new(field(seed).clone()?, *path)))
    };
    let silent = |reasons: &[String]| {
        let silent = seeds.iter().map(|(path, _)| format!("{path}: says nothing"));
        reasons.iter().cloned().chain(silent).collect::<Vec<_>>()
    };

    identity.instance_id = pick(|seed| &seed.instance_id);
    identity.local_hostname = pick(|seed| &seed.local_hostname);
    identity.instance_type = pick(|seed| &seed.instance_type);
    identity.cloud_platform = pick(|seed| &seed.platform);
    for (field, value) in [
        ("localHostname", &identity.local_hostname),
        ("instanceType", &identity.instance_type),
    ] {
        if value.is_none() {
            look.miss(field, silent(&reasons));
        }
    }
    if identity.instance_id.is_none() {
        let last = At::Root("/var/lib/cloud/data/instance-id");
        match look.attempt(last, plain) {
            Ok(id) => identity.instance_id = Some(id),
            Err(reason) => {
                let mut reasons = silent(&reasons);
                reasons.push(reason);
                look.miss("instanceId", reasons);
            }
        }
    }
    if identity.cloud_platform.is_none() {
        let last = At::Root("/var/lib/cloud/instance/datasource");
        match look.attempt(last, datasource) {
            Ok(platform) => identity.cloud_platform = Some(platform),
            Err(reason) => {
                let mut reasons = silent(&reasons);
                reasons.push(reason);
                look.miss("cloudPlatform", reasons);
            }
        }
    }
}
