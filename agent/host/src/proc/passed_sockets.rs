//! Listening sockets that systemd opened for this process (sd_listen_fds(3)).

use std::{
    io,
    net::TcpListener,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use nix::sys::socket::{SockType, getsockopt, sockopt};

/// Set once the descriptors have an owner.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the sockets. TCP sockets that listen are returned, in non-blocking mode; others are
/// closed, and named with the reason. A later call returns none.
///
/// # Errors
/// The environment does not describe them correctly.
pub fn passed_sockets() -> io::Result<(Vec<TcpListener>, Vec<String>)> {
    let (mut listeners, mut others) = (Vec::new(), Vec::new());
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok((listeners, others));
    }
    for number in sd_notify::listen_fds()? {
        // SAFETY: systemd passed this open descriptor to this process, which takes it only once.
        #[expect(unsafe_code, reason = "the environment names descriptors by number")]
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        match tcp_listener(socket) {
            Ok(listener) => listeners.push(listener),
            Err(error) => others.push(format!("descriptor {number}: {error}")),
        }
    }
    Ok((listeners, others))
}

fn tcp_listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let other = || io::Error::other(format!("{} is not a TCP socket that listens", socket.as_raw_fd()));
    let is_stream = getsockopt(&socket, sockopt::SockType)? == SockType::Stream;
    if !is_stream || !getsockopt(&socket, sockopt::AcceptConn)? {
        return Err(other());
    }
    let listener = TcpListener::from(socket);
    // Fails for another address family.
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::{
        net::UdpSocket,
        os::unix::net::{UnixListener, UnixStream},
    };

    use super::*;

    #[test]
    fn only_tcp_sockets_that_listen_are_taken() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let taken = tcp_listener(OwnedFd::from(tcp)).unwrap();
        assert_eq!(taken.local_addr().unwrap(), address);
        let (unix, _other) = UnixStream::pair().unwrap();
        let dir = tempfile::tempdir().unwrap();
        for other in [
            OwnedFd::from(client),
            OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap()),
            OwnedFd::from(unix),
            OwnedFd::from(UnixListener::bind(dir.path().join("s")).unwrap()),
            OwnedFd::from(std::fs::File::open("/proc/self/comm").unwrap()),
        ] {
            tcp_listener(other).unwrap_err();
        }
    }
}
