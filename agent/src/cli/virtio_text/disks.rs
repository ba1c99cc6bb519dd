//! Disks: one line each, and the CPUs that use their queues.

use virtfleet_agent_core::virtio::{Disk, DiskKind, Machine, WriteCache, ranges};

use super::{
    super::rows::{Cell, rows, tree},
    detail::{Detail, number},
};

pub(super) fn text(machine: &Machine, detail: Detail) -> String {
    let heads: Vec<Vec<Cell>> = machine.disks.iter().map(head).collect();
    tree(&heads, machine.disks.iter().map(|disk| queues(disk, detail)))
}

fn head(disk: &Disk) -> Vec<Cell> {
    let behind = match disk.kind {
        DiskKind::Emulated => "emulated",
        _ => disk.device.as_deref().unwrap_or(&disk.address),
    };
    let depth = disk.queues.first().and_then(|queue| queue.depth);
    let depth = depth.map_or_else(String::new, |depth| format!(", depth {depth}"));
    let queues = match disk.queues.len() {
        1 => "1 queue".to_owned(),
        count => format!("{count} queues"),
    };
    let cache = match disk.write_cache {
        Some(WriteCache::Back) => "write back",
        Some(WriteCache::Through) => "write through",
        None => "",
    };
    let busy = disk
        .in_flight
        .map(|(reads, writes)| format!("{reads} reads, {writes} writes in flight"));
    let scheduler = disk.scheduler.as_ref().map(|name| format!("scheduler {name}"));
    vec![
        disk.name.as_str().into(),
        disk.driver.as_str().into(),
        behind.into(),
        format!("{} MiB", disk.bytes >> 20).into(),
        format!("{queues}{depth}").into(),
        scheduler.unwrap_or_default().into(),
        cache.into(),
        if disk.read_only { "read-only" } else { "" }.into(),
        busy.unwrap_or_default().into(),
    ]
}

fn queues(disk: &Disk, detail: Detail) -> String {
    if !detail.each(disk.queues.len()) {
        return String::new();
    }
    let head = ["QUEUE", "CPUS", "DEPTH"].map(Cell::from).to_vec();
    let lines = disk.queues.iter().enumerate().map(|(index, queue)| {
        vec![
            index.to_string().into(),
            ranges(&queue.cpus).into(),
            number(queue.depth.map(u64::from)),
        ]
    });
    rows(4, &std::iter::once(head).chain(lines).collect::<Vec<_>>())
}
