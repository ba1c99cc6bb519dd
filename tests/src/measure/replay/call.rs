//! A call of a traced scrape.

use std::path::PathBuf;

use nix::sys::socket::SockProtocol;

/// One call of a scrape, or several that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Reads once from an open file.
    Read {
        /// Index into [`super::Trace::kept`].
        kept: usize,
        /// Offset in bytes.
        offset: u64,
    },
    /// Opens a file (it may be missing), reads it `reads` times, and closes it.
    Open {
        /// The file.
        path: PathBuf,
        /// Number of reads.
        reads: usize,
    },
    /// Opens a directory (it may be missing), reads all its entries, and closes it.
    List(PathBuf),
    /// Reads the status of a file, which may be missing.
    Status(PathBuf),
    /// Reads the target of a symbolic link.
    Link(PathBuf),
    /// Reads the size of a filesystem.
    Space(PathBuf),
    /// Opens a netlink socket, sends one request, receives the answers, and closes the socket.
    Query {
        /// The socket's protocol.
        protocol: SockProtocol,
        /// The request.
        request: Vec<u8>,
        /// Number of receive calls.
        answers: usize,
    },
}
