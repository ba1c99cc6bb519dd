//! Each rule of the specification for answers, as a table.

use super::*;

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

fn answer(status: u16, headers: &[(&str, &str)], form: WireForm, unproven: bool) -> Verdict {
    let headers = AnswerHeaders::read(|name| {
        headers
            .iter()
            .find_map(|(key, value)| (*key == name).then_some(*value))
    });
    let sent = Sent {
        form,
        samples: 10,
        unproven,
    };
    judge(status, &headers, sent, SystemTime::UNIX_EPOCH)
}

const SAMPLES: &str = "x-prometheus-remote-write-samples-written";
const EXEMPLARS: &str = "x-prometheus-remote-write-exemplars-written";

fn delivered(written: Option<u64>) -> Verdict {
    Verdict::Delivered { written }
}

fn refused(reason: RefusedReason, samples: u32) -> Verdict {
    Verdict::Refused { reason, samples }
}

#[test]
fn a_2xx_is_a_delivery_and_without_headers_the_sign_of_a_receiver_of_1_0() {
    for status in [200, 202, 204, 299] {
        assert_eq!(answer(status, &[(SAMPLES, "10")], V2, true), delivered(Some(10)));
        assert_eq!(answer(status, &[], V2, false), Verdict::UseProtocol(Protocol::V1));
        assert_eq!(answer(status, &[], V1, true), delivered(None));
        assert_eq!(answer(status, &[(SAMPLES, "3")], V1, true), delivered(None));
    }
    let only_exemplars = answer(204, &[(EXEMPLARS, "0")], V2, true);
    assert_eq!(only_exemplars, delivered(Some(0)), "a missing count is 0");
    let deduplicated = answer(202, &[(SAMPLES, "0")], V2, true);
    assert_eq!(deduplicated, delivered(Some(0)), "Cortex' HA tracker");
    let malformed = answer(200, &[(SAMPLES, "many")], V2, true);
    assert_eq!(malformed, Verdict::UseProtocol(Protocol::V1));
}

#[test]
fn a_415_leads_to_the_next_form_until_none_is_left() {
    for unproven in [false, true] {
        assert_eq!(answer(415, &[], V2, unproven), Verdict::UseProtocol(Protocol::V1));
        let zstd = answer(415, &[], V1_ZSTD, unproven);
        assert_eq!(zstd, Verdict::UseCompression(Compression::Snappy));
        assert_eq!(
            answer(415, &[], V1, unproven),
            refused(RefusedReason::Unsupported, 10)
        );
    }
}

#[test]
fn a_400_is_final_once_the_form_was_accepted_or_a_header_of_2_0_is_there() {
    assert_eq!(answer(400, &[], V2, false), refused(RefusedReason::Invalid, 10));
    assert_eq!(answer(400, &[], V2, true), Verdict::UseProtocol(Protocol::V1));
    let partial = answer(400, &[(SAMPLES, "7")], V2, true);
    assert_eq!(partial, refused(RefusedReason::PartialWrite, 3));
    let nothing = answer(400, &[(SAMPLES, "0")], V2, true);
    assert_eq!(nothing, refused(RefusedReason::Invalid, 10));
    let more = answer(400, &[(SAMPLES, "99999999999")], V2, true);
    assert_eq!(more, refused(RefusedReason::PartialWrite, 0));
    let zstd = answer(400, &[], V1_ZSTD, true);
    assert_eq!(zstd, Verdict::UseCompression(Compression::Snappy));
    assert_eq!(
        answer(400, &[], V1_ZSTD, false),
        refused(RefusedReason::Invalid, 10)
    );
    assert_eq!(answer(400, &[], V1, true), refused(RefusedReason::Invalid, 10));
    let ignored = answer(400, &[(SAMPLES, "7")], V1, true);
    assert_eq!(
        ignored,
        refused(RefusedReason::Invalid, 10),
        "1.0 has no such header"
    );
}

#[test]
fn every_other_4xx_is_refused_and_never_sent_again() {
    for status in (400..500).filter(|status| ![400, 415, 429].contains(status)) {
        for form in [V1, V1_ZSTD, V2] {
            let expected = match status {
                401 | 403 => RefusedReason::Unauthorized,
                404 | 405 => RefusedReason::NotFound,
                413 => RefusedReason::TooLarge,
                _ => RefusedReason::ClientError,
            };
            assert_eq!(answer(status, &[], form, true), refused(expected, 10), "{status}");
        }
    }
}

#[test]
fn every_5xx_and_429_are_sent_again_after_the_time_that_the_receiver_asks_for() {
    for status in (500..600).chain([429]) {
        let reason = match status {
            429 => RetryReason::TooManyRequests,
            _ => RetryReason::ServerError,
        };
        for (value, seconds) in [("30", 30), ("Thu, 01 Jan 1970 00:00:45 GMT", 45)] {
            let after = Some(Duration::from_secs(seconds));
            let verdict = answer(status, &[("retry-after", value)], V2, true);
            assert_eq!(verdict, Verdict::Retry { after, reason }, "{status}");
        }
        for headers in [&[][..], &[("retry-after", "soon")], &[(SAMPLES, "3")]] {
            let verdict = answer(status, headers, V1, false);
            assert_eq!(verdict, Verdict::Retry { after: None, reason }, "{status}");
        }
    }
}

#[test]
fn a_redirect_and_an_unknown_status_keep_the_request() {
    for (status, reason) in [
        (301, RetryReason::Redirect),
        (307, RetryReason::Redirect),
        (0, RetryReason::InvalidStatus),
        (100, RetryReason::InvalidStatus),
        (600, RetryReason::InvalidStatus),
        (u16::MAX, RetryReason::InvalidStatus),
    ] {
        assert_eq!(
            answer(status, &[], V2, true),
            Verdict::Retry { after: None, reason }
        );
    }
}
