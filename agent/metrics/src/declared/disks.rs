//! `disks`: the declared disks, from the state that root's reconcile runs write to
//! `/run/virtfleet/state/disks.json`, and the current health of the mounted ones.

use std::{sync::Arc, time::Duration};

use virtfleet_agent_core::disks::{
    health::StatfsResult,
    state::{DiskState, DiskStatus, DisksState},
};
use virtfleet_agent_host::{Asked, DiskHealth, Roots};
use virtfleet_agent_state::{CachedState, DISKS_STATE};
use virtfleet_wire::exposition::{MetricType, Page};

use super::disk_health::{self, Row};
use crate::{CollectError, Collector, Context, RegistryError};

/// Maximum time for filesystems to respond. Together with the collector `filesystem` this stays
/// within the scrape timeout.
const TIMEOUT: Duration = Duration::from_secs(2);

struct Disks {
    file: CachedState<DisksState>,
    roots: Roots,
    health: DiskHealth,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Disks {
        file: CachedState::new(&context.roots, &DISKS_STATE),
        health: DiskHealth::new(Arc::clone(&context.statfs), TIMEOUT),
        roots: context.roots.clone(),
    }))
}

impl Collector for Disks {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let state = self.file.get()?;
        if let Some(state) = state.filter(|state| !state.disks.is_empty()) {
            write(page, &state.disks);
            let rows = health_of(&mut self.health, &self.roots, &state.disks);
            disk_health::write(page, &rows);
        }
        Ok(())
    }
}

/// The mounted disks with their current health. If the agent has no permission, or if mounts cannot
/// be read (which the collector `filesystem` reports), the health is that of root's last reconcile
/// run.
fn health_of<'a>(health: &mut DiskHealth, roots: &Roots, disks: &'a [DiskState]) -> Vec<Row<'a>> {
    let before = |disk: &DiskState| disk.health.as_ref().map(|health| health.look.clone());
    let all: Vec<_> = disks.iter().map(Asked::from).collect();
    let results = match health.inspect(roots, &all) {
        Ok(results) => results,
        Err(error) => {
            tracing::debug!(%error, "using the health of the disks from the last reconcile run");
            disks.iter().map(before).collect()
        }
    };
    let rows = disks.iter().zip(results).filter_map(|(disk, health)| {
        let now = health?;
        let denied = now.answer == StatfsResult::Unknown;
        Some((disk, denied.then(|| before(disk)).flatten().unwrap_or(now)))
    });
    rows.collect()
}

fn write(page: &mut Page, disks: &[DiskState]) {
    let mut family = page.family(
        "virtfleet_disk_info",
        "A declared disk: its device, filesystem and mount point, always 1.",
        MetricType::Gauge,
    );
    for disk in disks {
        let labels = [
            ("name", disk.name.as_str()),
            ("device", &disk.device),
            ("serial", &disk.serial),
            ("fstype", &disk.filesystem),
            ("uuid", &disk.uuid),
            ("mountpoint", &disk.mount_point),
        ];
        family.sample(&labels, 1.0);
    }
    let mut family = page.family(
        "virtfleet_disk_state",
        "State of a declared disk: 1 for its state, 0 for the others.",
        MetricType::Gauge,
    );
    for disk in disks {
        for &standing in DiskStatus::ALL {
            let labels = [("name", disk.name.as_str()), ("state", standing.word())];
            family.sample(&labels, f64::from(u8::from(disk.standing == standing)));
        }
    }
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&DiskState) -> Option<f64>| {
        let mut family = page.family(name, help, MetricType::Gauge);
        for disk in disks {
            if let Some(value) = value(disk) {
                family.sample(&[("name", disk.name.as_str())], value);
            }
        }
    };
    gauge(
        "virtfleet_disk_ready",
        "Whether a declared disk is as declared.",
        &|disk| Some(f64::from(u8::from(disk.standing == DiskStatus::Ready))),
    );
    gauge(
        "virtfleet_disk_required",
        "Whether containerd and kubelet wait for a declared disk.",
        &|disk| Some(f64::from(u8::from(disk.required))),
    );
    gauge(
        "virtfleet_disk_refusals",
        "Reasons why the agent does not, or not completely, apply the declaration of a disk.",
        &|disk| Some(disk.refusals.len() as f64),
    );
    gauge(
        "virtfleet_disk_size_bytes",
        "Size of the device of a declared disk.",
        &|disk| (disk.size_bytes > 0).then_some(disk.size_bytes as f64),
    );
    gauge(
        "virtfleet_disk_filesystem_size_bytes",
        "Size of the filesystem of a declared disk, as reported by the filesystem's own tool.",
        &|disk| disk.filesystem_bytes.map(|bytes| bytes as f64),
    );
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::disks::health::{DiskSample, Health};
    use virtfleet_agent_host::Kernel;

    use super::*;

    #[test]
    fn without_permission_the_last_reconcile_run_is_exported() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            procfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let known = DiskSample {
            read_only: Some(true),
            ..DiskSample::default()
        };
        let with = |health| DiskState {
            health,
            ..DiskState::default()
        };
        let disks = [
            with(Some(Health {
                look: known.clone(),
                ..Health::default()
            })),
            with(None),
        ];
        let mut health = DiskHealth::new(Arc::new(Kernel), TIMEOUT);
        let rows = health_of(&mut health, &roots, &disks);
        let results: Vec<DiskSample> = rows.into_iter().map(|(_, health_of)| health_of).collect();
        assert_eq!(results, [known]);
    }
}
