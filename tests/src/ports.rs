//! Ports for servers that cannot choose one themselves.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Port range below the kernel's ephemeral ports (`net.ipv4.ip_local_port_range`, 32768 and up): no
/// outgoing connection of a test or a probing client can occupy one of these.
const RANGE: std::ops::Range<u16> = 20_000..32_000;
/// Maximum number of random ports tried before [`free_on`] fails.
const MAX_ATTEMPTS: usize = 1000;

/// A free address on `127.0.0.1`. Another test may choose the same port before the server listens;
/// the probability is that of two random ports of twelve thousand being equal. Prefer port 0 for
/// servers that accept it and report the actual port.
pub fn free() -> Result<SocketAddr> {
    free_on(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// As [`free`], on another address of this machine.
pub fn free_on(address: IpAddr) -> Result<SocketAddr> {
    let mut last = None;
    for _ in 0..MAX_ATTEMPTS {
        let wanted = SocketAddr::new(address, fastrand::u16(RANGE));
        match TcpListener::bind(wanted) {
            Ok(_) => return Ok(wanted),
            Err(error) => last = Some(error),
        }
    }
    Err(anyhow::Error::from(
        last.unwrap_or_else(|| ErrorKind::AddrInUse.into()),
    ))
    .with_context(|| format!("bind a port of {RANGE:?} on {address}"))
}

/// Whether a server accepts connections there.
pub fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
