//! Erases a clone: each block is compared with its recorded digest, zeroed and read back.

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
        reader::{Aligned, Bytes, CHUNK_BYTES, Failure, Limits, Reader, chunks, doubt},
    },
    claim::ClaimedClone,
    compare::{image, image_timeout},
    open::Open,
};

/// Bytes zeroed per call.
const GROUP_BYTES: u64 = 16 << 20;
/// Maximum time for udev and the kernel to remove the partitions.
const PARTITION_REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a clone was not erased completely.
#[derive(Debug, thiserror::Error)]
#[error("{} is not completely erased: {reason}; the next run continues unless something else was written to it", path.display())]
pub struct EraseError {
    pub path: PathBuf,
    pub reason: String,
}

impl Disks<'_> {
    /// Erases the image from its end to its beginning, so that the partition table is erased last;
    /// makes the kernel drop the partitions; and proves that the disk is blank. `progress` receives
    /// the bytes done and the bytes of the image.
    ///
    /// # Errors
    /// A block is neither zero nor as recorded (blocks before it are not touched), a write failed,
    /// or the disk is not blank afterwards.
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
        let reader = Reader::spawn(path.clone(), limits, limits.read, move |sender| {
            let failed = |reason: String| Failure::Doubt(doubt(reason, false));
            let file = held.reopen_to_write(&node, &device)?;
            let read = Cell::new(0);
            let mut here = Open::new(&file, device.size, sender, &read);
            zero(&file, &mut here, region, &print).map_err(failed)?;
            file.sync_all()
                .map_err(|error| failed(format!("cannot flush it to the device: {error}")))?;
            for (offset, length) in chunks(&[region]) {
                let bytes = here.read(offset, length).map_err(failed)?;
                if !clone::is_zero(&bytes) {
                    return Err(failed(format!(
                        "the MiB at byte {offset} is not zero after the erasure"
                    )));
                }
            }
            // On this open file: it carries the exclusive claim that the kernel requires.
            if let Err(error) = ioctl::reread_partitions(&file) {
                tracing::debug!(device = device.name, %error, "cannot reread the partition table");
            }
            held.exclusive = Some(file);
            Ok((held, Bytes::default()))
        })
        .map_err(|doubt| failed(doubt.reason))?;
        // Each byte of the image is read twice.
        let all = 2 * region.length;
        let (held, _) = reader
            .wait(image_timeout(id.size), &mut |done| progress(done.min(all), all))
            .map_err(|doubt| failed(doubt.reason))?;
        drop(held);
        self.forget_partitions(&id.name);
        let probed = self
            .prove(&id, kind, limits, &mut |_, _| {})
            .map_err(|doubt| failed(doubt.reason))?;
        match probed.probe {
            Probe::Blank(blank) => Ok(blank),
            Probe::HasData(content) => Err(failed(format!(
                "after the erasure it contains {:?}, first at byte {}",
                content.kind,
                content.first_byte.unwrap_or_default()
            ))),
            Probe::Unknown(doubt) => Err(failed(doubt.reason)),
        }
    }

    /// Waits until the kernel has dropped the partitions.
    fn forget_partitions(&self, name: &str) {
        let begun = Instant::now();
        while !facts::partitions(self.roots, name).is_empty() && begun.elapsed() < PARTITION_REMOVAL_TIMEOUT {
            thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Compares and zeroes group by group from the end.
fn zero(file: &File, here: &mut Open<'_>, region: Region, print: &Fingerprint) -> Result<(), String> {
    let count = region.length.div_ceil(GROUP_BYTES);
    for index in (0..count).rev() {
        let group = Region {
            offset: index * GROUP_BYTES,
            length: (region.length - index * GROUP_BYTES).min(GROUP_BYTES),
        };
        let mut used = false;
        for (offset, length) in chunks(&[group]) {
            let bytes = here.read(offset, length)?;
            let left = print.check(offset, &bytes).map_err(|foreign| {
                format!(
                    "the block at byte {} is neither zero nor as recorded when the clone was proven untouched",
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

/// Uses the device's own command where it has one (virtio-blk, SCSI); otherwise writes zeros.
fn write_zeros(file: &File, group: Region) -> Result<(), String> {
    if ioctl::zero_out(file, group.offset, group.length).is_ok() {
        return Ok(());
    }
    let mut zeros = Aligned::new();
    for (offset, length) in chunks(&[group]) {
        let length = length.min(CHUNK_BYTES);
        zeros.chunk(length).fill(0);
        file.write_all_at(zeros.chunk(length), offset)
            .map_err(|error| format!("cannot write zeros at byte {offset}: {error}"))?;
    }
    Ok(())
}
