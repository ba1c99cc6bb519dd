//! What the collectors of the network ask the kernel by netlink and ioctl and not by a file.
//!
//! A socket lives for one question: three calls more than one that stays, and nothing that must be woken up from its
//! errors. The kernel answers a dump in pieces of at most 32 KiB, each with `recv`.

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
use crate::{Held, Kernel, held_addresses};

/// How often a dump is asked for that others disturbed.
const TRIES: u32 = 6;
/// How long the kernel may take for a piece of an answer; it takes microseconds.
const PATIENCE_SECONDS: i64 = 3;
/// The largest piece that the kernel makes (`net/netlink/af_netlink.c`).
const PIECE: usize = 32 << 10;
/// Entries of one dump that are kept: beyond any page.
const ENTRIES: usize = 1 << 17;

/// The kernel did not say.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// It refused.
    #[error("{0}")]
    Refused(#[from] Errno),
    /// The thing is changed faster than it can be read.
    #[error("it changed under each of {TRIES} readings")]
    Unsteady,
    /// More entries than a page can hold.
    #[error("it has more than {ENTRIES} entries")]
    TooMany,
}

/// The TCP sockets of all address families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpSockets {
    /// How many are in each state, from 1 (`TCP_ESTABLISHED`), of those states that occur.
    pub states: BTreeMap<u8, u64>,
    /// The sum of their receive queues.
    pub receive_queue: u64,
    /// The sum of their transmit queues.
    pub transmit_queue: u64,
}

/// Asks the kernel about the network. Each call has an answer of its own for trees of files, where nobody can be asked.
pub trait NetworkCalls: Send + Sync {
    /// The network devices, in the kernel's order.
    fn links(&self) -> Result<Vec<Link>, NetworkError>;
    /// The counters of the network devices.
    fn link_counters(&self) -> Result<Vec<LinkCounters>, NetworkError>;
    /// The name of a device. None if it is gone.
    fn device_name(&self, index: u32) -> Option<String>;
    /// How many IPv4 neighbours each device has, by its number, of those whose address was or is asked for.
    fn arp_entries(&self) -> Result<BTreeMap<u32, u64>, NetworkError>;
    /// The routes of all tables.
    fn routes(&self) -> Result<Vec<Route>, NetworkError>;
    /// The queueing disciplines.
    fn qdiscs(&self) -> Result<Vec<Qdisc>, NetworkError>;
    /// The TCP sockets over IPv4 and IPv6.
    fn tcp_sockets(&self) -> Result<TcpSockets, NetworkError>;
    /// The addresses that the devices hold.
    fn addresses(&self) -> io::Result<Held>;
    /// What a device's driver says of it.
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
        // The answer for a device that is gone may be an empty name and no error.
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
    fn addresses(&self) -> io::Result<Held> {
        held_addresses().map_err(io::Error::other)
    }
    fn ethtool(&self, device: &str) -> Result<Ethtool, NetworkError> {
        ethtool::ask(device)
    }
}

/// A dump of rtnetlink as a list.
fn entries<T>(kind: u16, request: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, NetworkError> {
    let all = dump(
        SockProtocol::NetlinkRoute,
        kind,
        request,
        |all: &mut Listed<T>, body| {
            if all.0.len() <= ENTRIES {
                all.0.extend(read(body));
            }
        },
    )?;
    if all.0.len() > ENTRIES {
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

/// Asks for a dump, and again while others disturb it: an entry could lack or come twice.
pub(super) fn dump<S: Default>(
    protocol: SockProtocol,
    kind: u16,
    body: &[u8],
    mut add: impl FnMut(&mut S, &[u8]),
) -> Result<S, NetworkError> {
    let mut line = Line::open(protocol)?;
    for sequence in 1..=TRIES {
        let mut all = S::default();
        let request = dump_request(kind, sequence, body);
        if line.ask(&request, sequence, |body| add(&mut all, body))? {
            return Ok(all);
        }
    }
    Err(NetworkError::Unsteady)
}

/// Asks for one thing.
pub(super) fn single(
    protocol: SockProtocol,
    kind: u16,
    body: &[u8],
    add: impl FnMut(&[u8]),
) -> Result<(), NetworkError> {
    Line::open(protocol)?.ask(&single_request(kind, 1, body), 1, add)?;
    Ok(())
}

/// A socket to the kernel.
struct Line {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Line {
    fn open(protocol: SockProtocol) -> Result<Self, NetworkError> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(PATIENCE_SECONDS))?;
        Ok(Self {
            socket,
            buffer: vec![0; PIECE],
        })
    }

    /// Sends a request and reads its answer to the end. Says whether the answer is whole.
    fn ask(
        &mut self,
        request: &[u8],
        sequence: u32,
        mut add: impl FnMut(&[u8]),
    ) -> Result<bool, NetworkError> {
        // Without being connected, a netlink socket sends to the kernel.
        send(self.socket.as_raw_fd(), request, MsgFlags::empty())?;
        let (mut whole, mut done) = (true, false);
        while !done {
            // With MSG_TRUNC the length is that of the piece, even if it was cut.
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
    fn loopback_is_told_by_every_call_that_knows_it() {
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
    fn a_socket_that_listens_is_counted() {
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // Where there is IPv6.
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
            // Others open and close sockets meanwhile; not in each of many.
            let counted = (0..20).any(|_| {
                let before = listening();
                let all: Result<Vec<_>, _> = (0..8).map(|_| std::net::TcpListener::bind(address)).collect();
                // Where there is no IPv6.
                let Ok(all) = all else { return true };
                listening() == before + all.len() as u64
            });
            assert!(counted, "{address}");
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        let nobody = dump(SockProtocol::NetlinkRoute, 9999, &[], |(): &mut (), _| {});
        assert!(matches!(nobody, Err(NetworkError::Refused(_))), "{nobody:?}");
        assert!(matches!(
            Kernel.ethtool("no-such-device"),
            Err(NetworkError::Refused(Errno::ENODEV))
        ));
    }
}
