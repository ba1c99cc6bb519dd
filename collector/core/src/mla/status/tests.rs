//! Tests of the types.

use super::*;

#[test]
fn secrets_of_a_url_are_not_shown() {
    for (url, host) in [
        (
            "https://user:pass@gw.example:8080/api/prom/push?token=x",
            Some("gw.example:8080"),
        ),
        ("http://GW.example", Some("gw.example")),
        ("https://a@b@[2001:db8::1]:443#x", Some("[2001:db8::1]:443")),
        ("https://user:p/a@host/", None),
        ("https:///push", None),
        ("gw.example/push", None),
        ("https://user:pass@", None),
        ("https://a\\@evil/", None),
    ] {
        assert_eq!(endpoint_host(url).as_deref(), host, "{url}");
    }
}

#[test]
fn names_of_streams_are_text() {
    for name in ["fleet", "cluster/fleet", "cluster/blue.example"] {
        let parsed: StreamName = name.parse().unwrap();
        assert_eq!(parsed.to_string(), name);
        let json = serde_json::to_string(&parsed).unwrap();
        assert_eq!(json, format!("{name:?}"));
        assert_eq!(serde_json::from_str::<StreamName>(&json).unwrap(), parsed);
    }
    for bad in ["", "blue", "cluster/", "cluster/A B", "Fleet"] {
        let error = bad.parse::<StreamName>().unwrap_err().to_string();
        assert!(error.contains("is not a stream: use fleet"), "{error}");
    }
}

#[test]
fn counts_have_one_number_for_each_reason() {
    let mut dropped = DroppedSamples::default();
    for (number, reason) in DropReason::ALL.iter().enumerate() {
        dropped.add(*reason, number as u64 + 1);
    }
    dropped.add(DropReason::QueueFull, u64::MAX);
    assert_eq!(dropped.get(DropReason::QueueFull), u64::MAX);
    assert_eq!((dropped.limit, dropped.total()), (6, u64::MAX));
    let read: DroppedSamples = serde_json::from_str(r#"{"tooOld": 3}"#).unwrap();
    assert_eq!((read.too_old, read.total()), (3, 3));
    assert_eq!(RefusalReason::of_status(403), RefusalReason::Unauthorized);
    assert_eq!(RefusalReason::of_status(409), RefusalReason::Other);
}

#[test]
fn the_words_are_those_of_json() {
    for reason in [
        TargetErrorReason::PullFailed,
        TargetErrorReason::Malformed,
        TargetErrorReason::OverLimit,
    ] {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
    for protocol in [StreamProtocol::V1, StreamProtocol::V2] {
        assert_eq!(serde_json::to_value(protocol).unwrap(), protocol.as_str());
    }
    for compression in [StreamCompression::Snappy, StreamCompression::Zstd] {
        assert_eq!(serde_json::to_value(compression).unwrap(), compression.as_str());
    }
}

#[test]
fn messages_are_short_and_on_one_line() {
    assert_eq!(status_message("a\nb\u{1b}[31m"), "a\\u{a}b\\u{1b}[31m");
    let long = status_message(&"ä".repeat(1000));
    assert!(
        long.len() <= MAX_STATUS_MESSAGE_BYTES && long.ends_with('…'),
        "{}",
        long.len()
    );
}

#[test]
fn an_endpoint_is_up_when_its_last_request_succeeded() {
    let mut view = QueueStatusView::new(StreamName::Fleet, StreamState::Live);
    assert_eq!(view.is_endpoint_up(), None);
    view.last_error = Some(StreamError {
        at_ms: 5,
        message: "connection refused".to_owned(),
        status: None,
    });
    assert_eq!(view.is_endpoint_up(), Some(false));
    view.last_success_ms = Some(6);
    assert_eq!(view.is_endpoint_up(), Some(true));
    view.last_success_ms = Some(4);
    assert_eq!(view.is_endpoint_up(), Some(false));
    assert_eq!((view.oldest_age_ms(9), view.last_error.is_some()), (0, true));
    view.oldest_ms = Some(4);
    assert_eq!(view.oldest_age_ms(9), 5);
}

#[test]
fn a_summary_names_the_gravest_streams_first() {
    let stream = |name: &str, state| QueueStatusView {
        bytes: 10,
        oldest_ms: Some(5),
        ..QueueStatusView::new(name.parse().unwrap(), state)
    };
    assert_eq!(
        MlaSummary::of(&[stream("fleet", StreamState::NotConfigured)]),
        None
    );
    let mut all = vec![
        stream("fleet", StreamState::NotConfigured),
        stream("cluster/a", StreamState::Live),
        stream("cluster/b", StreamState::CatchingUp),
    ];
    let summary = MlaSummary::of(&all).unwrap();
    assert_eq!((summary.streams, summary.live, summary.not_live_total), (2, 1, 1));
    assert_eq!(
        (summary.backlog_bytes, summary.oldest_ms, summary.needs_action()),
        (30, Some(5), false)
    );
    all.push(stream("cluster/z", StreamState::Stopped));
    all.extend((0..20).map(|number| stream(&format!("cluster/r{number}"), StreamState::Retrying)));
    let summary = MlaSummary::of(&all).unwrap();
    assert_eq!((summary.not_live.len(), summary.not_live_total), (10, 22));
    assert_eq!(summary.not_live[0].stream.to_string(), "cluster/z");
    assert!(summary.needs_action());
}
