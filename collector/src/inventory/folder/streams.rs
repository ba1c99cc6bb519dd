//! What the folder says about the streams of user clusters: `spec.mla`, and the Secrets that it
//! names.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use virtfleet_wire::ids::ClusterName;

use super::scope::{ManifestScope, scope};
use crate::{
    inventory::read::ManifestSecret,
    mla::settings::{SecretLookup, TenantMla, parse_spec},
    objects::{InfraSecretRef, MlaSpec},
};

/// What is known of the stream of each user cluster that has one.
pub(super) type FolderStreams = BTreeMap<ClusterName, TenantMla>;

/// A Secret in the folder of a user cluster matches a reference by its name, and by its namespace
/// if the manifest has one. Of several, the first file by path is used.
fn is_referenced(at: &InfraSecretRef, secret: &ManifestSecret) -> bool {
    let namespace = secret.namespace.as_ref();
    at.name == secret.name && namespace.is_none_or(|namespace| *namespace == at.namespace)
}

/// Joins each `spec.mla` with the Secrets that it names, by user cluster.
pub(super) fn streams<'a>(
    specs: impl Iterator<Item = (&'a ClusterName, &'a Value)>,
    secrets: impl Iterator<Item = (ClusterName, &'a Vec<(usize, ManifestSecret)>)>,
) -> FolderStreams {
    let mut by_cluster: BTreeMap<ClusterName, Vec<&ManifestSecret>> = BTreeMap::new();
    for (cluster, found) in secrets {
        let found = found.iter().map(|(_, secret)| secret);
        by_cluster.entry(cluster).or_default().extend(found);
    }
    let known = specs.map(|(cluster, mla)| {
        let spec = parse_spec(mla);
        let named = spec.as_ref().map(MlaSpec::secrets).unwrap_or_default();
        let there = by_cluster.get(cluster).map(Vec::as_slice).unwrap_or_default();
        let lookups = named.into_iter().map(|at| {
            let found = there.iter().find(|secret| is_referenced(&at, secret));
            let lookup = found.map_or(SecretLookup::Absent, |secret| {
                SecretLookup::Found(secret.values.clone())
            });
            (at, lookup)
        });
        let secrets = lookups.collect();
        (cluster.clone(), TenantMla { spec, secrets })
    });
    known.collect()
}

/// Whether the `spec.mla` of the user cluster of this file names the Secret.
pub(super) fn is_named(streams: &FolderStreams, path: &Path, secret: &ManifestSecret) -> bool {
    let Ok(ManifestScope::Cluster(cluster)) = scope(path) else {
        return false;
    };
    let stream = streams.get(&cluster);
    stream.is_some_and(|known| known.secrets.keys().any(|at| is_referenced(at, secret)))
}
