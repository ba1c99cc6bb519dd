//! KubeVirt's downward metrics in a guest: a disk in the format of vhostmd, and a virtio-serial
//! port.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::wait::eventually;

/// Size of the disk in bytes.
pub(super) const DISK_SIZE: u64 = 256 * 1024;
/// Space that KubeVirt leaves for the XML: 24 bytes less than the disk.
const BODY: usize = 256 * 1024 - 24;

/// The disk's first bytes: `mvbd`, a flag that is 0 when no write is in progress, the sum of the
/// text's bytes and its length (4 bytes each, big endian), then the text.
pub(super) fn disk(xml: &str) -> Result<Vec<u8>> {
    ensure!(
        xml.len() <= BODY,
        "downward metrics of {} bytes: {BODY} at most",
        xml.len()
    );
    let sum = xml
        .bytes()
        .fold(0_u32, |sum, byte| sum.wrapping_add(u32::from(byte)));
    let length = u32::try_from(xml.len()).context("length of downward metrics")?;
    let mut bytes = b"mvbd".to_vec();
    for number in [0, sum, length] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(xml.bytes());
    Ok(bytes)
}

/// Serves the host's end of the port until QEMU closes it. `GET /metrics/XML` and an empty line
/// return the text and an empty line, anything else returns `INVALID REQUEST`.
pub(super) fn serve(socket: &Path, xml: String) -> Result<()> {
    let stream = eventually(Duration::from_secs(20), "the port of downward metrics", || {
        UnixStream::connect(socket).with_context(|| format!("connect to {}", socket.display()))
    })?;
    let mut writer = stream.try_clone().context("second handle of a socket")?;
    thread::spawn(move || {
        let mut lines = BufReader::new(stream).lines();
        while let (Some(Ok(request)), Some(Ok(end))) = (lines.next(), lines.next()) {
            let request = request.trim_end();
            let answer = if request.starts_with("GET /metrics/XML") && end.trim_end().is_empty() {
                format!("{xml}\n\n")
            } else {
                "INVALID REQUEST\n\n".to_owned()
            };
            if writer.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_begins_with_its_header() {
        let bytes = disk("<a/>").unwrap();
        // 0x3c + 0x61 + 0x2f + 0x3e = 0x10a.
        assert_eq!(bytes, b"mvbd\0\0\0\0\0\0\x01\x0a\0\0\0\x04<a/>");
        disk(&"x".repeat(256 * 1024)).unwrap_err();
    }
}
