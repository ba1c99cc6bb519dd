//! Opens a TCP connection to an agent: directly, or through the relay of its user cluster.

use std::{fmt, io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
};
use virtfleet_collector_core::{
    connect_head::{self, ConnectAnswer, ConnectRequest, MAX_HEAD_BYTES},
    dial::DialTarget,
    pull_result::{Failure, FailureClass, FailurePoint},
    way::{AgentWay, RelayWay},
};

/// Maximum addresses of a relay that are tried.
const MAX_RELAY_ADDRESSES: usize = 4;

/// Connects to `target`. What the peer is, only TLS can prove. The caller limits the time and adds
/// the way to the failure. `awaited` is the point that has not answered yet, if that is known: the
/// relay until it has accepted the connection, then nothing, because the relay may wait for the VM.
pub(super) async fn connect(
    target: &DialTarget,
    awaited: &mut Option<FailurePoint>,
) -> Result<TcpStream, Failure> {
    let address = target.address;
    match &target.way {
        AgentWay::Direct => TcpStream::connect(address).await.map_err(|error| {
            let message = format_args!(
                "cannot connect to {address}: {error}; is virtfleet-agent running in the guest, and do network policies allow this \
                 collector to connect?"
            );
            let failure = Failure::new(FailureClass::Connect, message);
            if error.kind() == io::ErrorKind::ConnectionRefused {
                failure.at(FailurePoint::Refused)
            } else {
                failure
            }
        }),
        AgentWay::Relay(relay) => {
            *awaited = Some(FailurePoint::Relay);
            let mut stream = connect_to(relay).await?;
            *awaited = None;
            // Later writes are whole TLS records.
            drop(stream.set_nodelay(true));
            let head = ConnectRequest {
                destination: address,
                pull_interval: relay.pull_interval,
            };
            request(&mut stream, &head).await?;
            Ok(stream)
        }
        // Enrolments and pulls use the connection that the agent opened, and never dial it.
        AgentWay::Push { peer } => {
            let message = format_args!("the agent that connected from {peer} is not dialled");
            Err(Failure::new(FailureClass::Connect, message))
        }
    }
}

/// Connects to a relay. Its name is resolved each time: its pod may have moved.
async fn connect_to(relay: &RelayWay) -> Result<TcpStream, Failure> {
    let fail = |error: io::Error| {
        let message = format_args!(
            "cannot connect to the relay: {error}; is it running, and do network policies allow this collector to connect?"
        );
        of_relay(message)
    };
    let found = lookup_host((relay.address.host(), relay.address.port()))
        .await
        .map_err(fail)?;
    let mut last = of_relay("the name of the relay has no address");
    for address in found.take(MAX_RELAY_ADDRESSES) {
        if let Err(range) = relay.check(address.ip()) {
            let message = format_args!(
                "the relay has the address {}, {range}, which only an entry of scrape.allowCIDRs inside that range allows",
                address.ip()
            );
            last = Failure::new(FailureClass::NotAllowed, message).at(FailurePoint::Relay);
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = fail(error),
        }
    }
    Err(last)
}

/// Requests a connection and reads the answer, with at most [`MAX_HEAD_BYTES`].
///
/// An invalid answer has the class `Connect`: `Malformed` means that the agent's certificate was
/// verified ([`PullResult::is_verified`]).
///
/// [`PullResult::is_verified`]: virtfleet_collector_core::pull_result::PullResult::is_verified
async fn request(stream: &mut TcpStream, request: &ConnectRequest) -> Result<(), Failure> {
    let lost = |error: io::Error| {
        let message = format_args!(
            "the relay ended the connection before it answered: {error}; its log has the reason, e.g. too many connections"
        );
        of_relay(message)
    };
    let head = connect_head::write_request(request);
    stream.write_all(head.as_bytes()).await.map_err(lost)?;
    let (mut buffer, mut received) = ([0; MAX_HEAD_BYTES], 0);
    loop {
        let read = stream.read(&mut buffer[received..]).await.map_err(lost)?;
        if read == 0 {
            return Err(lost(io::ErrorKind::UnexpectedEof.into()));
        }
        received += read;
        let head = connect_head::parse_answer(&buffer[..received]).map_err(|error| {
            let message = format_args!(
                "the relay sent no valid answer: {error}; does spec.relay.address have the port of `virtfleet-collector relay`?"
            );
            of_relay(message)
        })?;
        let Some(head) = head else { continue };
        // An agent sends nothing before the client's first TLS record.
        if head.length < received {
            let message = "the relay sent data of its own before TLS began";
            return Err(of_relay(message));
        }
        return answered(request.destination, &head.content);
    }
}

/// A failure of the relay itself.
fn of_relay(message: impl fmt::Display) -> Failure {
    Failure::new(FailureClass::Connect, message).at(FailurePoint::Relay)
}

