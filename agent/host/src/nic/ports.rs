//! Whether an address could be listened on, found out by trying.

use std::{io, net::SocketAddr, net::TcpListener};

/// What trying to listen came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Port {
    /// Nobody listens there, and we may.
    Free,
    /// Some program listens there.
    InUse,
    /// The kernel refuses for another reason, e.g. the address is not ours.
    Refused(String),
}

/// Listens for a moment and lets go.
pub fn try_port(address: SocketAddr) -> Port {
    match TcpListener::bind(address) {
        Ok(_) => Port::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Port::InUse,
        Err(error) => Port::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
