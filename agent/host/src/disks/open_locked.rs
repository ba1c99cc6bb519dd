//! Locks and opens the device of an order.
//!
//! ```text
//! whole disk: flock(disk) ▶ open(disk, O_EXCL)
//! partition:  flock(disk) ▶ sync(disk) ▶ open(partition, O_EXCL)
//! ```

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, sync::mpsc::SyncSender};

use virtfleet_agent_core::disks::{Partition, WriteMark};

use super::{
    held::{Held, LastClose},
    identity, ioctl,
    read_failure::{Failure, doubt},
    reader_message::{Message, Order, send},
    uses, writes,
};

/// Locks and opens the device of an order.
pub(super) fn open(order: &Order, sender: &SyncSender<Message>) -> Result<Held, Failure> {
    let path = &order.path;
    let failed = |what: &str, error: io::Error| {
        let passing = uses::is_busy(&error);
        let reason = if passing {
            format!(
                "{} is in use: the kernel refuses exclusive access",
                path.display()
            )
        } else {
            format!("cannot {what} {}: {error}", path.display())
        };
        Failure::Doubt(doubt(reason, passing))
    };
    let another = |error| Failure::Doubt(doubt(format!("{} {error}", path.display()), true));
    let with = |flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let lock = with(ioctl::DIRECT).map_err(|error| failed("open", error))?;
    let partition = order.id.partition.as_ref();
    let whole = partition
        .map(|partition| lock_disk(order, partition))
        .transpose()?;
    if whole.is_none() {
        lock.lock().map_err(|error| failed("lock", error))?;
    }
    send(sender, Message::Locked)?;
    if let Some(LastClose(Some(disk))) = &whole {
        // A direct read of the partition does not see what processes have written through the disk.
        // Mounted neighbor partitions do not matter: the disk's node has its own page cache.
        disk.sync_all()
            .map_err(|error| failed("write out the disk of", error))?;
    }
    identity::check(&lock, &order.id).map_err(another)?;
    let exclusive = if order.exclusive {
        let file = with(ioctl::EXCLUSIVE).map_err(|error| failed("open", error))?;
        identity::check(&file, &order.id).map_err(another)?;
        Some(file)
    } else {
        None
    };
    let last = LastClose::of(&lock).map_err(|error| failed("open", error))?;
    send(sender, Message::Opened)?;
    let mark = match &exclusive {
        Some(file) => {
            writes::mark(&order.roots, &order.id, file).map_err(|error| failed("write out", error))?
        }
        None => WriteMark::default(),
    };
    Ok(Held {
        lock,
        exclusive,
        mark,
        whole,
        _last: last,
    })
}

/// Opens a partition's disk and locks it.
fn lock_disk(order: &Order, partition: &Partition) -> Result<LastClose, Failure> {
    let name = partition.disk.rsplit('/').next().unwrap_or_default();
    let path = order.path.with_file_name(name);
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::Doubt(doubt(format!("cannot {what} {}: {error}", path.display()), true))
    };
    let disk = OpenOptions::new()
        .read(true)
        .custom_flags(ioctl::DIRECT)
        .open(&path)
        .map_err(|error| failed("open", &error))?;
    disk.lock().map_err(|error| failed("lock", &error))?;
    identity::check_disk(&disk, partition.disk_number, order.id.diskseq)
        .map_err(|error| Failure::Doubt(doubt(format!("{} {error}", path.display()), true)))?;
    Ok(LastClose(Some(disk)))
}
