//! Queue folders of a network interface.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use super::super::files::attributes;

/// The CPUs of one queue, as `virtio_net` spreads them: groups of adjacent CPUs; the first groups
/// have one more CPU if they do not divide evenly (kernel: `drivers/net/virtio_net.c`,
/// `virtnet_set_affinity`).
pub fn spread(online: &[u32], queues: u32, queue: u32) -> Vec<u32> {
    let (cpus, queues, queue) = (online.len(), queues.max(1) as usize, queue as usize);
    let (each, over) = (
        (cpus / queues).max(1),
        if cpus >= queues { cpus % queues } else { 0 },
    );
    let first = queue * each + queue.min(over);
    let length = each + usize::from(queue < over);
    // With more queues than CPUs, the assignment starts over.
    (first..first + length)
        .filter_map(|place| online.get(place % cpus.max(1)).copied())
        .collect()
}

/// Creates the folders of the queues in use, and removes others.
pub(super) fn queues(folder: &Path, count: u32, possible: u32, cpus: impl Fn(u32) -> Vec<u32>) -> Result<()> {
    for queue in 0..count {
        attributes(
            folder,
            &format!("queues/rx-{queue}"),
            &[("rps_cpus", "00000000,00000000")],
        )?;
        let tx = format!("queues/tx-{queue}");
        attributes(folder, &tx, &[("tx_timeout", "0")])?;
        // If only one queue is possible, `xps_cpus` exists and cannot be read.
        if possible > 1 {
            attributes(folder, &tx, &[("xps_cpus", &mask(&cpus(queue)))])?;
        }
    }
    for queue in count..possible {
        for direction in ["rx", "tx"] {
            let place = folder.join(format!("queues/{direction}-{queue}"));
            if place.exists() {
                fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// A CPU mask in the kernel's format, for 64 CPUs or more.
fn mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(0, |most| most / 32).max(1);
    let word = |number: u32| {
        let bits = cpus.iter().filter(|cpu| *cpu / 32 == number);
        format!("{:08x}", bits.fold(0_u32, |all, cpu| all | 1 << (cpu % 32)))
    };
    (0..=words).rev().map(word).collect::<Vec<_>>().join(",")
}
