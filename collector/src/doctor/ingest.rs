//! Checks the port on which agents connect, and what answers there.

use std::{
    io::{self, ErrorKind, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use super::{
    CheckResult, CheckStatus,
    port::{self, PortState},
};
use crate::config::CollectorConfig;

const WHAT: &str = "ingest.address";
/// Maximum time until the collector begins the handshake: it does so at once.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(3);
/// First byte of a TLS handshake record (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// Results for `ingest`; `open_files` is the limit. Whether agents reach the port is known only to
/// them.
pub(super) fn check(config: &CollectorConfig, open_files: Option<u64>) -> Vec<CheckResult> {
    let Some(ingest) = &config.ingest else {
        let detail = "not set: agents that the collector cannot dial cannot connect to it";
        return vec![CheckResult::ok("ingest", detail)];
    };
    let mut results = vec![match port::state(&ingest.address) {
        PortState::OwnProcess(address, pid) => accepts(address, pid),
        other => port::result(WHAT, &ingest.address, other),
    }];
    let is_tight = |limit: u64| limit < u64::from(ingest.max_connections);
    if let Some(limit) = open_files.filter(|limit| is_tight(*limit)) {
        results.push(CheckResult::warn(
            "ingest.maxConnections",
            format!(
                "{} connections need as many open files, and the limit is {limit}",
                ingest.max_connections
            ),
            "raise LimitNOFILE= of the unit, or lower ingest.maxConnections",
        ));
    }
    if config.enrolment.is_none() {
        let detail = "not set: only agents with certificate files can connect";
        results.push(CheckResult::ok("enrolment", detail));
    }
    results
}

/// Whether a running collector begins a handshake with who connects.
fn accepts(address: SocketAddr, pid: u32) -> CheckResult {
    let running = format!("{address} is in use by virtfleet-collector, process {pid}");
    let (status, detail, next) = match first_byte(reached_at(address)) {
        Ok(Some(TLS_HANDSHAKE)) => {
            let detail = format!("{running}, which accepts agents");
            return CheckResult::ok(WHAT, detail);
        }
        Ok(Some(byte)) => (
            CheckStatus::Fail,
            format!("{running}, and something else answers (first byte {byte:#04x})"),
            format!("ss -ltnp 'sport = :{}'", address.port()),
        ),
        Ok(None) => (
            CheckStatus::Warn,
            format!("{running}, which closes connections of agents"),
            "another replica may lead, see the line lease; virtfleet_collector_ingest_connections_total has \
             the result"
                .to_owned(),
        ),
        Err(error) => (
            CheckStatus::Fail,
            format!("{running}, and does not answer: {error}"),
            "the collector's log".to_owned(),
        ),
    };
    match status {
        CheckStatus::Fail => CheckResult::fail(WHAT, detail, next),
        _ => CheckResult::warn(WHAT, detail, next),
    }
}

/// Where this machine reaches a listener.
fn reached_at(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The first byte that the listener sends; none if it closes the connection.
fn first_byte(address: SocketAddr) -> io::Result<Option<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, FIRST_BYTE_TIMEOUT)?;
    stream.set_read_timeout(Some(FIRST_BYTE_TIMEOUT))?;
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(byte.first().copied()),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, net::TcpListener, thread};

    use super::*;
    use crate::config::IngestSettings;

    /// A listener that sends this to one connection, and its address.
    fn serve(bytes: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || listener.accept().map(|(mut stream, _)| stream.write_all(bytes)));
        address
    }

    #[test]
    fn a_running_collector_accepts_agents_or_closes_their_connections() {
        for (bytes, status, part) in [
            (
                &[TLS_HANDSHAKE, 3, 1][..],
                CheckStatus::Ok,
                "which accepts agents",
            ),
            (b"", CheckStatus::Warn, "closes connections of agents"),
            (b"SSH-2.0", CheckStatus::Fail, "first byte 0x53"),
        ] {
            let found = accepts(serve(bytes), 7);
            assert_eq!(
                (found.status, found.detail.contains(part)),
                (status, true),
                "{found:?}"
            );
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let found = accepts(free, 7);
        assert_eq!(found.status, CheckStatus::Fail, "{found:?}");
    }

    #[test]
    fn a_port_that_another_program_has_fails_and_a_free_one_is_ok() {
        let mut config = CollectorConfig::default();
        assert_eq!(check(&config, None)[0].status, CheckStatus::Ok);
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        config.ingest = Some(IngestSettings {
            address: held.local_addr().unwrap().to_string(),
            max_connections: 1,
            ..IngestSettings::default()
        });
        let found = check(&config, Some(1));
        assert_eq!(
            (found[0].status, found[0].what.as_str()),
            (CheckStatus::Fail, WHAT)
        );
        drop(held);
        let found = check(&config, Some(1));
        assert_eq!(found[0].status, CheckStatus::Ok, "{found:?}");
        assert_eq!(found.len(), 2, "the line of enrolment: {found:?}");
        let found = check(&config, Some(0));
        assert_eq!(
            (found[1].status, found[1].what.as_str()),
            (CheckStatus::Warn, "ingest.maxConnections")
        );
    }
}
