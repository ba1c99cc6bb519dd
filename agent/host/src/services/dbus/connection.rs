//! A connection to the system bus (D-Bus Specification, "Authentication Protocol" and "Message Bus
//! Specification").

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
    unistd::Uid,
};
use virtfleet_agent_core::dbus::{Call, FIXED_BYTES, Header, Kind};

use super::{Answer, Bus, BusError};

/// Timeout of one [`Bus::call_all`], and of the authentication.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of outstanding calls, so that neither side's buffer fills.
const MAX_OUTSTANDING_CALLS: usize = 32;
/// Maximum length of a line during authentication in bytes.
const MAX_LINE_BYTES: usize = 1024;

/// An authenticated connection with a completed `Hello` call.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    serial: u32,
    /// Received bytes that are not parsed yet.
    input: Vec<u8>,
    deadline: Instant,
}

impl Connection {
    /// Connects to the bus whose socket is `path`.
    ///
    /// # Errors
    /// The bus is missing, does not answer in time, or rejects the authentication.
    pub fn open(path: &Path) -> Result<Self, BusError> {
        let mut connection = Self {
            stream: dial(path)?,
            serial: 0,
            input: Vec::new(),
            deadline: Instant::now() + TIMEOUT,
        };
        connection.authenticate()?;
        let bus = "org.freedesktop.DBus";
        let hello = Call::new(bus, "/org/freedesktop/DBus", bus, "Hello");
        match connection.call_all(&[hello])?.first() {
            Some(Answer::Body { .. }) => Ok(connection),
            Some(Answer::Error(name)) => Err(BusError::Refused(name.clone())),
            None => Err(BusError::Refused("no answer".to_owned())),
        }
    }

    fn authenticate(&mut self) -> Result<(), BusError> {
        use std::fmt::Write as _;
        let mut text = "\0AUTH EXTERNAL ".to_owned();
        for byte in Uid::effective().to_string().bytes() {
            write!(text, "{byte:02x}").map_err(|_| BusError::Refused("no user".to_owned()))?;
        }
        text.push_str("\r\n");
        self.send(text.as_bytes())?;
        let line = self.line()?;
        if !line.starts_with("OK ") {
            return Err(BusError::Refused(line));
        }
        self.send(b"BEGIN\r\n")
    }

    fn line(&mut self) -> Result<String, BusError> {
        loop {
            if let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
                self.input.drain(..end + 2);
                return Ok(line);
            }
            if self.input.len() > MAX_LINE_BYTES {
                return Err(BusError::Refused("line too long".to_owned()));
            }
            self.receive(MAX_LINE_BYTES)?;
        }
    }

    fn left(&self) -> Result<Duration, BusError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(BusError::TimedOut)
        } else {
            Ok(left)
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), BusError> {
        while !bytes.is_empty() {
            let left = self.left()?;
            self.stream.set_write_timeout(Some(left)).map_err(BusError::Io)?;
            match self.stream.write(bytes) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(error) => retry_interrupted(error)?,
            }
        }
        Ok(())
    }

    /// Reads at most `most` bytes.
    fn receive(&mut self, most: usize) -> Result<(), BusError> {
        let left = self.left()?;
        self.stream.set_read_timeout(Some(left)).map_err(BusError::Io)?;
        let start = self.input.len();
        self.input.resize(start + most, 0);
        let read = self.stream.read(&mut self.input[start..]);
        self.input
            .truncate(start + read.as_ref().copied().unwrap_or_default());
        match read {
            Ok(0) => Err(BusError::Io(ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error) => retry_interrupted(error),
        }
    }

    /// Reads until the next message is complete, and returns its length in bytes.
    fn message(&mut self) -> Result<usize, BusError> {
        const CHUNK_BYTES: usize = 16 << 10;
        loop {
            let mut needed = FIXED_BYTES;
            if self.input.len() >= FIXED_BYTES {
                needed = Header::length(&self.input)?;
                if self.input.len() >= needed {
                    return Ok(needed);
                }
            }
            // At least a chunk, so that one call reads many small answers; a large answer needs few
            // calls.
            self.receive((needed - self.input.len()).max(CHUNK_BYTES))?;
        }
    }

    fn window(&mut self, calls: &[Call<'_>], answers: &mut Vec<Answer>) -> Result<(), BusError> {
        let first = self.serial.wrapping_add(1);
        let mut bytes = Vec::new();
        for call in calls {
            self.serial = self.serial.wrapping_add(1).max(1);
            bytes.extend(call.to_bytes(self.serial));
        }
        self.send(&bytes)?;
        let mut found: Vec<Option<Answer>> = vec![None; calls.len()];
        let mut missing = calls.len();
        while missing > 0 {
            let length = self.message()?;
            let header = Header::parse(&self.input[..length])?;
            let slot = usize::try_from(header.answers.wrapping_sub(first)).unwrap_or(usize::MAX);
            let answer = match header.kind {
                Kind::Return => Some(Answer::Body {
                    bytes: self.input[header.body..length].to_vec(),
                    big: header.big,
                }),
                Kind::Error => Some(Answer::Error(header.error.to_owned())),
                // NameAcquired and other unsolicited messages.
                Kind::Call | Kind::Other => None,
            };
            if let (Some(answer), Some(slot @ None)) = (answer, found.get_mut(slot)) {
                *slot = Some(answer);
                missing -= 1;
            }
            self.input.drain(..length);
        }
        answers.extend(found.into_iter().flatten());
        Ok(())
    }
}

impl Bus for Connection {
    fn call_all(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, BusError> {
        self.deadline = Instant::now() + TIMEOUT;
        if self.serial > u32::MAX / 2 {
            self.serial = 0;
        }
        let mut answers = Vec::with_capacity(calls.len());
        for calls in calls.chunks(MAX_OUTSTANDING_CALLS) {
            self.window(calls, &mut answers)?;
        }
        Ok(answers)
    }
}

fn retry_interrupted(error: io::Error) -> Result<(), BusError> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(BusError::TimedOut),
        _ => Err(BusError::Io(error)),
    }
}

