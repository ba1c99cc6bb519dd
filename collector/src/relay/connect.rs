//! From a collector to a VM: reads the request, checks the destination, connects, answers.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use virtfleet_collector_core::{
    connect_head::{self, ConnectRequest, Head, HeadError, MAX_HEAD_BYTES},
    dial::{DialRules, Refusal},
};

use super::{metrics::RelayResult, stop::RelayStop};

/// Maximum time for a collector to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for a collector to accept an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A destination that was not connected.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) result: RelayResult,
    /// For the log and for the answer.
    pub(super) reason: String,
}

/// A connection to a VM, and the bytes that the collector sent after its request.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) stream: TcpStream,
    pub(super) early: Vec<u8>,
    pub(super) request: ConnectRequest,
}

/// Reads the request of a collector, connects and answers.
pub(super) async fn connect(
    collector: &mut TcpStream,
    rules: &DialRules,
    connect_timeout: Duration,
    stop: &RelayStop,
) -> Result<Connected, Refused> {
    let request = tokio::select! {
        request = request(collector) => request,
        () = stop.drain.cancelled() => Err(Refused {
            result: RelayResult::Stopped,
            reason: "the relay stops".to_owned(),
        }),
    };
    let connected = match request {
        Ok((request, early)) => dial(request.destination, rules, connect_timeout)
            .await
            .map(|stream| Connected {
                stream,
                early,
                request,
            }),
        Err(refused) => Err(refused),
    };
    let (status, reason) = match &connected {
        Ok(_) => (200, "connected"),
        Err(refused) => (status(refused.result), refused.reason.as_str()),
    };
    let answer = connect_head::write_answer(status, reason);
    let written = timeout(ANSWER_TIMEOUT, collector.write_all(answer.as_bytes())).await;
    if connected.is_ok() && !matches!(written, Ok(Ok(()))) {
        return Err(Refused {
            result: RelayResult::Broken,
            reason: "the collector did not receive the answer".to_owned(),
        });
    }
    connected
}

fn status(result: RelayResult) -> u16 {
    match result {
        RelayResult::NotAllowed => 403,
        RelayResult::Timeout => 504,
        RelayResult::Malformed => 400,
        RelayResult::Stopped => 503,
        _ => 502,
    }
}

/// The request, and the bytes after it.
async fn request(collector: &mut TcpStream) -> Result<(ConnectRequest, Vec<u8>), Refused> {
    let malformed = |reason: String| Refused {
        result: RelayResult::Malformed,
        reason,
    };
    let mut buffer = [0; MAX_HEAD_BYTES];
    let read = timeout(REQUEST_TIMEOUT, read_head(collector, &mut buffer));
    match read.await {
        Ok(Ok((head, received))) => Ok((head.content, buffer[head.length..received].to_vec())),
        Ok(Err(error)) => Err(malformed(format!("no request: {error}"))),
        Err(_) => Err(malformed(format!("no request within {REQUEST_TIMEOUT:?}"))),
    }
}

async fn read_head(
    collector: &mut TcpStream,
    buffer: &mut [u8; MAX_HEAD_BYTES],
) -> io::Result<(Head<ConnectRequest>, usize)> {
    let mut received = 0;
    loop {
        let read = collector.read(&mut buffer[received..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received += read;
        let head = connect_head::parse_request(&buffer[..received]);
        if let Some(head) = head.map_err(|error: HeadError| io::Error::other(error))? {
            return Ok((head, received));
        }
    }
}

async fn dial(
    destination: SocketAddr,
    rules: &DialRules,
    connect_timeout: Duration,
) -> Result<TcpStream, Refused> {
    check(destination, rules).map_err(|reason| Refused {
        result: RelayResult::NotAllowed,
        reason,
    })?;
    match timeout(connect_timeout, TcpStream::connect(destination)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(Refused {
            result: RelayResult::Unreachable,
            reason: format!("cannot connect to {destination}: {error}"),
        }),
        Err(_) => Err(Refused {
            result: RelayResult::Timeout,
            reason: format!("{destination} did not answer within {connect_timeout:?}"),
        }),
    }
}

/// Why a destination is not allowed.
fn check(destination: SocketAddr, rules: &DialRules) -> Result<(), String> {
    if destination.port() != rules.port() {
        return Err(format!(
            "the port of {destination} is not {}, which --connect.port allows",
            rules.port()
        ));
    }
    let address = destination.ip();
    rules.check(address).map_err(|refusal| match refusal {
        Refusal::Special(range) => format!(
            "{address} is {range}, which only an entry of --connect.allow-cidrs inside that range allows"
        ),
        _ => format!("{address} is not in --connect.allow-cidrs"),
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

    fn rules(allow: &str, port: u16) -> DialRules {
        DialRules::new(vec![allow.parse().unwrap()], Vec::new(), port)
    }

    fn write_request(destination: SocketAddr) -> String {
        connect_head::write_request(&ConnectRequest {
            destination,
            pull_interval: Some(Duration::from_mins(7)),
        })
    }

    /// The relay's answer to `request`, and its own result.
    async fn answer(request: &str, rules: &DialRules) -> (String, Result<Connected, Refused>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let result = connect(&mut accepted, rules, SHORT_TIMEOUT, &RelayStop::default()).await;
        drop(accepted);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        (text, result)
    }

    #[tokio::test]
    async fn only_allowed_destinations_are_dialled() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let destination = listener.local_addr().unwrap();
        let request = write_request(destination);
        let allowed = rules("127.0.0.0/8", destination.port());
        let (text, result) = answer(&(request.clone() + "early"), &allowed).await;
        assert_eq!(text, "HTTP/1.1 200 connected\r\n\r\n");
        let connected = result.unwrap();
        assert_eq!(connected.early, b"early");
        assert_eq!(
            connected.request.idle_timeout(SHORT_TIMEOUT),
            Duration::from_mins(14)
        );
        for (rules, part) in [
            (rules("0.0.0.0/0", destination.port()), "loopback"),
            (rules("10.0.0.0/8", destination.port()), "loopback"),
            (rules("127.0.0.0/8", 1), "--connect.port"),
        ] {
            let (text, result) = answer(&request, &rules).await;
            assert!(text.starts_with("HTTP/1.1 403 ") && text.contains(part), "{text}");
            assert_eq!(result.unwrap_err().result, RelayResult::NotAllowed);
        }
        let outside = write_request("10.1.0.1:1".parse().unwrap());
        let (text, _) = answer(&outside, &rules("10.0.0.0/16", 1)).await;
        assert!(
            text.contains("403 10.1.0.1 is not in --connect.allow-cidrs"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_destination_that_cannot_be_reached_is_named() {
        let free = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let allowed = rules("127.0.0.0/8", free.port());
        let (text, result) = answer(&write_request(free), &allowed).await;
        assert!(
            text.starts_with("HTTP/1.1 502 ") && text.contains("refused"),
            "{text}"
        );
        assert_eq!(result.unwrap_err().result, RelayResult::Unreachable);
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        let allowed = rules("127.0.0.0/8", 1);
        for request in [
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "\u{16}\u{3}\u{1}".to_owned(),
            "CONNECT ".to_owned() + &"1".repeat(MAX_HEAD_BYTES - 8),
        ] {
            let (text, result) = answer(&request, &allowed).await;
            assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
            assert_eq!(result.unwrap_err().result, RelayResult::Malformed);
        }
    }
}
