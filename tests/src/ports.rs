//! Ports for servers that cannot choose one themselves.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// An address on `127.0.0.1` that was free a moment ago. Another program may take the port before ours does; servers that
/// accept port 0 and say what they got are better off with that.
pub fn free() -> Result<SocketAddr> {
    free_on(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The same on another address of this machine.
pub fn free_on(address: IpAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0)).with_context(|| format!("bind {address}"))?;
    listener.local_addr().context("local address of a listener")
}

/// Whether somebody accepts connections there.
pub fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
