use std::fs;

use virtfleet_wire::{
    exposition::Page,
    report::{Clock, SectionStatus},
};

use super::*;

const S: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000;

fn watch() -> ClockWatch {
    ClockWatch::new(&Roots {
        sysfs: "/nowhere".into(),
        ..Roots::default()
    })
}

/// A sample `lived` seconds after the start. The RTC has counted `paused` seconds more.
fn sample(lived: u64, paused: u64) -> Sample {
    Sample {
        rtc_seconds: Some(START + lived + paused),
        realtime_ns: (START + lived) * S,
        boottime_ns: lived * S,
        monotonic_ns: lived * S,
        raw_ns: lived * S,
        spread_ns: 0,
    }
}

fn now(lived: u64) -> Clock {
    let sample = sample(lived, 0);
    Clock {
        boottime_ns: sample.boottime_ns,
        monotonic_ns: sample.monotonic_ns,
        realtime_ns: sample.realtime_ns,
    }
}

fn page(watch: &ClockWatch) -> String {
    let mut page = Page::new();
    watch.append_metrics(&mut page);
    page.to_text()
}

#[test]
fn a_pause_is_reported_counted_and_a_finding_for_an_hour() {
    let mut watch = watch();
    watch.take(sample(0, 0));
    watch.take(sample(30, 37));
    let section = watch.section(&now(40));
    assert_eq!(section.status, SectionStatus::Ok);
    assert_eq!(
        section.items,
        [
            serde_json::json!({"kind": "watch", "source": "rtc", "resolutionSeconds": 2.015}),
            serde_json::json!({"kind": "pause", "source": "rtc", "lengthSeconds": 37.0, "resolutionSeconds": 2.015,
                "at": "2027-01-15T08:00:30Z", "ageMs": 10_000}),
        ]
    );
    let finding = watch.finding(&now(40)).unwrap();
    assert_eq!(
        (finding.id.as_str(), finding.evidence["lengthSeconds"].as_str()),
        ("guest-paused", "37.0")
    );
    assert_eq!(watch.finding(&now(30 + 3601)), None);
    let text = page(&watch);
    for line in [
        "virtfleet_guest_pauses_total 1\n",
        "virtfleet_guest_pause_seconds_total 37\n",
        "virtfleet_guest_clock_steps_total 0\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    // The wall clock is corrected: the event keeps its distance to now.
    let corrected = Clock {
        realtime_ns: now(40).realtime_ns + 37 * S,
        ..now(40)
    };
    assert_eq!(watch.section(&corrected).items[1]["at"], "2027-01-15T08:01:07Z");
}

#[test]
fn without_an_rtc_it_is_unknown_and_not_zero() {
    let mut watch = watch();
    for lived in [0, 30] {
        watch.take(Sample {
            rtc_seconds: None,
            ..sample(lived, 0)
        });
    }
    let section = watch.section(&now(40));
    assert_eq!(section.status, SectionStatus::Unknown);
    assert_eq!(
        section.items,
        [serde_json::json!({"kind": "watch", "source": "none"})]
    );
    assert!(!page(&watch).contains("pause"), "{}", page(&watch));
    assert!(page(&watch).contains("virtfleet_guest_clock_steps_total 0\n"));
}

#[test]
fn the_last_sixteen_events_are_kept_and_all_are_counted() {
    let mut watch = watch();
    for i in 0..=40 {
        watch.take(sample(30 * i, 10 * i));
    }
    assert_eq!(watch.section(&now(2000)).items.len(), 1 + MAX_EVENTS);
    assert!(
        page(&watch).contains("virtfleet_guest_pauses_total 40\n"),
        "{}",
        page(&watch)
    );
}

#[test]
fn the_rtc_is_read_at_most_once_per_interval() {
    let dir = tempfile::tempdir().unwrap();
    let rtc = dir.path().join(RTC);
    fs::create_dir_all(rtc.parent().unwrap()).unwrap();
    fs::write(&rtc, "1800000000\n").unwrap();
    let mut watch = ClockWatch::new(&Roots {
        sysfs: dir.path().to_owned(),
        ..Roots::default()
    });
    watch.sample();
    fs::write(&rtc, "1800009999\n").unwrap();
    watch.sample();
    assert!(
        watch.events.is_empty() && !watch.sighted,
        "sampled twice within five seconds"
    );
    watch.sampled_at_ns = Some(0);
    watch.sample();
    assert_eq!(watch.pauses, 1, "the RTC of the fixture went on");
}
