//! Kernel queries of the network collectors over netlink and ioctl.
//!
//! Each query has its own socket. This costs three more system calls than a permanent socket, but
//! needs no recovery from errors. The kernel answers a dump in pieces of at most 32 KiB, one per
//! `recv`.

mod error;
mod ethtool;

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
            sockopt::ReceiveTimeout,
        },
        time::{TimeVal, TimeValLike as _},
    },
};
use virtfleet_agent_core::netlink::{
    Content, diag, dump_request,
    link::{self, Link, LinkCounters},
    messages, neighbour,
    qdisc::{self, Qdisc},
    route::{self, Route},
    single_request,
};

pub use self::ethtool::Ethtool;
use crate::{InterfaceAddresses, Kernel, interface_addresses};
pub use error::NetworkError;
use error::{MAX_ATTEMPTS, MAX_ENTRIES};

/// Timeout for one piece of an answer in seconds; the kernel needs microseconds.
const RECEIVE_TIMEOUT_SECONDS: i64 = 3;
/// Maximum size of a piece in bytes (`net/netlink/af_netlink.c`).
const MAX_PIECE_BYTES: usize = 32 << 10;

/// TCP sockets of all address families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpSockets {
    /// Number of sockets per state (from 1, `TCP_ESTABLISHED`), for states that occur.
    pub states: BTreeMap<u8, u64>,
    /// Sum of the receive queues in bytes.
    pub receive_queue: u64,
    /// Sum of the transmit queues in bytes.
    pub transmit_queue: u64,
}

/// Queries the kernel's network state. An implementation for file trees returns fixed answers.
pub trait NetworkCalls: Send + Sync {
    /// Network devices in the kernel's order.
    ///
    /// # Errors
    /// The kernel refuses, or the query fails.
    fn links(&self) -> Result<Vec<Link>, NetworkError>;
    /// Counters of the network devices.
    ///
    /// # Errors
    /// The kernel refuses, or the query fails.
    fn link_counters(&self) -> Result<Vec<LinkCounters>, NetworkError>;
    /// Name of a device. `None` if it is gone.
    fn device_name(&self, index: u32) -> Option<String>;
    /// Number of IPv4 neighbors with a known or requested address, by device index.
    ///
    /// # Errors
    /// The kernel refuses, or the query fails.
    fn arp_entries(&self) -> Result<BTreeMap<u32, u64>, NetworkError>;
    /// Routes of all tables.
    ///
    /// # Errors
    /// The kernel refuses, or the query fails.
    fn routes(&self) -> Result<Vec<Route>, NetworkError>;
    /// Queueing disciplines.
    ///
    /// # Errors
    /// The kernel refuses, or the query fails.
    fn qdiscs(&self) -> Result<Vec<Qdisc>, NetworkError>;
    /// TCP sockets over IPv4 and IPv6.
    ///
    /// # Errors
    /// The kernel refuses, or the query fails.
    fn tcp_sockets(&self) -> Result<TcpSockets, NetworkError>;
    /// Addresses of the devices.
    ///
    /// # Errors
    /// The kernel refuses.
    fn addresses(&self) -> io::Result<InterfaceAddresses>;
    /// Description and counters from a device's driver.
    ///
    /// # Errors
    /// The device does not exist.
    fn ethtool(&self, device: &str) -> Result<Ethtool, NetworkError>;
}

impl NetworkCalls for Kernel {
    fn links(&self) -> Result<Vec<Link>, NetworkError> {
        entries(link::GET, &link::request(), link::link)
    }
    fn link_counters(&self) -> Result<Vec<LinkCounters>, NetworkError> {
        entries(link::GET, &link::COUNTERS_REQUEST, link::counters)
    }
    fn device_name(&self, index: u32) -> Option<String> {
        let name = nix::net::if_::if_indextoname(index).ok()?;
        // For a removed device the answer may be an empty name without an error.
        (!name.is_empty()).then(|| name.to_string_lossy().into_owned())
    }
    fn arp_entries(&self) -> Result<BTreeMap<u32, u64>, NetworkError> {
        dump(
            SockProtocol::NetlinkRoute,
            neighbour::GET,
            &neighbour::REQUEST,
            |all: &mut BTreeMap<_, _>, body| {
                if let Some(found) = neighbour::neighbour(body)
                    && found.resolved
                {
                    *all.entry(found.device).or_default() += 1;
                }
            },
        )
    }
    fn routes(&self) -> Result<Vec<Route>, NetworkError> {
        entries(route::GET, &route::REQUEST, route::route)
    }
    fn qdiscs(&self) -> Result<Vec<Qdisc>, NetworkError> {
        entries(qdisc::GET, &qdisc::REQUEST, qdisc::qdisc)
    }
    fn tcp_sockets(&self) -> Result<TcpSockets, NetworkError> {
        dump(
            SockProtocol::NetlinkSockDiag,
            diag::GET,
            &diag::tcp_request(),
            |all: &mut TcpSockets, body| {
                let Some(found) = diag::socket(body) else { return };
                *all.states.entry(found.state).or_default() += 1;
                all.receive_queue += u64::from(found.receive_queue);
                all.transmit_queue += u64::from(found.transmit_queue);
            },
        )
    }
    fn addresses(&self) -> io::Result<InterfaceAddresses> {
        interface_addresses().map_err(io::Error::other)
    }
    fn ethtool(&self, device: &str) -> Result<Ethtool, NetworkError> {
        ethtool::ask(device)
    }
}

