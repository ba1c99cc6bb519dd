//! Reads the claims and DataVolumes of the VMs that wait for them. Nothing is watched or listed.
//!
//! ```text
//! fleet: which VMs wait ─ few each round ─▶ requests by name ─▶ fleet: health of these VMs
//! ```
//! - What is read, and when, is decided in `virtfleet_collector_core::volumes`.
//! - Names come from the specification of the VM, in its own namespace, and are valid names.
//! - A right that is missing, and a cluster without CDI, are answers as any other.

mod objects;
mod request;

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use kube::Client;
use virtfleet_collector_core::volumes::{ReadVolume, ReadVolumes, VolumesToRead};

pub use self::objects::{claim_state, data_volume_state};
use self::request::{read_claim, read_data_volume};
use crate::{fleet::Fleet, leader::WriteAccess};

const ROUND_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum requests of a round for VMs that wait. A VM needs at most 16, most VMs need one or two.
const MAX_REQUESTS_PER_ROUND: usize = 32;
/// Maximum VMs that are read at the same time.
const MAX_CONCURRENT_VMS: usize = 4;

/// Reads the volumes of the VMs of `fleet` that wait for them, until it is dropped; while no other
/// process leads, also the claims of those that run. With `is_namespaced`, the collector has its
/// rights in some namespaces only.
pub(crate) async fn run(
    fleet: Arc<Fleet>,
    client: Client,
    write_access: WriteAccess,
    is_namespaced: bool,
) -> anyhow::Result<()> {
    let manifest = if is_namespaced {
        "namespaced/rbac.yaml"
    } else {
        "infra/rbac.yaml"
    };
    let mut rounds = tokio::time::interval(ROUND_INTERVAL);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let leads = write_access.led_by_another().is_none();
        let due = fleet.change(|index| index.take_volumes_to_read(MAX_REQUESTS_PER_ROUND, leads));
        let read = stream::iter(due).map(|one| async {
            let volumes = read(&client, &one).await;
            (one.vm, volumes)
        });
        let mut read = read.buffer_unordered(MAX_CONCURRENT_VMS);
        while let Some((vm, volumes)) = read.next().await {
            // The fleet sets the time.
            let volumes = ReadVolumes {
                at_ms: 0,
                volumes,
                manifest,
            };
            fleet.change(|index| index.record_volumes(&vm, volumes));
        }
    }
}

/// Reads the volumes of one VM, one request after the other.
async fn read(client: &Client, one: &VolumesToRead) -> Box<[ReadVolume]> {
    let namespace = &one.vm.namespace;
    let mut read = Vec::with_capacity(one.volumes.len());
    for volume in &one.volumes {
        let claim = read_claim(client, namespace, &volume.claim).await;
        let data_volume = if volume.is_data_volume {
            Some(read_data_volume(client, namespace, &volume.claim).await)
        } else {
            None
        };
        read.push(ReadVolume::new(volume.clone(), claim, data_volume));
    }
    read.into()
}
