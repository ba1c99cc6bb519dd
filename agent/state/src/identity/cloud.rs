//! Fields from cloud-init. cloud-init's processed instance data take precedence over its raw data
//! sources.

use virtfleet_agent_core::identity::cloud::{Seed, config_drive, datasource, instance_data, nocloud, plain};
use virtfleet_wire::{
    identity::{Identity, Sourced},
    layered::YamlError,
};

use super::field_reader::{FieldReader, GuestFile, MAX_FILE_BYTES, MAX_INSTANCE_DATA_BYTES};

type Parse = fn(&str) -> Result<Seed, YamlError>;

/// Highest precedence first. `instance-data-sensitive.json` is never read because it contains
/// user-data.
const SEEDS: [(&str, usize, Parse); 5] = [
    (
        "/run/cloud-init/instance-data.json",
        MAX_INSTANCE_DATA_BYTES,
        instance_data,
    ),
    ("/var/lib/cloud/seed/nocloud/meta-data", MAX_FILE_BYTES, nocloud),
    (
        "/var/lib/cloud/seed/nocloud-net/meta-data",
        MAX_FILE_BYTES,
        nocloud,
    ),
    (
        "/var/lib/cloud/seed/config_drive/openstack/latest/meta_data.json",
        MAX_FILE_BYTES,
        config_drive,
    ),
    (
        "/var/lib/cloud/seed/config_drive/openstack/2012-08-10/meta_data.json",
        MAX_FILE_BYTES,
        config_drive,
    ),
];

pub(super) fn fill(identity: &mut Identity, reader: &mut FieldReader<'_>) {
    let mut seeds: Vec<(&str, Seed)> = Vec::new();
    let mut reasons = Vec::new();
    for (path, cap, parse) in SEEDS {
        let read = GuestFile::Root(path)
            .read(reader.roots, cap)
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
    let without_value = |reasons: &[String]| {
        let without_value = seeds.iter().map(|(path, _)| format!("{path}: no value"));
        reasons.iter().cloned().chain(without_value).collect::<Vec<_>>()
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
            reader.miss(field, without_value(&reasons));
        }
    }
    if identity.instance_id.is_none() {
        let last = GuestFile::Root("/var/lib/cloud/data/instance-id");
        match reader.attempt(last, plain) {
            Ok(id) => identity.instance_id = Some(id),
            Err(reason) => {
                let mut reasons = without_value(&reasons);
                reasons.push(reason);
                reader.miss("instanceId", reasons);
            }
        }
    }
    if identity.cloud_platform.is_none() {
        let last = GuestFile::Root("/var/lib/cloud/instance/datasource");
        match reader.attempt(last, datasource) {
            Ok(platform) => identity.cloud_platform = Some(platform),
            Err(reason) => {
                let mut reasons = without_value(&reasons);
                reasons.push(reason);
                reader.miss("cloudPlatform", reasons);
            }
        }
    }
}
