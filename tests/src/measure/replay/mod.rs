//! The fair floor of a scrape: the same files and kernel queries, each system call once, and
//! nothing else: no parsing, no page, no HTTP.
//!
//! ```text
//! capture ─ strace of one scrape ─▶ Trace ─▶ Replay::run ─▶ duration of each repetition
//! ```
//! Not repeated are calls that depend on the agent's memory or on other programs: ioctl with a
//! structure (ethtool), D-Bus, kubelet, threads. So the floor is lower than what the agent could
//! reach.

mod call;
mod capture;
mod trace;

use std::{
    fs::{self, File},
    io::{ErrorKind, Read as _},
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::sys::{
    socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socket},
    statfs::statfs,
};

pub use call::Call;
pub use capture::capture;
pub use trace::{CALLS, Trace};

/// The calls of a scrape, ready to be repeated.
#[derive(Debug)]
pub struct Replay {
    kept: Vec<Option<File>>,
    calls: Vec<Call>,
}

impl Replay {
    /// Opens the files that the traced process keeps open. A file that is gone is left out, as
    /// those of strace itself.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn new(trace: Trace) -> Result<Self> {
        let open = |path: &PathBuf| match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            result => result.map(Some).with_context(|| path.display().to_string()),
        };
        Ok(Self {
            kept: trace.kept.iter().map(open).collect::<Result<_>>()?,
            calls: trace.calls,
        })
    }

    /// Repeats all calls `times` times. Returns the duration of each repetition.
    ///
    /// # Errors
    /// The kernel refuses a netlink query.
    pub fn run(&self, times: usize) -> Result<Vec<Duration>> {
        let mut buffer = vec![0_u8; 256 * 1024];
        (0..times)
            .map(|_| {
                let start = Instant::now();
                for call in &self.calls {
                    self.repeat(call, &mut buffer)?;
                }
                Ok(start.elapsed())
            })
            .collect()
    }

    fn repeat(&self, call: &Call, buffer: &mut [u8]) -> Result<()> {
        match call {
            // Some sysfs files return an error where a device has no value; this counts as a read.
            Call::Read { kept, offset } => {
                if let Some(Some(file)) = self.kept.get(*kept) {
                    file.read_at(buffer, *offset).ok();
                }
            }
            Call::Open { path, reads } => {
                if let Ok(mut file) = File::open(path) {
                    // A short read is a read.
                    (0..*reads).map(|_| file.read(buffer)).for_each(drop);
                }
            }
            Call::List(path) => {
                if let Ok(entries) = fs::read_dir(path) {
                    entries.for_each(drop);
                }
            }
            Call::Status(path) => drop(fs::metadata(path)),
            Call::Link(path) => drop(fs::read_link(path)),
            Call::Space(path) => drop(statfs(path)),
            Call::Query {
                protocol,
                request,
                answers,
            } => {
                let socket = socket(
                    AddressFamily::Netlink,
                    SockType::Raw,
                    SockFlag::SOCK_CLOEXEC,
                    *protocol,
                )?;
                send(socket.as_raw_fd(), request, MsgFlags::empty()).context("repeat a netlink query")?;
                for _ in 0..*answers {
                    // Fewer answers than in the trace must not block.
                    recv(
                        socket.as_raw_fd(),
                        &mut buffer[..32 << 10],
                        MsgFlags::MSG_DONTWAIT,
                    )
                    .ok();
                }
            }
        }
        Ok(())
    }
}
