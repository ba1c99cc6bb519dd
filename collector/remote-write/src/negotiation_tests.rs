use std::time::SystemTime;

use super::*;
use crate::{AnswerHeaders, RefusedReason, RetryReason, Sent, judge};

const V2: WireForm = WireForm {
    protocol: Protocol::V2,
    compression: Compression::Snappy,
};
const V1: WireForm = WireForm {
    protocol: Protocol::V1,
    compression: Compression::Snappy,
};
const V1_ZSTD: WireForm = WireForm {
    protocol: Protocol::V1,
    compression: Compression::Zstd,
};

/// A receiver: the forms that it accepts, and its status for others.
struct Receiver {
    accepts: &'static [WireForm],
    otherwise: u16,
    /// It answers requests in other forms with 2xx and without headers.
    careless: bool,
}

const PROMETHEUS: Receiver = Receiver {
    accepts: &[V2, V1],
    otherwise: 415,
    careless: false,
};
const CORTEX_1_0: Receiver = Receiver {
    accepts: &[V1],
    otherwise: 400,
    careless: false,
};
const VICTORIA: Receiver = Receiver {
    accepts: &[V1, V1_ZSTD],
    otherwise: 400,
    careless: true,
};

/// Sends one request until it is delivered or refused; returns the forms that were used.
fn send(negotiation: &mut Negotiation, receiver: &Receiver, now: Duration) -> (Vec<WireForm>, Verdict) {
    let mut forms = Vec::new();
    for _ in 0..5 {
        let (form, unproven) = negotiation.next(now);
        forms.push(form);
        let accepted = receiver.accepts.contains(&form);
        let careless = receiver.careless && form.compression == Compression::Snappy;
        let status = if accepted || careless {
            204
        } else {
            receiver.otherwise
        };
        let written = (accepted && form.protocol == Protocol::V2).then_some("5");
        let headers = AnswerHeaders::read(|name| written.filter(|_| name.ends_with("samples-written")));
        let sent = Sent {
            form,
            samples: 5,
            unproven,
        };
        let verdict = judge(status, &headers, sent, SystemTime::UNIX_EPOCH);
        let verdict = negotiation.answered(now, status, 5, verdict);
        if !matches!(verdict, Verdict::UseProtocol(_) | Verdict::UseCompression(_)) {
            return (forms, verdict);
        }
    }
    panic!("no end: {forms:?}");
}

fn auto() -> Negotiation {
    Negotiation::new(ProtocolSetting::Auto, CompressionSetting::Auto)
}

#[test]
fn a_receiver_of_2_0_gets_2_0_from_the_first_request_on() {
    let mut negotiation = auto();
    for minute in 0..200 {
        let (forms, verdict) = send(&mut negotiation, &PROMETHEUS, Duration::from_mins(minute));
        assert_eq!(forms, [V2]);
        assert_eq!(verdict, Verdict::Delivered { written: Some(5) });
    }
    assert!(negotiation.proven());
}

#[test]
fn a_receiver_of_1_0_gets_1_0_and_every_hour_one_trial_of_2_0() {
    let mut negotiation = auto();
    let (mut trials, mut requests) = (0, 0);
    for minute in 0..=180 {
        let (forms, verdict) = send(&mut negotiation, &CORTEX_1_0, Duration::from_mins(minute));
        assert_eq!(verdict, Verdict::Delivered { written: None });
        trials += usize::from(forms[0] == V2);
        requests += forms.len();
        assert_eq!(forms.last(), Some(&V1));
    }
    assert_eq!((trials, requests), (4, 181 + 4), "at 0, 60, 120 and 180 minutes");
}

