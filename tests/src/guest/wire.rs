//! Newline-delimited JSON over a unix socket, as used by QMP and the guest agent.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::wait::eventually;

/// The byte that resets the guest agent's parser. It cannot occur in UTF-8 text.
pub(super) const RESYNC: u8 = 0xff;

/// Text of the error after the peer (QEMU) has closed the socket or has ended.
pub(super) const CLOSED: &str = "the socket is closed";

/// The connection.
#[derive(Debug)]
pub(super) struct Lines {
    socket: UnixStream,
    buffer: Vec<u8>,
}

impl Lines {
    /// Connects to a socket that may not exist yet.
    pub(super) fn connect(path: &Path, deadline: Duration) -> Result<Self> {
        let what = format!("a connection to {}", path.display());
        let socket = eventually(deadline, &what, || {
            UnixStream::connect(path).with_context(|| format!("connect to {}", path.display()))
        })?;
        Ok(Self {
            socket,
            buffer: Vec::new(),
        })
    }

    /// Writes all bytes before the deadline. After a failure a part may have been written.
    pub(super) fn send(&mut self, bytes: &[u8], deadline: Instant) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.socket.set_write_timeout(Some(left(deadline)?))?;
            match self.socket.write(rest) {
                Ok(0) => bail!(CLOSED),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("the peer does not read"),
                Err(error) if is_closed(&error) => bail!(CLOSED),
                Err(error) => return Err(error).context("write"),
            }
        }
        Ok(())
    }

    /// The next message before the deadline. Skips lines that are not JSON: after a resync there
    /// may be half a line.
    pub(super) fn next(&mut self, deadline: Instant) -> Result<Value> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let start = line
                    .iter()
                    .rposition(|byte| *byte == RESYNC)
                    .map_or(0, |at| at + 1);
                if let Ok(value) = serde_json::from_slice(&line[start..]) {
                    return Ok(value);
                }
            }
            self.socket.set_read_timeout(Some(left(deadline)?))?;
            let mut chunk = [0; 8 * 1024];
            match self.socket.read(&mut chunk) {
                Ok(0) => bail!(CLOSED),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) if is_closed(&error) => bail!(CLOSED),
                Err(error) => return Err(error).context("read"),
            }
        }
    }
}

/// Whether the error means that the peer has closed the socket.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// Time until the deadline; never zero, because a socket timeout cannot be zero.
fn left(deadline: Instant) -> Result<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .context("no answer in time")
}
