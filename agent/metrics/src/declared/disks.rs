//! `disks`: the declared disks, from the state that root's passes leave in `/run/virtfleet/state/disks.json`; and how those in their places are doing,
//! looked at now.

use std::{sync::Arc, time::Duration};

use virtfleet_agent_core::disks::{
    health::Answer,
    state::{DiskState, DisksState, Standing},
};
use virtfleet_agent_host::{Asked, DiskHealth, Roots};
use virtfleet_agent_state::{CachedState, DISKS_STATE};
use virtfleet_wire::exposition::{MetricType, Page};

use super::disk_health::{self, Row};
use crate::{CollectError, Collector, Context, RegistryError};

/// How long filesystems may take to answer. Together with those of the collector `filesystem` they stay within a scrape's time.
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
            let rows = look(&mut self.health, &self.roots, &state.disks);
            disk_health::write(page, &rows);
        }
        Ok(())
    }
}

/// The disks that are in their places, as they are now; as the last pass of root saw them where the agent may not ask, and where mounts cannot be
/// read, which the collector `filesystem` says.
fn look<'a>(health: &mut DiskHealth, roots: &Roots, disks: &'a [DiskState]) -> Vec<Row<'a>> {
    let before = |disk: &DiskState| disk.health.as_ref().map(|health| health.look.clone());
    let all: Vec<_> = disks.iter().map(Asked::from).collect();
    let looks = match health.look(roots, &all) {
        Ok(looks) => looks,
        Err(error) => {
            tracing::debug!(%error, "how the disks are doing is told as of the last pass");
            disks.iter().map(before).collect()
        }
    };
    let rows = disks.iter().zip(looks).filter_map(|(disk, look)| {
        let now = look?;
        let denied = now.answer == Answer::Unknown;
        Some((disk, denied.then(|| before(disk)).flatten().unwrap_or(now)))
    });
    rows.collect()
}

fn write(page: &mut Page, disks: &[DiskState]) {
    let mut family = page.family(
        "virtfleet_disk_info",
        "A declared disk: what it is and where it belongs, always 1.",
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
        "How a declared disk stands: 1 for its state, 0 for the others.",
        MetricType::Gauge,
    );
    for disk in disks {
        for standing in Standing::ALL {
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
        "Whether a declared disk is as asked for.",
        &|disk| Some(f64::from(u8::from(disk.standing == Standing::Ready))),
    );
    gauge(
        "virtfleet_disk_required",
        "Whether containerd and kubelet wait for a declared disk.",
        &|disk| Some(f64::from(u8::from(disk.required))),
    );
    gauge(
        "virtfleet_disk_refusals",
        "Reasons for which nothing, or not all, is done to a declared disk.",
        &|disk| Some(disk.refusals.len() as f64),
    );
    gauge(
        "virtfleet_disk_size_bytes",
        "Size of the device of a declared disk.",
        &|disk| (disk.size_bytes > 0).then_some(disk.size_bytes as f64),
    );
    gauge(
        "virtfleet_disk_filesystem_size_bytes",
        "Size of the filesystem of a declared disk, as its own tool says it.",
        &|disk| disk.filesystem_bytes.map(|bytes| bytes as f64),
    );
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::disks::health::{Health, Look};
    use virtfleet_agent_host::Kernel;

    use super::*;

    #[test]
    fn where_nothing_can_be_asked_the_last_pass_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            procfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let known = Look {
            read_only: Some(true),
            ..Look::default()
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
        let rows = look(&mut health, &roots, &disks);
        let looks: Vec<Look> = rows.into_iter().map(|(_, look)| look).collect();
        assert_eq!(looks, [known]);
    }
}
