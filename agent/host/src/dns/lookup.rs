//! Looks up the addresses of a name: `/etc/hosts`, then the nameservers of `/etc/resolv.conf`.
//!
//! The agent is linked statically, and glibc's getaddrinfo(3) then needs shared libraries of the
//! same glibc at run time. This is the part of it that the agent needs: no cache, no EDNS, no
//! mDNS.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use virtfleet_agent_core::dns::{
    ResolvConf,
    answers::{QueryOutcome, Transport},
    lookup::{candidates, in_hosts},
    resolv,
};

use super::{
    RESOLV_CONF,
    ask::{QueryMessage, Verdict, nameserver_address, random_bytes},
};
use crate::{Roots, read_text};

/// Port of nameservers (RFC 1035, 4.2).
const PORT: u16 = 53;
const HOSTS: &str = "/etc/hosts";
/// Maximum size of each file, in bytes.
const MAX_FILE_BYTES: usize = 256 * 1024;
/// Maximum number of nameservers that are asked, as in glibc.
const MAX_NAMESERVERS: usize = 3;
/// Maximum time for the answer of one nameserver.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for all queries of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum size of an answer over UDP without EDNS (RFC 1035, 4.2.1), with room for nameservers
/// that ignore it.
const MAX_DATAGRAM_BYTES: usize = 4096;
/// Maximum number of unrelated messages before a query is abandoned, as a bound against floods.
const MAX_UNRELATED_MESSAGES: usize = 16;

/// Why a name has no address. Displays as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("{name} cannot be resolved: {RESOLV_CONF} names no nameserver")]
    NoNameserver { name: String },
    #[error("{name} has no address, says nameserver {nameserver}")]
    NoAddress {
        name: String,
        /// The nameserver that answered.
        nameserver: IpAddr,
    },
    #[error("{name} cannot be resolved: nameserver {nameserver}: {reason}")]
    NoAnswer {
        name: String,
        /// The nameserver that was asked last.
        nameserver: IpAddr,
        /// What happened to the last query.
        reason: String,
    },
}

/// The addresses of a name or of a literal address, IPv4 first: a guest whose IPv6 does not work is
/// more common than one without IPv4. Blocks for at most [`LOOKUP_TIMEOUT`] and one query.
///
/// # Errors
/// It has no address, or no nameserver answers.
pub(crate) fn lookup(roots: &Roots, name: &str) -> Result<Vec<IpAddr>, LookupError> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    let text = |path: &str| read_text(&roots.root(path), MAX_FILE_BYTES).unwrap_or_default();
    let found = in_hosts(&text(HOSTS), name);
    if !found.is_empty() {
        return Ok(found);
    }
    lookup_at(&resolv::parse(&text(RESOLV_CONF)), PORT, name, Instant::now())
}

fn lookup_at(conf: &ResolvConf, port: u16, name: &str, started: Instant) -> Result<Vec<IpAddr>, LookupError> {
    let mut failure = LookupError::NoNameserver {
        name: name.to_owned(),
    };
    let mut nameservers: Vec<IpAddr> = conf.nameservers.iter().take(MAX_NAMESERVERS).copied().collect();
    for candidate in candidates(name, conf) {
        for nameserver in &nameservers.clone() {
            if started.elapsed() >= LOOKUP_TIMEOUT {
                return Err(failure);
            }
            let zone = conf.zones.get(nameserver).map(String::as_str);
            let asked = nameserver_address(*nameserver, zone, port)
                .map_err(|error| error.to_string())
                .and_then(|address| addresses(address, &candidate));
            match asked {
                Ok(found) if found.is_empty() => {
                    failure = LookupError::NoAddress {
                        name: name.to_owned(),
                        nameserver: *nameserver,
                    };
                    // The other nameservers have the same answer.
                    break;
                }
                Ok(found) => return Ok(found),
                Err(reason) => {
                    failure = LookupError::NoAnswer {
                        name: name.to_owned(),
                        nameserver: *nameserver,
                        reason,
                    };
                    // Asked last from now on: with several search domains, waiting for a silent
                    // one each time would use up the whole time.
                    nameservers.retain(|other| other != nameserver);
                    nameservers.push(*nameserver);
                }
            }
        }
    }
    Err(failure)
}

