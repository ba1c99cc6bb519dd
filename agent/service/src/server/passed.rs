//! Sockets that systemd has opened for the agent, and the listeners that take them.
//!
//! systemd holds the port from early boot, so that no other process of the guest can take it. Its
//! socket listens on all addresses. A listener on one address cannot open a socket of its own
//! beside it, so it takes this one and serves only connections to its address.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::net::TcpListener;
use virtfleet_runtime::http::Transport;

/// A socket, and the addresses that listeners serve on it.
struct PassedSocket {
    socket: std::net::TcpListener,
    address: SocketAddr,
    served: Vec<(SocketAddr, Transport)>,
}

pub(super) struct PassedSockets(Vec<PassedSocket>);

impl PassedSockets {
    pub(super) fn new(sockets: Vec<std::net::TcpListener>) -> Self {
        let known = |socket: std::net::TcpListener| {
            let address = socket.local_addr().ok()?;
            Some(PassedSocket {
                socket,
                address,
                served: Vec::new(),
            })
        };
        Self(sockets.into_iter().filter_map(known).collect())
    }

    /// Takes a socket for a listener: one of the same address, else one that covers it. Returns the
    /// transport if there is none.
    pub(super) fn take(&mut self, wanted: SocketAddr, transport: Transport) -> Option<Transport> {
        let sockets = &mut self.0;
        let same = sockets.iter().position(|passed| passed.address == wanted);
        let found = same.or_else(|| sockets.iter().position(|passed| covers(passed.address, wanted)));
        match found {
            Some(index) => {
                sockets[index].served.push((wanted, transport));
                None
            }
            None => Some(transport),
        }
    }

    /// The sockets that are taken, each with its transport. The others are closed.
    ///
    /// # Errors
    /// A socket cannot be used.
    pub(super) fn into_listeners(self) -> io::Result<Vec<(TcpListener, Transport)>> {
        let mut listeners = Vec::new();
        for PassedSocket {
            socket,
            address,
            served,
        } in self.0
        {
            let transport = match served.as_slice() {
                [] => {
                    tracing::warn!(
                        %address,
                        "systemd passed a socket that no listener of the settings uses; see \
                         virtfleet-agent.socket"
                    );
                    continue;
                }
                [(wanted, transport)] if is_whole(address, *wanted) => transport.clone(),
                served => {
                    let of_address =
                        |(wanted, transport): &(SocketAddr, Transport)| (wanted.ip(), transport.clone());
                    Transport::ByAddress(served.iter().map(of_address).collect::<Arc<[_]>>())
                }
            };
            socket.set_nonblocking(true)?;
            listeners.push((TcpListener::from_std(socket)?, transport));
        }
        Ok(listeners)
    }
}

/// Whether connections to `wanted` arrive at a socket on `passed`. Without IPv6 systemd's socket is
/// `0.0.0.0`, which is then all of `[::]`.
fn covers(passed: SocketAddr, wanted: SocketAddr) -> bool {
    let (all, one) = (passed.ip(), wanted.ip());
    passed.port() == wanted.port()
        && (all == one || all.is_unspecified() && (all.is_ipv6() || one.is_ipv4() || one.is_unspecified()))
}

/// Whether every connection that arrives at `passed` is one to `wanted`.
fn is_whole(passed: SocketAddr, wanted: SocketAddr) -> bool {
    passed == wanted || (wanted.ip().is_unspecified() && wanted.is_ipv6())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_on_all_addresses_covers_each() {
        let covered = |passed: &str, wanted: &str| covers(passed.parse().unwrap(), wanted.parse().unwrap());
        for (passed, wanted, expected) in [
            ("[::]:10911", "[::]:10911", true),
            ("[::]:10911", "0.0.0.0:10911", true),
            ("[::]:10911", "127.0.0.1:10911", true),
            ("[::]:10911", "[fd00::1]:10911", true),
            ("[::]:10911", "[::]:9100", false),
            ("0.0.0.0:10911", "[::]:10911", true),
            ("0.0.0.0:10911", "10.0.0.1:10911", true),
            ("0.0.0.0:10911", "[::1]:10911", false),
            ("127.0.0.1:10911", "127.0.0.1:10911", true),
            ("127.0.0.1:10911", "0.0.0.0:10911", false),
            ("127.0.0.1:10911", "127.0.0.2:10911", false),
        ] {
            assert_eq!(covered(passed, wanted), expected, "{passed} {wanted}");
        }
    }

    #[tokio::test]
    async fn a_socket_of_the_same_address_is_preferred_and_the_rest_is_closed() {
        let open = |address: &str| std::net::TcpListener::bind(address).unwrap();
        let (one, other, unused) = (open("127.0.0.1:0"), open("127.0.0.2:0"), open("127.0.0.3:0"));
        let address = |socket: &std::net::TcpListener| socket.local_addr().unwrap();
        let (at_one, at_other, at_unused) = (address(&one), address(&other), address(&unused));
        let mut passed = PassedSockets::new(vec![one, other, unused]);
        assert!(passed.take(at_other, Transport::Plain).is_none());
        assert!(passed.take(at_one, Transport::Plain).is_none());
        let elsewhere = "127.0.0.4:1".parse().unwrap();
        assert!(passed.take(elsewhere, Transport::Plain).is_some());
        let listeners = passed.into_listeners().unwrap();
        let found: Vec<_> = listeners
            .iter()
            .map(|(socket, _)| socket.local_addr().unwrap())
            .collect();
        assert_eq!(found, [at_one, at_other]);
        assert!(
            listeners
                .iter()
                .all(|(_, transport)| matches!(transport, Transport::Plain))
        );
        std::net::TcpListener::bind(at_unused).unwrap();
    }

    #[tokio::test]
    async fn a_listener_on_one_address_gets_only_its_connections() {
        let socket = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let mut wanted = socket.local_addr().unwrap();
        wanted.set_ip([127, 0, 0, 1].into());
        let mut passed = PassedSockets::new(vec![socket]);
        assert!(passed.take(wanted, Transport::Plain).is_none());
        let listeners = passed.into_listeners().unwrap();
        let [(_, Transport::ByAddress(served))] = listeners.as_slice() else {
            panic!("{listeners:?}");
        };
        assert!(matches!(&served[..], [(ip, Transport::Plain)] if *ip == wanted.ip()));
    }
}
