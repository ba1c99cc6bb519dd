//! One DNS query in progress: its non-blocking socket and its state.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    poll::PollFlags,
    sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket},
};
use virtfleet_agent_core::dns::answers::{Answer, QueryOutcome, Question, Transport};

use super::message::{QueryMessage, Verdict, malformed_answer};

/// Maximum size of a UDP datagram in bytes.
const MAX_DATAGRAM_BYTES: usize = 65_535;
/// Maximum number of unrelated messages before the query is abandoned, as a bound against floods.
const MAX_UNRELATED_MESSAGES: u32 = 64;

pub(super) struct PendingQuery<'q> {
    question: &'q Question,
    sent: Instant,
    state: State,
    /// Why the last message was no answer, if there was one.
    unrelated: Option<&'static str>,
    strangers: u32,
}

enum State {
    Udp(UdpSocket, QueryMessage),
    Connecting(TcpStream, QueryMessage),
    Reading(TcpStream, QueryMessage, Vec<u8>),
    Over(QueryOutcome, Duration),
}

impl<'q> PendingQuery<'q> {
    /// Sends the query, or starts to.
    pub(super) fn start(question: &'q Question, port: u16, random: [u8; 8]) -> Self {
        let sent = Instant::now();
        let state = match QueryMessage::new(question, random) {
            Ok(asked) => nameserver_address(question.nameserver, question.zone.as_deref(), port)
                .and_then(|to| begin(to, question.transport, asked))
                .unwrap_or_else(|error| State::Over(unreachable(&error), sent.elapsed())),
            Err(reason) => State::Over(QueryOutcome::Garbled { reason }, Duration::ZERO),
        };
        Self {
            question,
            sent,
            state,
            unrelated: None,
            strangers: 0,
        }
    }

    /// Time until the timeout. `None` if the query is done.
    pub(super) fn left(&self, timeout: Duration) -> Option<Duration> {
        (!matches!(self.state, State::Over(..))).then(|| timeout.saturating_sub(self.sent.elapsed()))
    }

    /// The socket and the events it waits for. `None` if the query is done.
    pub(super) fn poll_events(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.state {
            State::Udp(socket, _) => Some((socket.as_fd(), PollFlags::POLLIN)),
            State::Connecting(stream, _) => Some((stream.as_fd(), PollFlags::POLLOUT)),
            State::Reading(stream, ..) => Some((stream.as_fd(), PollFlags::POLLIN)),
            State::Over(..) => None,
        }
    }

    /// Handles a ready socket.
    pub(super) fn advance(&mut self) {
        let came = match &mut self.state {
            State::Udp(socket, asked) => datagram(socket, asked),
            State::Connecting(stream, asked) => match send(stream, asked) {
                Ok(()) => return self.start_reading(),
                Err(error) => Err(error),
            },
            State::Reading(stream, asked, bytes) => more(stream, asked, bytes),
            State::Over(..) => return,
        };
        match came {
            Ok(Verdict::Answer(outcome)) => self.end(outcome),
            Ok(Verdict::Other(reason)) => self.unrelated(reason),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => self.unreachable(&error),
        }
    }

    /// Switches from writing to reading.
    fn start_reading(&mut self) {
        let over = State::Over(QueryOutcome::Timeout, Duration::ZERO);
        self.state = match std::mem::replace(&mut self.state, over) {
            State::Connecting(stream, asked) => State::Reading(stream, asked, Vec::new()),
            other => other,
        };
    }

    /// Over UDP anyone can send a message, and the answer may still arrive. Over TCP the message is
    /// the nameserver's.
    fn unrelated(&mut self, reason: &'static str) {
        self.unrelated = Some(reason);
        self.strangers += 1;
        if self.question.transport == Transport::Tcp || self.strangers >= MAX_UNRELATED_MESSAGES {
            self.end(malformed_answer(reason));
        }
    }

    /// Ends the query if its timeout has passed.
    pub(super) fn check_timeout(&mut self, now: Instant, timeout: Duration) {
        if now.duration_since(self.sent) >= timeout {
            self.end(self.unrelated.map_or(QueryOutcome::Timeout, malformed_answer));
        }
    }

    pub(super) fn unreachable(&mut self, error: &io::Error) {
        self.end(unreachable(error));
    }

    /// Only the first end has an effect.
    fn end(&mut self, outcome: QueryOutcome) {
        if !matches!(self.state, State::Over(..)) {
            self.state = State::Over(outcome, self.sent.elapsed());
        }
    }

    pub(super) fn answer(self) -> Answer {
        let (outcome, took) = match self.state {
            State::Over(outcome, took) => (outcome, took),
            _ => (QueryOutcome::Timeout, self.sent.elapsed()),
        };
        Answer {
            question: self.question.clone(),
            outcome,
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// A nameserver's address, with the interface index of its zone.
///
/// # Errors
/// There is no such interface.
pub(in crate::dns) fn nameserver_address(
    nameserver: IpAddr,
    zone: Option<&str>,
    port: u16,
) -> io::Result<SocketAddr> {
    let (IpAddr::V6(ip), Some(zone)) = (nameserver, zone) else {
        return Ok(SocketAddr::new(nameserver, port));
    };
    let index = if_nametoindex(zone).or_else(|error| zone.parse().map_err(|_| error));
    let scope = index.map_err(|_| io::Error::other(format!("no such interface: {zone}")))?;
    Ok(SocketAddrV6::new(ip, port, 0, scope).into())
}

fn begin(to: SocketAddr, transport: Transport, asked: QueryMessage) -> io::Result<State> {
    Ok(match transport {
        Transport::Udp => {
            let any: IpAddr = match to {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind((any, 0))?;
            socket.set_nonblocking(true)?;
            // A connected socket drops messages from other addresses and reports a closed port.
            socket.connect(to)?;
            socket.send(asked.bytes())?;
            State::Udp(socket, asked)
        }
        Transport::Tcp => State::Connecting(connecting(to)?, asked),
    })
}

/// Starts a non-blocking TCP connection; std's connect blocks.
fn connecting(to: SocketAddr) -> io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    let stream = TcpStream::from(fd);
    match connect(
        std::os::fd::AsRawFd::as_raw_fd(&stream),
        &SockaddrStorage::from(to),
    ) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// Sends length and message (RFC 1035, 4.2.2) in one write: the socket buffer has room for the
/// first 300 bytes of a connection.
fn send(stream: &mut TcpStream, asked: &QueryMessage) -> io::Result<()> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    let length = u16::try_from(asked.bytes().len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], asked.bytes()].concat())
}

fn datagram(socket: &UdpSocket, asked: &QueryMessage) -> io::Result<Verdict> {
    let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
    let length = socket.recv(&mut bytes)?;
    Ok(asked.read(bytes.get(..length).unwrap_or_default()))
}

/// Reads the available bytes. `WouldBlock` until the message is complete.
fn more(stream: &mut TcpStream, asked: &QueryMessage, bytes: &mut Vec<u8>) -> io::Result<Verdict> {
    loop {
        let needed = match bytes[..] {
            [high, low, ..] => 2 + usize::from(u16::from_be_bytes([high, low])),
            _ => 2,
        };
        if bytes.len() >= 2 && bytes.len() >= needed {
            return Ok(asked.read(bytes.get(2..needed).unwrap_or_default()));
        }
        let mut buffer = vec![0; needed - bytes.len()];
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(Verdict::Other(
                "the connection was closed before the answer was complete",
            ));
        }
        bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
}

fn unreachable(error: &io::Error) -> QueryOutcome {
    QueryOutcome::Unreachable {
        error: error.to_string(),
    }
}
