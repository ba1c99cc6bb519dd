//! Ports for servers that cannot choose one themselves.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Below the ports that the kernel gives to connections (`net.ipv4.ip_local_port_range`, 32768 and up): no connection of
/// another test, and none of a client that asks whether a server is there already, can hold one of these.
const RANGE: std::ops::Range<u16> = 20_000..32_000;
const TRIES: usize = 1000;

/// An address on `127.0.0.1` that nobody listens on. Another test may choose the same before ours listens, which is as
/// likely as two of twelve thousand being the same; servers that accept port 0 and say what they got are better off with
/// that.
pub fn free() -> Result<SocketAddr> {
    free_on(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The same on another address of this machine.
pub fn free_on(address: IpAddr) -> Result<SocketAddr> {
    let mut last = None;
    for _ in 0..TRIES {
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

/// Whether somebody accepts connections there.
pub fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
