//! Finds out whether an address can be listened on, by trying, and who listens on a port.

use std::{io, net::SocketAddr, net::TcpListener};

use nix::sys::socket::SockProtocol;
use virtfleet_agent_core::netlink::diag;

use super::network_calls::{NetworkError, dump};
use crate::{Roots, read_once};

/// Maximum size of a table of sockets, in bytes. A busy node has thousands, 150 bytes each.
const MAX_TABLE_BYTES: usize = 8 << 20;
/// State of a socket that listens, as in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Result of trying to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Port {
    /// The address is free and permitted.
    Free,
    /// Another program listens there.
    InUse,
    /// The kernel refuses for another reason, e.g. a foreign address.
    Refused(String),
}

/// Listens briefly on the address.
pub fn try_port(address: SocketAddr) -> Port {
    match TcpListener::bind(address) {
        Ok(_) => Port::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Port::InUse,
        Err(error) => Port::Refused(error.to_string()),
    }
}

/// User ids of the sockets that listen on a TCP port, from `net/tcp` and `net/tcp6`.
pub fn listener_owners(roots: &Roots, port: u16) -> Vec<u32> {
    let mut owners = Vec::new();
    for name in ["net/tcp", "net/tcp6"] {
        let mut buffer = Vec::new();
        let Ok(bytes) = read_once(&roots.proc(name), &mut buffer, MAX_TABLE_BYTES) else {
            continue;
        };
        let text = String::from_utf8_lossy(bytes);
        owners.extend(text.lines().filter_map(|line| owner(line, port)));
    }
    owners
}

/// Whether anything listens on a TCP port, at any address of this network namespace.
///
/// # Errors
/// The kernel refuses, or the query fails.
pub fn has_listener(port: u16) -> Result<bool, NetworkError> {
    dump(
        SockProtocol::NetlinkSockDiag,
        diag::GET,
        &diag::listener_request(),
        |found: &mut bool, body| *found |= diag::local_port(body) == Some(port),
    )
}

/// `sl local_address rem_address st tx:rx tr:when retrnsmt uid …`, the port in hexadecimal.
fn owner(line: &str, port: u16) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    let (_, local) = fields.next()?.split_once(':')?;
    let state = fields.nth(1)?;
    if state != LISTEN || u16::from_str_radix(local, 16).ok()? != port {
        return None;
    }
    fields.nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_listener_is_found() {
        let line = "   0: 00000000000000000000000000000000:2A9F 00000000000000000000000000000000:0000 0A \
                    00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0";
        assert_eq!(owner(line, 10911), Some(1000));
        assert_eq!(owner(line, 10912), None);
        assert_eq!(owner(&line.replace(" 0A ", " 01 "), 10911), None);
        assert_eq!(owner("  sl  local_address rem_address   st", 10911), None);
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = held.local_addr().unwrap().port();
        let own = nix::unistd::geteuid().as_raw();
        assert_eq!(listener_owners(&Roots::default(), port), [own]);
    }

    #[test]
    fn a_listener_is_found_on_any_address_and_family() {
        for address in ["127.0.0.1:0", "127.8.0.1:0", "[::1]:0"] {
            let held = TcpListener::bind(address).unwrap();
            let port = held.local_addr().unwrap().port();
            // A connection from another port, to this one, is no listener on that port.
            let client = std::net::TcpStream::connect(held.local_addr().unwrap()).unwrap();
            assert!(has_listener(port).unwrap(), "{address}");
            assert!(!has_listener(client.local_addr().unwrap().port()).unwrap());
            drop(held);
            drop(client);
            assert!(!has_listener(port).unwrap(), "{address}");
        }
    }

    #[test]
    fn an_address_is_free_in_use_or_refused() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        assert_eq!(try_port(address), Port::InUse);
        drop(held);
        assert_eq!(try_port(address), Port::Free);
        assert!(matches!(
            try_port("203.0.113.1:1".parse().unwrap()),
            Port::Refused(_)
        ));
    }
}