/// A complete rtnetlink dump as a list.
fn entries<T>(kind: u16, request: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, NetworkError> {
    let all = dump(
        SockProtocol::NetlinkRoute,
        kind,
        request,
        |all: &mut Listed<T>, body| {
            if all.0.len() <= MAX_ENTRIES {
                all.0.extend(read(body));
            }
        },
    )?;
    if all.0.len() > MAX_ENTRIES {
        return Err(NetworkError::TooMany);
    }
    Ok(all.0)
}

struct Listed<T>(Vec<T>);

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Requests a dump, repeatedly while concurrent changes interrupt it: entries could be missing or
/// duplicated.
pub(super) fn dump<S: Default>(
    protocol: SockProtocol,
    kind: u16,
    body: &[u8],
    mut add: impl FnMut(&mut S, &[u8]),
) -> Result<S, NetworkError> {
    let mut line = NetlinkSocket::open(protocol)?;
    for sequence in 1..=MAX_ATTEMPTS {
        let mut all = S::default();
        let request = dump_request(kind, sequence, body);
        if line.ask(&request, sequence, |body| add(&mut all, body))? {
            return Ok(all);
        }
    }
    Err(NetworkError::Unsteady)
}

/// Requests a single object.
pub(super) fn single(
    protocol: SockProtocol,
    kind: u16,
    body: &[u8],
    add: impl FnMut(&[u8]),
) -> Result<(), NetworkError> {
    NetlinkSocket::open(protocol)?.ask(&single_request(kind, 1, body), 1, add)?;
    Ok(())
}

struct NetlinkSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    fn open(protocol: SockProtocol) -> Result<Self, NetworkError> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        setsockopt(
            &socket,
            ReceiveTimeout,
            &TimeVal::seconds(RECEIVE_TIMEOUT_SECONDS),
        )?;
        Ok(Self {
            socket,
            buffer: vec![0; MAX_PIECE_BYTES],
        })
    }

    /// Sends a request and reads its whole answer. Returns whether the answer is consistent.
    fn ask(
        &mut self,
        request: &[u8],
        sequence: u32,
        mut add: impl FnMut(&[u8]),
    ) -> Result<bool, NetworkError> {
        // An unconnected netlink socket sends to the kernel.
        send(self.socket.as_raw_fd(), request, MsgFlags::empty())?;
        let (mut whole, mut done) = (true, false);
        while !done {
            // With MSG_TRUNC the result is the length of the piece even if it was truncated.
            let length = match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_TRUNC) {
                Err(Errno::EINTR) => continue,
                length => length?,
            };
            let piece = self.buffer.get(..length).ok_or(Errno::EMSGSIZE)?;
            for message in messages(piece).filter(|message| message.sequence == sequence) {
                whole &= !message.interrupted;
                match message.content {
                    Content::Entry(body) => add(body),
                    Content::Failed(0) | Content::Done => done = true,
                    Content::Failed(errno) => return Err(Errno::from_raw(errno).into()),
                    Content::Nothing => {}
                }
            }
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_in_every_answer() {
        let links = Kernel.links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!((lo.hardware, lo.address.as_str()), (772, "00:00:00:00:00:00"));
        assert_eq!(Kernel.device_name(lo.index).as_deref(), Some("lo"));
        let counters = Kernel.link_counters().unwrap();
        assert_eq!(counters.len(), links.len());
        assert!(counters.iter().any(|device| device.name == "lo"));
        assert_eq!(Kernel.device_name(u32::MAX >> 1), None);
        assert!(Kernel.addresses().unwrap().contains_key("lo"));
        Kernel.routes().unwrap();
        Kernel.arp_entries().unwrap();
        Kernel.qdiscs().unwrap();
    }

    #[test]
    fn a_listening_socket_is_counted() {
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // If IPv6 is available.
        let six = std::net::TcpListener::bind("[::1]:0");
        let sockets = Kernel.tcp_sockets().unwrap();
        assert!(sockets.states[&10] > u64::from(six.is_ok()), "{sockets:?}");
        assert!(sockets.transmit_queue >= 128, "{sockets:?}");
    }

    #[test]
    fn sockets_of_both_families_are_counted() {
        let listening = || {
            Kernel
                .tcp_sockets()
                .unwrap()
                .states
                .get(&10)
                .copied()
                .unwrap_or(0)
        };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Other programs open and close sockets; one of many attempts is undisturbed.
            let counted = (0..20).any(|_| {
                let before = listening();
                let all: Result<Vec<_>, _> = (0..8).map(|_| std::net::TcpListener::bind(address)).collect();
                // If IPv6 is not available.
                let Ok(all) = all else { return true };
                listening() == before + all.len() as u64
            });
            assert!(counted, "{address}");
        }
    }

    #[test]
    fn a_rejected_request_is_an_error() {
        let rejected = dump(SockProtocol::NetlinkRoute, 9999, &[], |(): &mut (), _| {});
        assert!(matches!(rejected, Err(NetworkError::Refused(_))), "{rejected:?}");
        assert!(matches!(
            Kernel.ethtool("no-such-device"),
            Err(NetworkError::Refused(Errno::ENODEV))
        ));
    }
}
