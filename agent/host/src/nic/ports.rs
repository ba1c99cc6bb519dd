//! Finds out whether an address can be listened on, by trying.

use std::{io, net::SocketAddr, net::TcpListener};

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
