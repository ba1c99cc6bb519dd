//! Opens TCP connections to a name or an address. It blocks, within bounds.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt};
use virtfleet_wire::host_port::HostPort;

use crate::{Roots, dns::LookupError, dns::lookup};

/// Maximum addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;
/// Maximum time for the connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds without traffic until the kernel checks whether the peer is still there.
const KEEPALIVE_IDLE: u32 = 30;
/// Seconds between two such checks.
const KEEPALIVE_INTERVAL: u32 = 10;
/// Checks without an answer until the connection counts as broken.
const KEEPALIVE_PROBES: u32 = 3;

/// Why there is no connection. Displays as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// Nothing listens there, or a firewall rejects.
    #[error("{0} refused the connection")]
    Refused(SocketAddr),
    #[error("{0} does not answer")]
    Timeout(SocketAddr),
    #[error("cannot connect to {address}: {source}")]
    Unreachable { address: SocketAddr, source: io::Error },
}

/// Connects to the first address of `target` that accepts. The kernel closes the connection if the
/// peer vanishes. Blocks for about 30 seconds at most: 10 for the name, 5 for each of
/// [`MAX_ADDRESSES`] addresses.
///
/// # Errors
/// The name has no address; otherwise the failure of the last address.
pub fn dial(roots: &Roots, target: &HostPort) -> Result<TcpStream, DialError> {
    let mut failure = None;
    for address in lookup(roots, target.host())?.into_iter().take(MAX_ADDRESSES) {
        let address = SocketAddr::new(address, target.port());
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                if let Err(error) = keep_alive(&stream) {
                    tracing::warn!(%error, "a vanished collector is noticed late: cannot set keepalive");
                }
                return Ok(stream);
            }
            Err(source) => {
                failure = Some(match source.kind() {
                    ErrorKind::ConnectionRefused => DialError::Refused(address),
                    ErrorKind::TimedOut => DialError::Timeout(address),
                    _ => DialError::Unreachable { address, source },
                });
            }
        }
    }
    // A lookup that succeeds has an address.
    Err(failure.unwrap_or_else(|| {
        DialError::Lookup(LookupError::NoNameserver {
            name: target.host().to_owned(),
        })
    }))
}

fn keep_alive(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
    // Sent data without an acknowledgement: keepalive does not apply then.
    let milliseconds = (KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_PROBES) * 1000;
    setsockopt(stream, sockopt::TcpUserTimeout, &milliseconds)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn a_vanished_peer_is_noticed_and_a_refusal_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target: HostPort = address.to_string().parse().unwrap();
        let stream = dial(&Roots::default(), &target).unwrap();
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepIdle).unwrap(), KEEPALIVE_IDLE);
        drop((listener, stream));
        let error = dial(&Roots::default(), &target).unwrap_err();
        assert_eq!(error.to_string(), format!("{address} refused the connection"));
    }
}
