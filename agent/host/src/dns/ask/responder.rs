//! Nameservers on the loopback for tests. Each has one behavior until it is dropped.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Behavior on a query.
#[derive(Debug, Clone, Copy)]
pub(in crate::dns) enum Behavior {
    /// NOERROR with this many addresses.
    Addresses(u8),
    /// A response code without records.
    Code(u8),
    /// A truncated answer (TC).
    Cut,
    /// Bytes that are not a DNS message.
    Garbage,
    /// The right answer with another id.
    WrongId,
    /// An answer with another id, then the right one.
    WrongThenRight,
    /// The right answer from another port.
    WrongSource,
    /// No answer.
    Silent,
    /// The right answer after this many milliseconds.
    Slow(u64),
    /// The query itself.
    Echo,
    /// TCP: half of the answer, then close. UDP: no answer.
    Half,
    /// TCP: the answer byte by byte. UDP: no answer.
    Drip,
}

/// A running nameserver.
pub(in crate::dns) struct Responder {
    pub(in crate::dns) port: u16,
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<usize>>,
}

const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Responder {
    /// Listens on that port (any if 0) of that address, over UDP and TCP, each with a
    /// behavior or not at all.
    pub(in crate::dns) fn start(at: (&str, u16), udp: Option<Behavior>, tcp: Option<Behavior>) -> Self {
        let address: IpAddr = at.0.parse().unwrap();
        // The port must be free for UDP and TCP; a port that is free for one may be in use for the
        // other.
        let (datagrams, connections) = (0..100)
            .find_map(|_| {
                let connections = TcpListener::bind((address, at.1)).ok()?;
                let port = connections.local_addr().ok()?.port();
                Some((UdpSocket::bind((address, port)).ok()?, connections))
            })
            .unwrap();
        let mut all = Self {
            port: datagrams.local_addr().unwrap().port(),
            stop: Vec::new(),
            threads: Vec::new(),
        };
        if let Some(behavior) = udp {
            let stopped = all.stopper();
            all.threads.push(thread::spawn(move || {
                answer_datagrams(&datagrams, behavior, &stopped)
            }));
        }
        if let Some(behavior) = tcp {
            let stopped = all.stopper();
            all.threads.push(thread::spawn(move || {
                answer_connections(&connections, behavior, &stopped)
            }));
        }
        all
    }

    fn stopper(&mut self) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.stop.push(sender);
        receiver
    }

    /// Stops the nameserver and returns the number of queries.
    pub(in crate::dns) fn asked(mut self) -> usize {
        self.stop.clear();
        self.threads.drain(..).map(|thread| thread.join().unwrap()).sum()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

/// Waits. Returns true if the nameserver must stop.
fn stopped_within(stopped: &Receiver<()>, wait: Duration) -> bool {
    stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected)
}

fn answer_datagrams(socket: &UdpSocket, behavior: Behavior, stopped: &Receiver<()>) -> usize {
    socket.set_nonblocking(true).unwrap();
    let other = UdpSocket::bind((socket.local_addr().unwrap().ip(), 0)).unwrap();
    let mut asked = 0;
    let mut buffer = [0; 1500];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer) {
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stopped_within(stopped, POLL_INTERVAL) {
                    return asked;
                }
                continue;
            }
            Err(_) => continue,
        };
        asked += 1;
        let question = &buffer[..length];
        let send = |bytes: &[u8]| drop(socket.send_to(bytes, from));
        match behavior {
            Behavior::WrongSource => drop(other.send_to(&answer(question, Behavior::Addresses(1)), from)),
            Behavior::WrongThenRight => {
                send(&answer(question, Behavior::WrongId));
                send(&answer(question, Behavior::Addresses(1)));
            }
            Behavior::Silent | Behavior::Half | Behavior::Drip => {}
            Behavior::Slow(millis) => {
                stopped_within(stopped, Duration::from_millis(millis));
                send(&answer(question, Behavior::Addresses(1)));
            }
            _ => send(&answer(question, behavior)),
        }
    }
}

fn answer_connections(listener: &TcpListener, behavior: Behavior, stopped: &Receiver<()>) -> usize {
    listener.set_nonblocking(true).unwrap();
    let mut asked = 0;
    let mut held = Vec::new();
    while !stopped_within(stopped, POLL_INTERVAL) {
        let Ok((mut stream, _)) = listener.accept() else {
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut question).unwrap();
        asked += 1;
        let answer = match behavior {
            Behavior::Silent => {
                held.push(stream);
                continue;
            }
            Behavior::Half | Behavior::Drip => answer(&question, Behavior::Addresses(1)),
            _ => answer(&question, behavior),
        };
        let mut bytes = u16::try_from(answer.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(answer);
        match behavior {
            Behavior::Half => stream.write_all(&bytes[..bytes.len() / 2]).unwrap(),
            Behavior::Drip => {
                stream.set_nodelay(true).unwrap();
                for byte in bytes {
                    stream.write_all(&[byte]).unwrap();
                    stopped_within(stopped, Duration::from_millis(1));
                }
            }
            _ => drop(stream.write_all(&bytes)),
        }
    }
    asked
}

/// Builds the answer.
fn answer(question: &[u8], behavior: Behavior) -> Vec<u8> {
    let mut bytes = question.to_vec();
    if matches!(behavior, Behavior::Echo) {
        return bytes;
    }
    bytes[2] |= 0x80;
    bytes[3] |= 0x80;
    match behavior {
        Behavior::Code(code) => bytes[3] |= code,
        Behavior::Cut => bytes[2] |= 2,
        Behavior::Garbage => bytes = b"this is no DNS message at all".to_vec(),
        Behavior::WrongId => bytes[0] ^= 0xff,
        Behavior::Addresses(count) => {
            bytes[7] = count;
            let kind = bytes[bytes.len() - 3];
            for host in 0..count {
                bytes.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 5]);
                let address: &[u8] = if kind == 1 {
                    &[192, 0, 2, host]
                } else {
                    &[0x20; 16]
                };
                bytes.extend([0, u8::try_from(address.len()).unwrap()]);
                bytes.extend(address);
            }
        }
        _ => {}
    }
    bytes
}

/// A loopback address and port without a listener. The port is reserved at another address while
/// the returned responder is held.
pub(in crate::dns) fn closed_port() -> (SocketAddr, Responder) {
    let other = Responder::start(("127.0.0.250", 0), None, None);
    (SocketAddr::new("127.0.0.251".parse().unwrap(), other.port), other)
}