/// All addresses of an absolute name; empty if it does not exist.
fn addresses(nameserver: SocketAddr, name: &str) -> Result<Vec<IpAddr>, String> {
    let mut found = Vec::new();
    for ipv6 in [false, true] {
        match query(nameserver, name, ipv6) {
            Ok(addresses) => found.extend(addresses),
            // Some nameservers answer nothing to AAAA. An IPv4 address is enough.
            Err(_) if !found.is_empty() => {}
            Err(reason) => return Err(reason),
        }
    }
    Ok(found)
}

fn query(nameserver: SocketAddr, name: &str, ipv6: bool) -> Result<Vec<IpAddr>, String> {
    for transport in [Transport::Udp, Transport::Tcp] {
        let [high, low, ..] = random_bytes();
        let id = u16::from_be_bytes([high, low]);
        let asked = QueryMessage::for_addresses(name, ipv6, transport, id)?;
        let (outcome, message) = match transport {
            Transport::Udp => over_udp(nameserver, &asked),
            Transport::Tcp => over_tcp(nameserver, &asked),
        }
        .map_err(|error| describe(&error))?;
        match outcome {
            QueryOutcome::Truncated => {}
            QueryOutcome::Addresses { .. } => return Ok(asked.found_addresses(&message)),
            QueryOutcome::NoSuchName => return Ok(Vec::new()),
            QueryOutcome::Code { code } => return Err(code),
            QueryOutcome::Garbled { reason } => return Err(reason),
            QueryOutcome::Timeout => return Err(NO_ANSWER.to_owned()),
            QueryOutcome::Unreachable { error } => return Err(error),
        }
    }
    Err("a truncated answer".to_owned())
}

const NO_ANSWER: &str = "no answer";

fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => NO_ANSWER.to_owned(),
        _ => error.to_string(),
    }
}

fn over_udp(nameserver: SocketAddr, asked: &QueryMessage) -> io::Result<(QueryOutcome, Vec<u8>)> {
    let any: IpAddr = match nameserver {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // A connected socket drops messages from other addresses and reports a closed port.
    socket.connect(nameserver)?;
    socket.send(asked.bytes())?;
    let until = Instant::now() + QUERY_TIMEOUT;
    for _ in 0..MAX_UNRELATED_MESSAGES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left))?;
        let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
        let length = socket.recv(&mut bytes)?;
        bytes.truncate(length);
        if let Verdict::Answer(outcome) = asked.read(&bytes) {
            return Ok((outcome, bytes));
        }
    }
    Err(ErrorKind::TimedOut.into())
}

