//! Nameservers for tests, on the loopback: each behaves in one way, until it is dropped.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

/// What one does with a question.
#[derive(Debug, Clone, Copy)]
pub(super) enum Manner {
    /// NOERROR with so many addresses.
    Addresses(u8),
    /// A response code and nothing else.
    Code(u8),
    /// TC.
    Cut,
    /// Bytes that are no message.
    Garbage,
    /// The right answer under another id.
    WrongId,
    /// An answer with another id first, then the right one.
    WrongThenRight,
    /// The right answer from another port.
    WrongSource,
    /// Nothing.
    Silent,
    /// The right answer, after so many milliseconds.
    Slow(u64),
    /// The question, as it came.
    Echo,
    /// By TCP: half of the answer, then the end. By UDP nothing.
    Half,
    /// By TCP: the answer byte by byte. By UDP nothing.
    Drip,
}

/// A running one.
pub(super) struct Responder {
    pub(super) port: u16,
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<usize>>,
}

const ROUND: Duration = Duration::from_millis(5);

impl Responder {
    /// Listens on that port (any, if 0) of that address, by UDP and by TCP, each with a manner or not at all.
    pub(super) fn start(at: (&str, u16), udp: Option<Manner>, tcp: Option<Manner>) -> Self {
        let address: IpAddr = at.0.parse().unwrap();
        // A port that is free for UDP and for TCP: what was taken for the one may be somebody's for the other.
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
        if let Some(manner) = udp {
            let stopped = all.stopper();
            all.threads.push(thread::spawn(move || {
                answer_datagrams(&datagrams, manner, &stopped)
            }));
        }
        if let Some(manner) = tcp {
            let stopped = all.stopper();
            all.threads.push(thread::spawn(move || {
                answer_connections(&connections, manner, &stopped)
            }));
        }
        all
    }

    fn stopper(&mut self) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.stop.push(sender);
        receiver
    }

    /// How many questions came, when it is over.
    pub(super) fn asked(mut self) -> usize {
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

/// Waits, or not any longer when it is to stop.
fn over(stopped: &Receiver<()>, wait: Duration) -> bool {
    stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected)
}

fn answer_datagrams(socket: &UdpSocket, manner: Manner, stopped: &Receiver<()>) -> usize {
    socket.set_nonblocking(true).unwrap();
    let other = UdpSocket::bind((socket.local_addr().unwrap().ip(), 0)).unwrap();
    let mut asked = 0;
    let mut buffer = [0; 1500];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer) {
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if over(stopped, ROUND) {
                    return asked;
                }
                continue;
            }
            Err(_) => continue,
        };
        asked += 1;
        let question = &buffer[..length];
        let send = |bytes: &[u8]| drop(socket.send_to(bytes, from));
        match manner {
            Manner::WrongSource => drop(other.send_to(&answer(question, Manner::Addresses(1)), from)),
            Manner::WrongThenRight => {
                send(&answer(question, Manner::WrongId));
                send(&answer(question, Manner::Addresses(1)));
            }
            Manner::Silent | Manner::Half | Manner::Drip => {}
            Manner::Slow(millis) => {
                over(stopped, Duration::from_millis(millis));
                send(&answer(question, Manner::Addresses(1)));
            }
            _ => send(&answer(question, manner)),
        }
    }
}

fn answer_connections(listener: &TcpListener, manner: Manner, stopped: &Receiver<()>) -> usize {
    listener.set_nonblocking(true).unwrap();
    let mut asked = 0;
    let mut held = Vec::new();
    while !over(stopped, ROUND) {
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
        let answer = match manner {
            Manner::Silent => {
                held.push(stream);
                continue;
            }
            Manner::Half | Manner::Drip => answer(&question, Manner::Addresses(1)),
            _ => answer(&question, manner),
        };
        let mut bytes = u16::try_from(answer.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(answer);
        match manner {
            Manner::Half => stream.write_all(&bytes[..bytes.len() / 2]).unwrap(),
            Manner::Drip => {
                stream.set_nodelay(true).unwrap();
                for byte in bytes {
                    stream.write_all(&[byte]).unwrap();
                    over(stopped, Duration::from_millis(1));
                }
            }
            _ => drop(stream.write_all(&bytes)),
        }
    }
    asked
}

/// The message that comes back.
fn answer(question: &[u8], manner: Manner) -> Vec<u8> {
    let mut bytes = question.to_vec();
    if matches!(manner, Manner::Echo) {
        return bytes;
    }
    bytes[2] |= 0x80;
    bytes[3] |= 0x80;
    match manner {
        Manner::Code(code) => bytes[3] |= code,
        Manner::Cut => bytes[2] |= 2,
        Manner::Garbage => bytes = b"this is no DNS message at all".to_vec(),
        Manner::WrongId => bytes[0] ^= 0xff,
        Manner::Addresses(count) => {
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

/// A port of the loopback on which nobody listens, by UDP and by TCP, while what is returned is held: it is another address's.
pub(super) fn nobody() -> (SocketAddr, Responder) {
    let other = Responder::start(("127.0.0.250", 0), None, None);
    (SocketAddr::new("127.0.0.251".parse().unwrap(), other.port), other)
}
