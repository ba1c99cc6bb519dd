//! A device that is locked and open, and how it comes to be so.
//!
//! ```text
//! whole disk: flock(disk) ▶ open(disk, O_EXCL)
//! partition:  flock(disk) ▶ sync(disk) ▶ open(partition, O_EXCL)
//! ```

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::mpsc::{SyncSender, sync_channel},
    thread,
    time::Duration,
};

use virtfleet_agent_core::disks::{DeviceId, Partition, WriteMark};

use super::{
    identity, ioctl,
    reader::{Failure, Message, Order, doubt, tell},
    uses, writes,
};

/// How long the last close of a device may take.
const CLOSE: Duration = Duration::from_secs(5);

/// The open device.
#[derive(Debug)]
pub(super) struct Held {
    /// The device. Of a whole disk it carries the lock (flock(2), as `BLOCK_DEVICE_LOCKING` of
    /// systemd has it).
    pub(super) lock: File,
    /// Carries the kernel's exclusive claim; none when the device is known to be in use.
    pub(super) exclusive: Option<File>,
    /// The write counters when it was opened, before the first read; or, after
    /// [`super::reader::Reader::mark`], of that moment. Taken only with the exclusive claim.
    pub(super) mark: WriteMark,
    /// Of a partition: its disk, which carries the lock.
    pub(super) whole: Option<Last>,
    /// Behind those, so that it is closed last.
    _last: Last,
}

/// The lock's file once more. The last close of a device waits in the kernel for every read that is
/// under way, others' too, so it is left to a thread, and waited for no longer than a healthy disk
/// takes.
#[derive(Debug)]
pub(super) struct Last(pub(super) Option<File>);

impl Last {
    fn of(lock: &File) -> io::Result<Self> {
        Ok(Self(Some(lock.try_clone()?)))
    }
}

impl Held {
    /// The file that carries the lock: the disk's for a partition, which a tool inherits, so that
    /// the lock outlives this process.
    pub(super) fn locked(&self) -> &File {
        let whole = self.whole.as_ref().and_then(|Last(file)| file.as_ref());
        whole.unwrap_or(&self.lock)
    }

    /// Passes the exclusive claim from the open for reading to one for writing. In between another
    /// process can open the device, so what is on it has to be read again on the new file.
    ///
    /// # Errors
    /// It cannot be opened, or is another device by now. The claim is gone then.
    pub(super) fn reopen_to_write(&mut self, path: &Path, id: &DeviceId) -> Result<File, Failure> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Failure::Doubt(doubt(format!("{what} {}: {error}", path.display()), false))
        };
        drop(self.exclusive.take());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(ioctl::EXCLUSIVE)
            .open(path)
            .map_err(|error| failed("cannot open to write", &error))?;
        identity::check(&file, id).map_err(|error| failed("another device is at", &error))?;
        Ok(file)
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let file = self.0.take();
        let (say, closed) = sync_channel(1);
        let close = move || {
            drop(file);
            say.send(()).ok();
        };
        // Without a thread it is closed here.
        if thread::Builder::new()
            .name("disk-close".to_owned())
            .spawn(close)
            .is_ok()
        {
            closed.recv_timeout(CLOSE).ok();
        }
    }
}

/// Locks and opens the device of an order.
pub(super) fn open(order: &Order, say: &SyncSender<Message>) -> Result<Held, Failure> {
    let path = &order.path;
    let failed = |what: &str, error: io::Error| {
        let passing = uses::is_busy(&error);
        let reason = if passing {
            format!(
                "{} is in use: the kernel does not give it exclusively",
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
    tell(say, Message::Locked)?;
    if let Some(Last(Some(disk))) = &whole {
        // A direct read of the partition does not see what processes have written through the disk.
        // Mounted neighbours do not matter: the disk's node has a page cache of its own.
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
    let last = Last::of(&lock).map_err(|error| failed("open", error))?;
    tell(say, Message::Opened)?;
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

/// Opens the disk of a partition and locks it.
fn lock_disk(order: &Order, partition: &Partition) -> Result<Last, Failure> {
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
    Ok(Last(Some(disk)))
}