fn over_tcp(nameserver: SocketAddr, asked: &QueryMessage) -> io::Result<(QueryOutcome, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&nameserver, QUERY_TIMEOUT)?;
    stream.set_read_timeout(Some(QUERY_TIMEOUT))?;
    stream.set_write_timeout(Some(QUERY_TIMEOUT))?;
    let length = u16::try_from(asked.bytes().len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], asked.bytes()].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    // Each read is bounded; the whole is, because a byte at a time would be 65,535 of them.
    let until = Instant::now() + QUERY_TIMEOUT;
    let mut received = 0;
    while received < bytes.len() {
        if Instant::now() >= until {
            return Err(ErrorKind::TimedOut.into());
        }
        let read = stream.read(bytes.get_mut(received..).unwrap_or_default())?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        received += read;
    }
    match asked.read(&bytes) {
        Verdict::Answer(outcome) => Ok((outcome, bytes)),
        Verdict::Other(reason) => Err(io::Error::other(reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::dns::ask::responder::{Behavior, Responder};

    fn conf(text: &str) -> ResolvConf {
        resolv::parse(text)
    }

    fn at(port: u16, name: &str) -> Result<Vec<IpAddr>, String> {
        let conf = conf("nameserver 127.0.0.1\nsearch a.example\n");
        lookup_at(&conf, port, name, Instant::now()).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_come_from_the_nameserver_also_over_tcp() {
        for (udp, tcp) in [
            (Behavior::Addresses(2), None),
            (Behavior::WrongThenRight, None),
            (Behavior::Cut, Some(Behavior::Addresses(1))),
        ] {
            let responder = Responder::start(("127.0.0.1", 0), Some(udp), tcp);
            let found = at(responder.port, "relay.example").unwrap();
            assert!(
                !found.is_empty() && found.iter().any(IpAddr::is_ipv4),
                "{found:?}"
            );
        }
    }

    #[test]
    fn every_failure_names_the_nameserver_and_the_reason() {
        for (behavior, expected) in [
            (
                Behavior::Code(3),
                "relay.example has no address, says nameserver 127.0.0.1",
            ),
            (
                Behavior::Addresses(0),
                "relay.example has no address, says nameserver 127.0.0.1",
            ),
            (
                Behavior::Code(2),
                "relay.example cannot be resolved: nameserver 127.0.0.1: SERVFAIL",
            ),
            (
                Behavior::Garbage,
                "relay.example cannot be resolved: nameserver 127.0.0.1: no answer",
            ),
        ] {
            let responder = Responder::start(("127.0.0.1", 0), Some(behavior), None);
            assert_eq!(at(responder.port, "relay.example").unwrap_err(), expected);
        }
        let error = lookup_at(&conf(""), 1, "relay", Instant::now()).unwrap_err();
        assert!(error.to_string().contains("names no nameserver"), "{error}");
    }

    #[test]
    fn the_whole_lookup_is_bounded() {
        let responder = Responder::start(("127.0.0.1", 0), Some(Behavior::Silent), None);
        let conf = conf("nameserver 127.0.0.1\nsearch a b c d e f g h\n");
        // Most of the time has passed already.
        let now = Instant::now();
        let started = now
            .checked_sub(LOOKUP_TIMEOUT.saturating_sub(QUERY_TIMEOUT / 4))
            .unwrap();
        lookup_at(&conf, responder.port, "relay", started).unwrap_err();
        assert!(now.elapsed() < QUERY_TIMEOUT * 2, "one query");
    }

    #[test]
    fn a_silent_nameserver_delays_a_lookup_once() {
        let silent = Responder::start(("127.0.0.1", 0), Some(Behavior::Silent), None);
        let second = ("127.0.0.2", silent.port);
        let _other = Responder::start(second, Some(Behavior::Code(3)), None);
        let conf = conf("nameserver 127.0.0.1\nnameserver 127.0.0.2\nsearch a b c d e f\n");
        let started = Instant::now();
        let error = lookup_at(&conf, silent.port, "relay", started).unwrap_err();
        assert_eq!(
            error.to_string(),
            "relay has no address, says nameserver 127.0.0.2"
        );
        assert!(started.elapsed() < QUERY_TIMEOUT * 2, "{:?}", started.elapsed());
    }

    #[test]
    fn literal_addresses_and_hosts_need_no_nameserver() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/hosts"), "10.0.0.9 relay.example\n").unwrap();
        let found = |name: &str| lookup(&roots, name).unwrap()[0].to_string();
        assert_eq!(found("fd00::5"), "fd00::5");
        assert_eq!(found("relay.example"), "10.0.0.9");
        let error = lookup(&roots, "other.example").unwrap_err().to_string();
        assert_eq!(
            error,
            "other.example cannot be resolved: /etc/resolv.conf names no nameserver"
        );
    }
}
