//! What the specification requires after each answer: retry, give up, or another version.

use std::time::Duration;

use virtfleet_collector::mla::send::{SendFailure, SendOutcome, SendRefusal, SendResult};
use virtfleet_remote_write::{Protocol, RefusedReason, RetryReason};
use virtfleet_tests::remote_write::{Recorder, Reply};

use super::{Sending, at, one};

/// Sends one request to a receiver that first accepts one of 2.0 and then answers so.
fn proven(reply: Reply) -> (SendOutcome, usize) {
    let recorder = Recorder::start(move |number, _| {
        Some(match number {
            0 => Reply::status(204).written(1),
            _ => reply.clone(),
        })
    })
    .unwrap();
    let sending = Sending::to(at(recorder.address()));
    sending.send(&one(0.0));
    let outcome = sending.send(&one(1.0));
    (outcome, recorder.recorded().len() - 1)
}

#[test]
fn every_2xx_is_success_and_its_body_is_ignored() {
    for status in [200, 201, 202, 204, 206, 299] {
        let body = if status == 204 {
            ""
        } else {
            "error: {\"not\": \"read\"}"
        };
        let reply = Reply {
            body: body.into(),
            ..Reply::status(status).written(1)
        };
        let (outcome, requests) = proven(reply);
        let delivered = SendResult::Delivered {
            written: Some(1),
            missing: 0,
        };
        assert_eq!((outcome.result, requests), (delivered, 1), "{status}");
    }
}

#[test]
fn every_4xx_but_415_and_429_is_given_up_after_one_request() {
    for status in [
        400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 414, 422, 431, 451, 499,
    ] {
        let reply = Reply {
            body: "out of bounds:\u{1b}[2J <b>'__invalid__'</b>\n".into(),
            ..Reply::status(status)
        };
        let (outcome, requests) = proven(reply);
        let SendResult::Refused { samples, message, .. } = outcome.result else {
            panic!("{status}: {outcome:?}");
        };
        assert_eq!((samples, requests), (1, 1), "{status}");
        assert_eq!(
            message,
            format!("status {status}: out of bounds:\\u{{1b}}[2J <b>'__invalid__'</b>"),
            "as it is, but harmless on a terminal"
        );
    }
}

#[test]
fn every_5xx_is_kept_for_a_retry_with_the_time_that_the_receiver_asks_for() {
    for status in [500, 501, 502, 503, 504, 507, 599] {
        for (header, after) in [(None, None), (Some("17"), Some(17)), (Some("x"), None)] {
            let reply = Reply::status(status);
            let reply = header.map_or(reply.clone(), |value| reply.header("retry-after", value));
            let (outcome, requests) = proven(reply);
            let SendResult::Retry {
                after: asked, reason, ..
            } = outcome.result
            else {
                panic!("{status}: {outcome:?}");
            };
            assert_eq!(asked, after.map(Duration::from_secs), "{status}");
            assert_eq!(reason, SendFailure::Answer(RetryReason::ServerError));
            assert_eq!(requests, 1, "the caller waits");
        }
    }
}

#[test]
fn a_429_is_kept_with_retry_after_as_seconds_or_date() {
    let (outcome, _) = proven(Reply::status(429).header("retry-after", 30));
    let SendResult::Retry { after, reason, .. } = outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(after, Some(Duration::from_secs(30)));
    assert_eq!(reason, SendFailure::Answer(RetryReason::TooManyRequests));
    let date = "Fri, 01 Jan 2100 00:00:00 GMT";
    let (outcome, _) = proven(Reply::status(429).header("retry-after", date));
    let SendResult::Retry { after, .. } = outcome.result else {
        panic!("{outcome:?}");
    };
    assert!(after.unwrap() > Duration::from_hours(24 * 365));
}