#[test]
fn a_receiver_that_swallows_2_0_is_found_out_and_gets_zstd_if_it_accepts_it() {
    let mut negotiation = auto();
    let (forms, _) = send(&mut negotiation, &VICTORIA, Duration::ZERO);
    assert_eq!(forms, [V2, V1_ZSTD]);
    let (forms, _) = send(&mut negotiation, &VICTORIA, Duration::from_secs(1));
    assert_eq!(forms, [V1_ZSTD]);

    let careless = Receiver {
        accepts: &[V1],
        ..VICTORIA
    };
    let mut negotiation = auto();
    assert_eq!(
        send(&mut negotiation, &careless, Duration::ZERO).0,
        [V2, V1_ZSTD, V1]
    );
    assert_eq!(send(&mut negotiation, &careless, Duration::from_secs(1)).0, [V1]);
}

#[test]
fn after_a_restart_the_preferred_form_is_tried_again_but_not_more_than_once_a_minute() {
    let mut negotiation = auto();
    let at = Duration::from_secs;
    assert_eq!(send(&mut negotiation, &CORTEX_1_0, at(0)).0, [V2, V1]);
    negotiation.unreachable();
    assert_eq!(send(&mut negotiation, &CORTEX_1_0, at(30)).0, [V1], "too early");
    assert_eq!(send(&mut negotiation, &CORTEX_1_0, at(60)).0, [V2, V1]);
    assert_eq!(
        send(&mut negotiation, &CORTEX_1_0, at(120)).0,
        [V1],
        "reachable since"
    );
    let unavailable = Verdict::Retry {
        after: None,
        reason: RetryReason::ServerError,
    };
    negotiation.next(at(121));
    negotiation.answered(at(121), 503, 5, unavailable);
    // The upgraded receiver.
    assert_eq!(send(&mut negotiation, &PROMETHEUS, at(122)).0, [V2]);
    assert_eq!(negotiation.form(), V2);
}

#[test]
fn invalid_samples_cost_one_more_request_and_leave_2_0_in_use() {
    let strict = Receiver {
        accepts: &[],
        otherwise: 400,
        careless: false,
    };
    let mut negotiation = auto();
    let (forms, verdict) = send(&mut negotiation, &strict, Duration::ZERO);
    assert_eq!(forms, [V2, V1]);
    let invalid = Verdict::Refused {
        reason: RefusedReason::Invalid,
        samples: 5,
    };
    assert_eq!(verdict, invalid);
    let (forms, verdict) = send(&mut negotiation, &strict, Duration::from_secs(1));
    assert_eq!(
        (forms.as_slice(), verdict),
        (&[V2][..], invalid),
        "not doubted for a minute"
    );
    assert_eq!(
        send(&mut negotiation, &PROMETHEUS, Duration::from_secs(2)).0,
        [V2]
    );
}

#[test]
fn fixed_settings_are_kept_and_their_refusal_is_counted() {
    let unsupported = Verdict::Refused {
        reason: RefusedReason::Unsupported,
        samples: 5,
    };
    let mut fixed = Negotiation::new(ProtocolSetting::V2, CompressionSetting::Auto);
    assert_eq!(
        send(&mut fixed, &VICTORIA, Duration::ZERO),
        (vec![V2], unsupported.clone())
    );
    let mut fixed = Negotiation::new(ProtocolSetting::V1, CompressionSetting::Snappy);
    assert_eq!(send(&mut fixed, &PROMETHEUS, Duration::ZERO).0, [V1]);
    let mut zstd = Negotiation::new(ProtocolSetting::Auto, CompressionSetting::Zstd);
    let only_415 = Receiver {
        accepts: &[V1],
        otherwise: 415,
        careless: false,
    };
    assert_eq!(
        send(&mut zstd, &only_415, Duration::ZERO),
        (vec![V1_ZSTD], unsupported)
    );
    let mut auto_zstd = Negotiation::new(ProtocolSetting::V1, CompressionSetting::Auto);
    assert_eq!(send(&mut auto_zstd, &CORTEX_1_0, Duration::ZERO).0, [V1_ZSTD, V1]);
    assert!(check_settings(ProtocolSetting::V2, CompressionSetting::Zstd).is_err());
    assert!(check_settings(ProtocolSetting::Auto, CompressionSetting::Zstd).is_ok());
}
