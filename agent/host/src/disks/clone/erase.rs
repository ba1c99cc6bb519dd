//! Erases a clone: every block is compared with what was recorded, zeroed, and read back.

use std::{
    cell::Cell,
    fs::File,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{
    Blankness, Probe, Region,
    clone::{self, Fingerprint, Source as _},
};

use super::{
    super::{
        Disks, facts, ioctl,
        reader::{Aligned, Bytes, CHUNK, Failure, Limits, Reader, chunks, doubt},
    },
    claim::ClaimedClone,
    look::{image, patience},
    open::Open,
};

/// Bytes that are zeroed with one call.
const GROUP: u64 = 16 << 20;
/// How long udev and the kernel may take to take the partitions away.
const PARTITIONS_GO: Duration = Duration::from_secs(10);

/// Why a clone was not erased, or not to its end.
#[derive(Debug, thiserror::Error)]
#[error("{} is not erased to its end: {reason}; the next run goes on when nothing else was written to it", path.display())]
pub struct EraseError {
    /// The device.
    pub path: PathBuf,
    /// What happened.
    pub reason: String,
}

impl Disks<'_> {
    /// Erases the image from its end to its beginning, so that the partition table goes last; lets the kernel forget the partitions; and
    /// proves that the disk is blank. `progress` receives bytes done and bytes of the image.
    ///
    /// # Errors
    /// A block that is neither zero nor as recorded, and what is before it is not touched; a write that failed; something that is left.
    pub fn erase_clone(
        &self,
        claimed: ClaimedClone,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Blankness, EraseError> {
        let ClaimedClone {
            mut held,
            path,
            id,
            proof,
            print,
            kind,
        } = claimed;
        let failed = |reason: String| EraseError {
            path: path.clone(),
            reason,
        };
        let region = image(id.size, proof.image_bytes);
        let (node, device) = (path.clone(), id.clone());
        let limits = Limits::default();
        let reader = Reader::spawn(path.clone(), limits, limits.read, move |say| {
            let failed = |reason: String| Failure::Doubt(doubt(reason, false));
            let file = held.reopen_to_write(&node, &device)?;
            let read = Cell::new(0);
            let mut here = Open::new(&file, device.size, say, &read);
            zero(&file, &mut here, region, &print).map_err(failed)?;
            file.sync_all()
                .map_err(|error| failed(format!("cannot write it out: {error}")))?;
            for (offset, length) in chunks(&[region]) {
                let bytes = here.read(offset, length).map_err(failed)?;
                if !clone::is_zero(&bytes) {
                    return Err(failed(format!(
                        "the MiB at byte {offset} is not zero after it was erased"
                    )));
                }
            }
            // On this open: it carries the exclusive claim that the kernel wants.
            if let Err(error) = ioctl::reread_partitions(&file) {
                tracing::debug!(device = device.name, %error, "the partition table was not read again");
            }
            held.exclusive = Some(file);
            Ok((held, Bytes::default()))
        })
        .map_err(|doubt| failed(doubt.reason))?;
        // Each byte of the image is read twice.
        let all = 2 * region.length;
        let (held, _) = reader
            .wait(patience(id.size), &mut |done| progress(done.min(all), all))
            .map_err(|doubt| failed(doubt.reason))?;
        drop(held);
        self.forget_partitions(&id.name);
        let looked = self
            .prove(&id, kind, limits, &mut |_, _| {})
            .map_err(|doubt| failed(doubt.reason))?;
        match looked.probe {
            Probe::Blank(blank) => Ok(blank),
            Probe::HasData(content) => Err(failed(format!(
                "after it was erased there is {:?} on it, first at byte {}",
                content.kind,
                content.first_byte.unwrap_or_default()
            ))),
            Probe::Unknown(doubt) => Err(failed(doubt.reason)),
        }
    }

    /// Waits until the kernel has no partitions on it.
    fn forget_partitions(&self, name: &str) {
        let begun = Instant::now();
        while !facts::partitions(self.roots, name).is_empty() && begun.elapsed() < PARTITIONS_GO {
            thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Compares and zeroes group by group, from the end.
fn zero(file: &File, here: &mut Open<'_>, region: Region, print: &Fingerprint) -> Result<(), String> {
    let count = region.length.div_ceil(GROUP);
    for index in (0..count).rev() {
        let group = Region {
            offset: index * GROUP,
            length: (region.length - index * GROUP).min(GROUP),
        };
        let mut used = false;
        for (offset, length) in chunks(&[group]) {
            let bytes = here.read(offset, length)?;
            let left = print.check(offset, &bytes).map_err(|foreign| {
                format!(
                    "the block at byte {} is neither zero nor as it was when the clone was proven untouched",
                    foreign.offset
                )
            })?;
            used |= left > 0;
        }
        if used {
            write_zeros(file, group)?;
        }
    }
    Ok(())
}

/// By the device itself where it can (virtio-blk and SCSI have a command for it), else by writing.
fn write_zeros(file: &File, group: Region) -> Result<(), String> {
    if ioctl::zero_out(file, group.offset, group.length).is_ok() {
        return Ok(());
    }
    let mut zeros = Aligned::new();
    for (offset, length) in chunks(&[group]) {
        let length = length.min(CHUNK);
        zeros.chunk(length).fill(0);
        file.write_all_at(zeros.chunk(length), offset)
            .map_err(|error| format!("cannot write zeros at byte {offset}: {error}"))?;
    }
    Ok(())
}
