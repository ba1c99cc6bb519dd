//! Metric families of disks and their hardware queues.

use virtfleet_agent_core::virtio::{Disk, DiskKind, WriteCache};
use virtfleet_wire::exposition::{MetricType, Page};

use super::MAX_EXPORTED;

pub(super) fn write(page: &mut Page, disks: &[Disk]) {
    let disks = &disks[..disks.len().min(MAX_EXPORTED)];
    let mut family = page.family(
        "virtfleet_virtio_disk_info",
        "A disk with a device: its kind, driver and scheduler, always 1.",
        MetricType::Gauge,
    );
    for disk in disks {
        let labels = [
            ("disk", disk.name.as_str()),
            ("kind", kind(disk.kind)),
            ("driver", &disk.driver),
            ("scheduler", disk.scheduler.as_deref().unwrap_or_default()),
        ];
        family.sample(&labels, 1.0);
    }
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Disk) -> Option<f64>| {
        let mut family = page.family(name, help, MetricType::Gauge);
        for disk in disks {
            if let Some(value) = value(disk) {
                family.sample(&[("disk", &disk.name)], value);
            }
        }
    };
    gauge(
        "virtfleet_virtio_disk_queues",
        "Hardware queues of a disk.",
        &|disk| (!disk.queues.is_empty()).then_some(disk.queues.len() as f64),
    );
    gauge(
        "virtfleet_virtio_disk_queue_depth",
        "Maximum number of requests in each hardware queue of a disk.",
        &|disk| {
            let depths = disk.queues.iter().filter_map(|queue| queue.depth);
            depths.min().map(f64::from)
        },
    );
    gauge(
        "virtfleet_virtio_disk_write_back",
        "Whether a disk has a volatile write cache (write back), so that completed writes are durable only after a flush.",
        &|disk| {
            disk.write_cache
                .map(|cache| f64::from(u8::from(cache == WriteCache::Back)))
        },
    );
}

fn kind(kind: DiskKind) -> &'static str {
    match kind {
        DiskKind::VirtioBlk => "virtio-blk",
        DiskKind::VirtioScsi => "virtio-scsi",
        DiskKind::Nvme => "nvme",
        DiskKind::Emulated => "emulated",
        DiskKind::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::virtio::DiskQueue;

    use super::*;

    #[test]
    fn disks_with_and_without_queues() {
        let queue = |depth| DiskQueue {
            cpus: Vec::new(),
            depth,
        };
        let disks = [
            Disk {
                name: "vda".to_owned(),
                kind: DiskKind::VirtioBlk,
                driver: "virtio_blk".to_owned(),
                queues: vec![queue(None), queue(Some(256)), queue(Some(128))],
                scheduler: Some("none".to_owned()),
                write_cache: Some(WriteCache::Through),
                ..Disk::default()
            },
            Disk {
                name: "sda".to_owned(),
                ..Disk::default()
            },
        ];
        let mut page = Page::new();
        write(&mut page, &disks);
        let page = page.to_text();
        for line in [
            "info{disk=\"vda\",kind=\"virtio-blk\",driver=\"virtio_blk\",scheduler=\"none\"} 1",
            "info{disk=\"sda\",kind=\"other\",driver=\"\",scheduler=\"\"} 1",
            "queues{disk=\"vda\"} 3",
            "queue_depth{disk=\"vda\"} 128",
            "write_back{disk=\"vda\"} 0",
        ] {
            let line = format!("\nvirtfleet_virtio_disk_{line}\n");
            assert!(page.contains(&line), "{line} in {page}");
        }
        assert_eq!(page.matches("sda").count(), 1, "{page}");
    }
}