fn answered(destination: SocketAddr, answer: &ConnectAnswer) -> Result<(), Failure> {
    let class = match answer.status {
        200 => return Ok(()),
        403 => FailureClass::NotAllowed,
        504 => FailureClass::Timeout,
        _ => FailureClass::Connect,
    };
    let message = format_args!(
        "the relay did not connect to {destination}: {} {}",
        answer.status, answer.reason
    );
    Err(Failure::new(class, message))
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::net::TcpListener;
    use virtfleet_collector_core::pull_result::PullResult;

    use super::*;

    fn target(relay: SocketAddr, allow: &str) -> DialTarget {
        DialTarget {
            key: virtfleet_wire::ids::VmKey {
                namespace: "ns".parse().unwrap(),
                name: "vm".parse().unwrap(),
            },
            uid: None,
            vm_uid: None,
            address: "10.0.0.5:10911".parse().unwrap(),
            way: AgentWay::Relay(RelayWay {
                cluster: "a".parse().unwrap(),
                address: relay.to_string().parse().unwrap(),
                allow: Arc::new([allow.parse().unwrap()]),
                pull_interval: Some(Duration::from_secs(30)),
            }),
        }
    }

    /// The failure of a connection through a relay that answers `reply` and ends.
    async fn failure(reply: &'static [u8]) -> Failure {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = target(listener.local_addr().unwrap(), "127.0.0.0/8");
        let relay = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 256];
            let read = stream.read(&mut head).await.unwrap();
            stream.write_all(reply).await.unwrap();
            String::from_utf8_lossy(&head[..read]).into_owned()
        });
        let failure = connect(&target, &mut None).await.unwrap_err();
        let head = relay.await.unwrap();
        assert!(head.starts_with("CONNECT 10.0.0.5:10911 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nVirtfleet-Pull-Interval: 30\r\n"), "{head}");
        failure
    }

    fn is_verified(failure: &Failure) -> bool {
        let result = PullResult {
            vm: target("127.0.0.1:1".parse().unwrap(), "127.0.0.0/8").key,
            at: 0,
            address: None,
            pushed: false,
            outcome: Err(failure.clone()),
        };
        result.is_verified()
    }

    #[tokio::test]
    async fn an_answer_other_than_200_is_a_failure_with_its_reason() {
        for (reply, class, part) in [
            (
                &b"HTTP/1.1 403 10.0.0.5 is not allowed\r\n\r\n"[..],
                FailureClass::NotAllowed,
                "403 10.0.0.5 is not allowed",
            ),
            (
                b"HTTP/1.1 504 no answer\r\n\r\n",
                FailureClass::Timeout,
                "504 no answer",
            ),
            (
                b"HTTP/1.1 502 refused\r\n\r\n",
                FailureClass::Connect,
                "502 refused",
            ),
            (b"HTTP/1.1 999 \x1b[2J\r\n\r\n", FailureClass::Connect, "\\u{1b}"),
            (b"", FailureClass::Connect, "ended the connection"),
            (b"SSH-2.0-x\r\n", FailureClass::Connect, "spec.relay.address"),
            (
                b"HTTP/1.1 200 ok\r\n\r\n\x16\x03",
                FailureClass::Connect,
                "before TLS",
            ),
            (&[b'H'; 2000], FailureClass::Connect, "spec.relay.address"),
        ] {
            let failure = failure(reply).await;
            assert_eq!(failure.class, class, "{failure:?}");
            assert!(!is_verified(&failure), "a relay verifies nothing: {failure:?}");
            assert!(failure.message().contains(part), "{failure:?}");
            let is_about_the_vm = failure.message().contains("did not connect");
            let point = (!is_about_the_vm).then_some(FailurePoint::Relay);
            assert_eq!(failure.point, point, "{failure:?}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_is_told_from_one_that_is_lost() {
        // A port that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let direct = DialTarget {
            address,
            way: AgentWay::Direct,
            ..target(address, "127.0.0.0/8")
        };
        let failure = connect(&direct, &mut None).await.unwrap_err();
        assert_eq!(failure.point, Some(FailurePoint::Refused), "{failure:?}");
        let relayed = target(address, "127.0.0.0/8");
        let failure = connect(&relayed, &mut None).await.unwrap_err();
        assert_eq!(failure.point, Some(FailurePoint::Relay), "{failure:?}");
    }

    #[tokio::test]
    async fn a_relay_in_a_special_range_needs_an_entry() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = target(listener.local_addr().unwrap(), "0.0.0.0/0");
        let failure = connect(&target, &mut None).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NotAllowed);
        assert!(failure.message().contains("loopback"), "{failure:?}");
    }
}