#[test]
fn a_partial_write_is_given_up_and_only_what_was_not_written_is_counted() {
    let rows: Vec<_> = ["a", "b", "c"]
        .map(|vm| ("t", vm, super::now_ms(), 1.0, 0))
        .to_vec();
    let recorder = Recorder::start(|_, _| Some(Reply::status(400).written(2))).unwrap();
    let outcome = Sending::to(at(recorder.address())).send(&super::request(&rows));
    let SendResult::Refused { reason, samples, .. } = outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(reason, SendRefusal::Answer(RefusedReason::PartialWrite));
    assert_eq!((samples, recorder.recorded().len()), (1, 1));

    let recorder = Recorder::start(|_, _| Some(Reply::status(200).written(2))).unwrap();
    let outcome = Sending::to(at(recorder.address())).send(&super::request(&rows));
    let accepted = SendResult::Delivered {
        written: Some(2),
        missing: 1,
    };
    assert_eq!(outcome.result, accepted);

    // Cortex' HA tracker.
    let recorder = Recorder::start(|_, _| Some(Reply::status(202).written(0))).unwrap();
    let outcome = Sending::to(at(recorder.address())).send(&super::request(&rows));
    let deduplicated = SendResult::Delivered {
        written: Some(0),
        missing: 0,
    };
    assert_eq!(outcome.result, deduplicated);
}

/// A receiver of 1.0 that shows it in this way.
fn receiver_of_1_0(other: u16) -> Recorder {
    Recorder::start(move |_, request| {
        let old = request.header("x-prometheus-remote-write-version") == "0.1.0";
        let snappy = request.header("content-encoding") == "snappy";
        Some(Reply::status(if old && snappy { 204 } else { other }))
    })
    .unwrap()
}

#[test]
fn a_receiver_of_1_0_gets_1_0_at_once_and_from_then_on() {
    // 415 as it must be, 400 as old receivers do, 200 without the headers of 2.0.
    for (other, first) in [(415, 3), (400, 2), (200, 2)] {
        let recorder = receiver_of_1_0(other);
        let sending = Sending::to(at(recorder.address()));
        let outcome = sending.send(&one(1.0));
        let delivered = SendResult::Delivered {
            written: None,
            missing: 0,
        };
        assert_eq!(outcome.result, delivered, "{other}");
        assert_eq!(outcome.form.protocol, Protocol::V1, "{other}");
        assert_eq!(outcome.requests, first, "{other}");
        for _ in 0..5 {
            assert_eq!(sending.send(&one(2.0)).requests, 1, "{other}");
        }
        let versions: Vec<String> = recorder
            .recorded()
            .iter()
            .map(|sent| sent.header("x-prometheus-remote-write-version").to_owned())
            .collect();
        assert_eq!(versions.iter().filter(|version| *version == "2.0.0").count(), 1);
        assert_eq!(versions[0], "2.0.0", "the newest first");
    }
}

#[test]
fn a_receiver_of_2_0_is_never_sent_1_0() {
    let recorder = Recorder::start(|number, _| {
        Some(match number % 4 {
            1 => Reply::status(503),
            2 => Reply::status(400),
            3 => Reply::status(429),
            _ => Reply::status(204).written(1),
        })
    })
    .unwrap();
    let sending = Sending::to(at(recorder.address()));
    for _ in 0..12 {
        sending.send(&one(1.0));
    }
    let requests = recorder.recorded();
    assert_eq!(requests.len(), 12);
    for sent in requests {
        assert_eq!(sent.header("x-prometheus-remote-write-version"), "2.0.0");
    }
}

#[test]
fn a_request_that_no_receiver_takes_is_given_up_after_one_of_each_version() {
    let recorder = Recorder::start(|_, _| Some(Reply::status(400))).unwrap();
    let sending = Sending::to(at(recorder.address()));
    for expected in [2, 1] {
        let outcome = sending.send(&one(1.0));
        let SendResult::Refused { reason, .. } = outcome.result else {
            panic!("{outcome:?}");
        };
        assert_eq!(reason, SendRefusal::Answer(RefusedReason::Invalid));
        assert_eq!(outcome.requests, expected);
    }
}
