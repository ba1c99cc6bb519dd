//! Zeroes what the agent's own unfinished `mkfs` left.

use std::{os::unix::fs::FileExt as _, path::Path};

use virtfleet_agent_core::disks::{DeviceId, Doubt, clone::is_zero};

use super::{
    reader::{Aligned, Bytes, Failure, Held, Limits, Message, Reader, chunks, doubt, read_all, send},
    remains::Judge,
};

/// Zeroes the regions of the judge, the last one first, and syncs them. Each piece is read before,
/// and a foreign byte ends the run with an error.
pub(super) fn write(
    mut held: Held,
    path: &Path,
    id: &DeviceId,
    mut judge: Judge,
    limits: Limits,
) -> Result<Held, Doubt> {
    let (node, id) = (path.to_owned(), id.clone());
    let reader = Reader::spawn(path.to_owned(), limits, limits.read, move |sender| {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Failure::Doubt(doubt(format!("{what} {}: {error}", node.display()), false))
        };
        let file = held.reopen_to_write(&node, &id)?;
        let mut buffer = Aligned::new();
        let mut zeros = Aligned::new();
        let mut done = 0;
        for (offset, length) in chunks(&judge.regions.clone()).rev() {
            let chunk = buffer.chunk(length);
            read_all(&file, chunk, offset)?;
            if let Some(at) = judge.foreign(offset, chunk)? {
                let reason = format!("the byte at {at} is not from the agent's own interrupted tool");
                return Err(Failure::Doubt(doubt(reason, false)));
            }
            if !is_zero(chunk) {
                file.write_all_at(zeros.chunk(length), offset)
                    .map_err(|error| failed("cannot write zeros to", &error))?;
            }
            done += length as u64;
            send(sender, Message::Read(done))?;
        }
        file.sync_all()
            .map_err(|error| failed("cannot write out", &error))?;
        held.exclusive = Some(file);
        Ok((held, Bytes::default()))
    })?;
    Ok(reader.wait(limits.all, &mut |_| {})?.0)
}
