//! Queries of the collectors to systemd and logind on the system bus, and to the services that a
//! node depends on.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::fd::AsRawFd as _,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
};

use crate::{
    Kernel,
    services::dbus::{Bus, BusError, Connection},
};

/// Path of the system bus's socket in the guest.
pub const BUS_SOCKET: &str = "/run/dbus/system_bus_socket";
const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);

/// Result of connecting to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketState {
    Listens,
    /// The socket exists, but no service listens, or its queue is full.
    Silent,
    /// The socket does not exist.
    Absent,
    /// This process has no permission.
    Denied,
}

/// Queries systemd, logind and the services that a node depends on.
pub trait ServiceCalls: Send + Sync {
    /// Connects to the system bus whose socket is `path`.
    ///
    /// # Errors
    /// The bus is missing or refuses the connection.
    fn bus(&self, path: &Path) -> Result<Box<dyn Bus>, BusError>;
    /// HTTP status of `GET /healthz` at 127.0.0.1. `None` if the port is closed; 0 if there is no
    /// answer in time.
    fn healthz(&self, port: u16) -> Option<u16>;
    /// Connects to a socket to find out whether a service listens.
    fn reach(&self, socket: &Path) -> SocketState;
}

impl ServiceCalls for Kernel {
    fn bus(&self, path: &Path) -> Result<Box<dyn Bus>, BusError> {
        Ok(Box::new(Connection::open(path)?))
    }

    fn healthz(&self, port: u16) -> Option<u16> {
        let deadline = Instant::now() + HEALTH_TIMEOUT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = match TcpStream::connect_timeout(&address, HEALTH_TIMEOUT) {
            Ok(stream) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return Some(0),
            Err(_) => return None,
        };
        Some(status(stream, deadline).unwrap_or(0))
    }

    fn reach(&self, path: &Path) -> SocketState {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let tried = socket(AddressFamily::Unix, SockType::Stream, flags, None)
            .and_then(|socket| connect(socket.as_raw_fd(), &UnixAddr::new(path)?));
        match tried {
            Ok(()) => SocketState::Listens,
            Err(Errno::ENOENT | Errno::ENOTDIR) => SocketState::Absent,
            Err(Errno::ECONNREFUSED | Errno::EAGAIN) => SocketState::Silent,
            // A permission or local resource problem, which says nothing about the service.
            Err(_) => SocketState::Denied,
        }
    }
}

/// Sends the request and parses the status line.
fn status(mut stream: TcpStream, deadline: Instant) -> Option<u16> {
    let left = || Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
    stream.set_write_timeout(Some(left()?)).ok()?;
    stream
        .write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\nUser-Agent: virtfleet-agent\r\n\r\n")
        .ok()?;
    let (mut line, mut length) = ([0; 64], 0);
    while length < line.len() && !line[..length].contains(&b'\n') {
        stream.set_read_timeout(Some(left()?)).ok()?;
        match stream.read(&mut line[length..]).ok()? {
            0 => break,
            read => length += read,
        }
    }
    let text = str::from_utf8(line[..length].split(|byte| *byte == b'\n').next()?).ok()?;
    text.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::unix::net::UnixListener, thread};

    use super::*;

    #[test]
    fn health_is_the_status_or_none() {
        for (answer, found) in [
            ("HTTP/1.1 200 OK\r\n\r\nok", Some(200)),
            ("HTTP/1.0 500 Internal Server Error\r\n", Some(500)),
            ("SSH-2.0", Some(0)),
            ("", Some(0)),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                assert!(stream.read(&mut request).unwrap() > 0);
                stream.write_all(answer.as_bytes()).unwrap();
            });
            assert_eq!(Kernel.healthz(port), found, "{answer}");
            server.join().unwrap();
            assert_eq!(Kernel.healthz(port), None);
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(
            Kernel.healthz(listener.local_addr().unwrap().port()),
            Some(0),
            "no answer"
        );
    }

    #[test]
    fn sockets_are_listening_silent_or_absent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(Kernel.reach(&path), SocketState::Absent);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(Kernel.reach(&path), SocketState::Listens);
        drop(listener);
        assert_eq!(Kernel.reach(&path), SocketState::Silent);
    }
}
