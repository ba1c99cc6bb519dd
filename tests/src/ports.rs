//! Ports for servers that cannot choose one themselves.

use std::{
    collections::HashMap,
    env,
    fs::{self, File},
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    fcntl::{Flock, FlockArg},
    unistd::Uid,
};

/// Port range below the kernel's ephemeral ports (`net.ipv4.ip_local_port_range`, 32768 and up): no
/// outgoing connection of a test or a probing client can occupy one of these.
const RANGE: std::ops::Range<u16> = 20_000..32_000;
/// Maximum number of random ports tried before [`free_on`] fails.
const MAX_ATTEMPTS: usize = 1000;

/// The ports of this process, each with the lock that keeps other processes from it. They are kept
/// until the process ends.
static MINE: Mutex<Option<HashMap<u16, Flock<File>>>> = Mutex::new(None);

/// A free address on `127.0.0.1`. No other call returns this port, on any address, as long as this
/// process runs: the server may start later, stop, and start again. Prefer port 0 for servers that
/// accept it and report the actual port.
pub fn free() -> Result<SocketAddr> {
    free_on(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// As [`free`], on another address of this machine.
pub fn free_on(address: IpAddr) -> Result<SocketAddr> {
    let mut last = None;
    for _ in 0..MAX_ATTEMPTS {
        let port = fastrand::u16(RANGE);
        if !reserve(port)? {
            continue;
        }
        let wanted = SocketAddr::new(address, port);
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

/// Locks a port for this process. False if it is already locked, by this process or another.
fn reserve(port: u16) -> Result<bool> {
    let mut mine = MINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mine = mine.get_or_insert_default();
    if mine.contains_key(&port) {
        return Ok(false);
    }
    let folder = lock_folder();
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let path = folder.join(port.to_string());
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            mine.insert(port, lock);
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

/// The folder with a lock file for each port. It stays, because removing a file that a process has
/// locked would let another one lock the same port.
fn lock_folder() -> PathBuf {
    env::temp_dir().join(format!("virtfleet-ports-{}", Uid::effective()))
}

/// Whether a server accepts connections there.
pub fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let first = free().unwrap().port();
        assert!(!reserve(first).unwrap());
        let path = lock_folder().join(first.to_string());
        let other = Flock::lock(File::create(path).unwrap(), FlockArg::LockExclusiveNonblock);
        assert!(other.is_err(), "another process does not get it either");
        assert_ne!(free().unwrap().port(), first);
    }
}