/// Connects without blocking: a bus with a full queue counts as not responding.
fn dial(path: &Path) -> Result<UnixStream, BusError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let error = |errno: Errno| match errno {
        Errno::ENOENT | Errno::ECONNREFUSED => BusError::NoBus,
        Errno::EAGAIN => BusError::TimedOut,
        errno => BusError::Io(errno.into()),
    };
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(error)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path).map_err(error)?).map_err(error)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(BusError::Io)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use virtfleet_agent_core::dbus::Writer;

    use super::*;

    /// The answer to the call `serial`.
    fn reply(serial: u32, text: &str) -> Vec<u8> {
        let mut body = Writer::default();
        body.string(text);
        let body = body.into_bytes();
        let mut message = Writer::default();
        message.byte(b'l').byte(2).byte(1).byte(1);
        message.u32(u32::try_from(body.len()).unwrap()).u32(1);
        message.array(8, |fields| {
            fields.align(8).byte(5).signature("u").u32(serial);
            fields.align(8).byte(8).signature("g").signature("s");
        });
        message.align(8);
        [message.into_bytes(), body].concat()
    }

    /// A bus that accepts every client, sends `then` and closes.
    fn bus(path: &Path, welcome: &'static str, then: Vec<u8>) -> thread::JoinHandle<()> {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                line.extend(byte);
            }
            assert!(line.starts_with(b"\0AUTH EXTERNAL 3"), "{line:?}");
            stream.write_all(welcome.as_bytes()).unwrap();
            stream.write_all(&then).unwrap();
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest));
        })
    }

    #[test]
    fn answers_are_matched_to_calls_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let answers = [
            reply(1, ":1.5"),
            reply(9, "stray"),
            reply(3, "second"),
            reply(2, "first"),
        ]
        .concat();
        let bus = bus(&path, "OK 1234\r\n", answers);
        let mut connection = Connection::open(&path).unwrap();
        let call = Call::new("a.b", "/", "a.b", "C");
        let answers = connection.call_all(&[call, call]).unwrap();
        let texts: Vec<_> = answers
            .iter()
            .map(|answer| answer.reader().unwrap().string().unwrap().to_owned())
            .collect();
        assert_eq!(texts, ["first", "second"]);
        drop(connection);
        bus.join().unwrap();
    }

    #[test]
    fn a_missing_refusing_malformed_or_hanging_bus_is_an_error_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| Connection::open(&dir.path().join(name)).unwrap_err();
        assert!(matches!(open("none"), BusError::NoBus));
        let refusing = bus(&dir.path().join("refusing"), "REJECTED EXTERNAL\r\n", Vec::new());
        assert!(matches!(open("refusing"), BusError::Refused(_)));
        refusing.join().unwrap();
        let lying = bus(
            &dir.path().join("lying"),
            "OK 1\r\n",
            b"l\x02\x01\x01\xff\xff\xff\xff00000000".to_vec(),
        );
        assert!(matches!(open("lying"), BusError::Wire(_)));
        lying.join().unwrap();
        let hanging = bus(&dir.path().join("hanging"), "OK 1\r\n", Vec::new());
        let start = Instant::now();
        assert!(matches!(open("hanging"), BusError::TimedOut));
        assert!(start.elapsed() < TIMEOUT * 10);
        hanging.join().unwrap();
    }
}
