//! Checks that an address can be listened on, and finds the process that uses it otherwise.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use super::CheckResult;

/// Name of the collector's process: `comm` has at most 15 bytes.
const COLLECTOR_COMM: &str = "virtfleet-colle";

/// Whether an address can be listened on.
#[derive(Debug)]
pub(super) enum PortState {
    /// It is not an address and port.
    NoAddress,
    /// No process listens there.
    Free,
    /// A collector listens there, with this process id.
    OwnProcess(SocketAddr, u32),
    /// Another process listens there: its id and name, if they can be determined.
    OtherProcess(Option<(u32, String)>),
    /// The kernel refuses it.
    Unusable(io::Error),
}

/// Binds `address` and releases it.
pub(super) fn check(setting: &str, address: &str) -> CheckResult {
    result(setting, address, state(address))
}

/// Binds `address` and releases it.
pub(super) fn state(address: &str) -> PortState {
    let Ok(address) = address.parse::<SocketAddr>() else {
        return PortState::NoAddress;
    };
    match TcpListener::bind(address) {
        Ok(_) => PortState::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match holder(address.port()) {
            Some((pid, name)) if name == COLLECTOR_COMM => PortState::OwnProcess(address, pid),
            other => PortState::OtherProcess(other),
        },
        Err(error) => PortState::Unusable(error),
    }
}

pub(super) fn result(setting: &str, address: &str, state: PortState) -> CheckResult {
    let port = address.rsplit(':').next().unwrap_or_default();
    let next = format!("ss -ltnp 'sport = :{port}'");
    match state {
        PortState::NoAddress => {
            let detail = format!("{address:?} is not an address and port");
            CheckResult::fail(setting, detail, "virtfleet-collector check-config")
        }
        PortState::Free => CheckResult::ok(setting, format!("{address} is free")),
        PortState::OwnProcess(_, pid) => CheckResult::ok(
            setting,
            format!("{address} is in use by virtfleet-collector, process {pid}"),
        ),
        PortState::OtherProcess(Some((pid, name))) => CheckResult::fail(
            setting,
            format!("{address} is in use by {name}, process {pid}"),
            next,
        ),
        PortState::OtherProcess(None) => CheckResult::warn(
            setting,
            format!("{address} is in use; its process cannot be determined from here"),
            next,
        ),
        PortState::Unusable(error) => {
            CheckResult::fail(setting, format!("{address} cannot be listened on: {error}"), next)
        }
    }
}

/// Process id and name of the process that listens on a TCP port; none if there is none, or its
/// descriptors cannot be read.
fn holder(port: u16) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| fs::read_to_string(file).unwrap_or_default());
    let sockets: Vec<_> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| listening(line, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbered =
        processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    numbered
        .find(|(_, process)| has_any_of(process, &sockets))
        .map(|(pid, process)| {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            (pid, name.trim_end().to_owned())
        })
}

/// The socket inode of a line of `/proc/net/tcp` that listens on `port` (proc(5): local address,
/// remote address, state 0A, inode).
fn listening(line: &str, port: u16) -> Option<&str> {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    let (_, local) = fields.get(1)?.rsplit_once(':')?;
    let is_listening = fields.get(3) == Some(&"0A") && u16::from_str_radix(local, 16) == Ok(port);
    is_listening.then(|| fields.get(9).copied())?
}

fn has_any_of(process: &Path, sockets: &[String]) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    let mut links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;

    #[test]
    fn an_address_is_free_in_use_or_invalid() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap().to_string();
        let line = check("server.address", &address);
        assert_eq!(line.status, CheckStatus::Fail, "in use by the test: {line:?}");
        let own = format!("process {}", std::process::id());
        assert!(
            line.detail.ends_with(&own) && line.next.starts_with("ss "),
            "{line:?}"
        );
        drop(held);
        assert_eq!(check("server.address", &address).status, CheckStatus::Ok);
        assert_eq!(check("server.address", "203.0.113.1:1").status, CheckStatus::Fail);
    }
}
