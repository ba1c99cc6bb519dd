//! Connections: kept, bounded in time and size, never redirected.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use virtfleet_collector::mla::send::{Backoff, SendFailure, SendResult};
use virtfleet_remote_write::RetryReason;
use virtfleet_tests::{
    ports,
    remote_write::{Recorder, Reply},
    wait,
};

use super::{Sending, at, one};

fn failure(result: &SendResult) -> SendFailure {
    match result {
        SendResult::Retry { reason, .. } => *reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_connection_serves_all_requests_and_a_new_one_follows_a_closed_one() {
    let recorder = Recorder::start(|number, _| {
        let reply = Reply {
            body: "x".repeat(2000).into(),
            ..Reply::status(if number % 2 == 0 { 200 } else { 500 }).written(1)
        };
        (number != 10).then_some(reply)
    })
    .unwrap();
    let sending = Sending::to(at(recorder.address()));
    for _ in 0..10 {
        sending.send(&one(1.0));
    }
    let broken = sending.send(&one(1.0));
    assert_eq!(failure(&broken.result), SendFailure::Interrupted, "{broken:?}");
    assert_eq!(broken.status, None);
    sending.send(&one(1.0));
    let connections: Vec<usize> = recorder.recorded().iter().map(|sent| sent.connection).collect();
    assert_eq!(connections, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_redirect_is_not_followed() {
    let other = Recorder::start(|_, _| Some(Reply::status(204).written(1))).unwrap();
    let target = format!("http://{}/elsewhere", other.address());
    for status in [301, 302, 303, 307, 308] {
        let target = target.clone();
        let recorder =
            Recorder::start(move |_, _| Some(Reply::status(status).header("location", &target))).unwrap();
        let outcome = Sending::to(at(recorder.address())).send(&one(1.0));
        let reason = SendFailure::Answer(RetryReason::Redirect);
        assert_eq!(failure(&outcome.result), reason, "{status}");
    }
    assert!(other.recorded().is_empty());
}

/// A server that answers each request with the next of these texts, and then always with the last.
fn raw(head: &'static [u8], again: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        if stream.read(&mut buffer).is_err() || stream.write_all(head).is_err() {
            return;
        }
        while !again.is_empty() && stream.write_all(again).is_ok() {}
        // Until the sender gives up.
        drop(stream.read(&mut buffer));
    });
    address
}

#[test]
fn a_silent_endless_or_mad_receiver_costs_a_bounded_time() {
    let endless: &[u8] = &[b'x'; 16 << 10];
    for (name, head, again, expected) in [
        ("silent", &b""[..], &b""[..], SendFailure::Timeout),
        ("half a head", b"HTTP/1.1 500 x\r\nA: ", b"", SendFailure::Timeout),
        (
            "endless head",
            b"HTTP/1.1 500 x\r\nA: ",
            endless,
            SendFailure::Interrupted,
        ),
        (
            "endless body",
            b"HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"4\r\nxxxx\r\n",
            SendFailure::Answer(RetryReason::ServerError),
        ),
        (
            "half a body",
            b"HTTP/1.1 503 x\r\nContent-Length: 10\r\n\r\nxxx",
            b"",
            SendFailure::Answer(RetryReason::ServerError),
        ),
        ("no HTTP", b"SSH-2.0-OpenSSH\r\n", b"", SendFailure::Interrupted),
    ] {
        let mut endpoint = at(raw(head, again));
        // Others have their answer before the timeout, also on a busy machine, or never.
        endpoint.timeout = Duration::from_millis(match expected {
            SendFailure::Timeout => 700,
            _ => 3000,
        });
        let bound = endpoint.timeout + wait::PROMPT;
        let start = Instant::now();
        let outcome = Sending::to(endpoint).send(&one(1.0));
        assert_eq!(failure(&outcome.result), expected, "{name}: {outcome:?}");
        assert!(start.elapsed() < bound, "{name}");
        let SendResult::Retry { message, .. } = outcome.result else {
            unreachable!("checked above");
        };
        assert!(message.chars().count() < 400, "{name}");
    }
}

#[test]
fn a_receiver_that_is_down_gets_the_request_when_it_is_back() {
    let address = ports::free().unwrap();
    let sending = Sending::to(at(address));
    let outcome = sending.send(&one(1.0));
    assert_eq!(failure(&outcome.result), SendFailure::Connect, "{outcome:?}");
    assert_eq!((outcome.requests, outcome.status), (1, None));
}

/// Retries as the streams do: the delays grow, and the request arrives once the receiver answers.
#[test]
fn retries_back_off_until_the_request_is_accepted() {
    let recorder = Recorder::start(|number, _| {
        Some(match number {
            0..3 => Reply::status(503),
            _ => Reply::status(204).written(1),
        })
    })
    .unwrap();
    let sending = Sending::to(at(recorder.address()));
    let (mut backoff, mut now, mut delays) = (Backoff::new(), Duration::ZERO, Vec::new());
    let request = one(1.0);
    loop {
        match sending.send(&request).result {
            SendResult::Retry { after, .. } => {
                let next = backoff.failed(now, after, 0.5);
                delays.push(next.checked_sub(now).unwrap());
                now = next;
            }
            SendResult::Delivered { .. } => break,
            refused @ SendResult::Refused { .. } => panic!("{refused:?}"),
        }
    }
    assert_eq!(delays, [500, 1000, 2000].map(Duration::from_millis));
    let bodies: Vec<_> = recorder.recorded().into_iter().map(|sent| sent.body).collect();
    assert!(
        bodies.windows(2).all(|pair| pair[0] == pair[1]),
        "the same request"
    );
}
