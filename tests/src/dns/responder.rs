//! A DNS responder inside the test, for behaviour that no real resolver can be configured to show.
//! It serves the zone of a cluster.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, TcpListener, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::NetNs;

const LOOK: Duration = Duration::from_millis(20);
const NXDOMAIN: u8 = 3;
const NAME: &[u8] = b"\x0akubernetes\x07default\x03svc";

/// Reaction to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The correct answer, after this delay.
    Right(Duration),
    /// No answer.
    Silence,
    /// Only this response code, e.g. 2 (SERVFAIL).
    Code(u8),
    /// A truncated answer (TC flag).
    CutOff,
    /// The query itself.
    Echo,
}

/// A running responder. Dropping it ends it.
#[derive(Debug)]
pub struct Responder {
    end: Arc<AtomicBool>,
    heard: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Responder {
    /// Starts a responder at an address of the namespace; without `tcp` it does not listen on TCP.
    pub fn start(namespace: &NetNs, address: &str, udp: Reply, tcp: Option<Reply>) -> Result<Self> {
        let to: IpAddr = address.parse()?;
        let (datagrams, listener) = namespace.run(move || -> Result<_> {
            let datagrams = UdpSocket::bind((to, 53)).context("bind UDP")?;
            datagrams.set_read_timeout(Some(LOOK))?;
            let listener = match tcp {
                Some(reply) => {
                    let listener = TcpListener::bind((to, 53)).context("bind TCP")?;
                    listener.set_nonblocking(true)?;
                    Some((listener, reply))
                }
                None => None,
            };
            Ok((datagrams, listener))
        })??;
        let mut own = Self {
            end: Arc::default(),
            heard: Arc::default(),
            threads: Vec::new(),
        };
        let (end, heard) = (own.end.clone(), own.heard.clone());
        own.threads
            .push(thread::spawn(move || by_udp(&datagrams, udp, &end, &heard)));
        if let Some((listener, reply)) = listener {
            let (end, heard) = (own.end.clone(), own.heard.clone());
            own.threads
                .push(thread::spawn(move || by_tcp(&listener, reply, &end, &heard)));
        }
        Ok(own)
    }

    /// Number of queries received.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                eprintln!("a responder has panicked");
            }
        }
    }
}

fn by_udp(socket: &UdpSocket, reply: Reply, end: &AtomicBool, heard: &AtomicU64) {
    let mut buffer = [0; 1500];
    thread::scope(|scope| {
        while !end.load(Ordering::Relaxed) {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                continue;
            };
            heard.fetch_add(1, Ordering::Relaxed);
            let question = buffer[..length].to_vec();
            // Each in its own thread: concurrent queries are delayed at the same time.
            scope.spawn(move || {
                if let Some(bytes) = answer(&question, reply) {
                    // The client may have gone.
                    socket.send_to(&bytes, from).ok();
                }
            });
        }
    });
}

fn by_tcp(listener: &TcpListener, reply: Reply, end: &AtomicBool, heard: &AtomicU64) {
    thread::scope(|scope| {
        while !end.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    heard.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(move || {
                        let mut talk = || {
                            stream.set_nonblocking(false)?;
                            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                            let mut length = [0; 2];
                            stream.read_exact(&mut length)?;
                            let mut question = vec![0; u16::from_be_bytes(length).into()];
                            stream.read_exact(&mut question)?;
                            match answer(&question, reply) {
                                Some(bytes) => {
                                    let length = u16::try_from(bytes.len()).unwrap_or_default();
                                    stream.write_all(&[&length.to_be_bytes()[..], &bytes].concat())
                                }
                                // Open until the client closes the connection.
                                None => stream.read(&mut [0]).map(drop),
                            }
                        };
                        // The client may have gone.
                        talk().ok();
                    });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park_timeout(LOOK),
                Err(error) => {
                    eprintln!("a responder does not listen any more: {error}");
                    return;
                }
            }
        }
    });
}

/// The response; `None` for silence.
fn answer(question: &[u8], reply: Reply) -> Option<Vec<u8>> {
    let (header, rest) = question.split_at_checked(12)?;
    let mut bytes = header.to_vec();
    // A response with recursion available; one question, nothing else.
    bytes[2] |= 0x80;
    bytes[3] = 0x80;
    bytes[6..].fill(0);
    let end = rest.iter().position(|byte| *byte == 0)? + 5;
    bytes.extend_from_slice(rest.get(..end)?);
    match reply {
        Reply::Silence => return None,
        Reply::Echo => return Some(question.to_vec()),
        Reply::Code(code) => bytes[3] |= code,
        Reply::CutOff => bytes[2] |= 0x02,
        Reply::Right(delay) => {
            thread::park_timeout(delay);
            if rest.starts_with(NAME) {
                bytes[7] = 1;
                // The queried name, A, IN, 30 s, four bytes.
                bytes.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x1e\0\x04\x0a\x60\0\x01");
            } else {
                bytes[3] |= NXDOMAIN;
            }
        }
    }
    Some(bytes)
}
