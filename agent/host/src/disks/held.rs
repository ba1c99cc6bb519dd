//! A locked and open device, and how it is closed.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::mpsc::sync_channel,
    thread,
    time::Duration,
};

use virtfleet_agent_core::disks::{DeviceId, WriteMark};

use super::{
    identity, ioctl,
    read_failure::{Failure, doubt},
};

/// Maximum time to wait for the last close of a device.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A locked and open device.
#[derive(Debug)]
pub(super) struct Held {
    /// The whole disk's open file carries the lock (flock(2), as systemd's `BLOCK_DEVICE_LOCKING`
    /// describes).
    pub(super) lock: File,
    /// Carries the kernel's exclusive claim. `None` if the device is known to be in use.
    pub(super) exclusive: Option<File>,
    /// The write counters when the device was opened, before the first read; or at the last
    /// [`super::reader::Reader::mark`]. Taken only with the exclusive claim.
    pub(super) mark: WriteMark,
    /// For a partition: its disk, which carries the lock.
    pub(super) whole: Option<LastClose>,
    /// Declared after the other files, so that it is closed last.
    pub(super) _last: LastClose,
}

/// A duplicate of the lock's file. The last close of a device waits in the kernel for all reads in
/// progress, also those of other processes. A thread performs it, and the drop waits for the thread
/// only as long as a healthy disk needs.
#[derive(Debug)]
pub(super) struct LastClose(pub(super) Option<File>);

impl LastClose {
    pub(super) fn of(lock: &File) -> io::Result<Self> {
        Ok(Self(Some(lock.try_clone()?)))
    }
}

impl Held {
    /// The file that carries the lock (for a partition, its disk's). A tool inherits it, so that
    /// the lock outlives this process.
    pub(super) fn locked(&self) -> &File {
        let whole = self.whole.as_ref().and_then(|LastClose(file)| file.as_ref());
        whole.unwrap_or(&self.lock)
    }

    /// Moves the exclusive claim from the file opened for reading to one opened for writing.
    /// Another process can open the device in between, so its content must be read again on the new
    /// file.
    ///
    /// # Errors
    /// The device cannot be opened or is a different one. The claim is lost then.
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
        identity::check(&file, id).map_err(|error| failed("a different device is at", &error))?;
        Ok(file)
    }
}

impl Drop for LastClose {
    fn drop(&mut self) {
        let file = self.0.take();
        let (sender, closed) = sync_channel(1);
        let close = move || {
            drop(file);
            sender.send(()).ok();
        };
        // If no thread can be started, the file is closed here.
        if thread::Builder::new()
            .name("disk-close".to_owned())
            .spawn(close)
            .is_ok()
        {
            closed.recv_timeout(CLOSE_TIMEOUT).ok();
        }
    }
}
