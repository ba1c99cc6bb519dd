use proptest::prelude::*;

use super::*;

/// A machine with simulated clocks, all in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Guest {
    rtc: i64,
    realtime: i64,
    boottime: i64,
    monotonic: i64,
    raw: i64,
    has_rtc: bool,
}

const S: i64 = 1_000_000_000;
const START: i64 = 1_800_000_000 * S;

impl Guest {
    fn new() -> Self {
        Self {
            rtc: START + S / 3,
            realtime: START + S / 3,
            boottime: 1000 * S,
            monotonic: 1000 * S,
            raw: 1000 * S,
            has_rtc: true,
        }
    }
    fn runs(&mut self, time: i64) {
        self.rtc += time;
        self.realtime += time;
        self.boottime += time;
        self.monotonic += time;
        self.raw += time;
    }
    fn paused(&mut self, time: i64) {
        self.rtc += time;
    }
    fn suspended(&mut self, time: i64) {
        self.rtc += time;
        self.realtime += time;
        self.boottime += time;
    }
    fn sample(&self) -> Sample {
        let unsigned = |value: i64| u64::try_from(value).unwrap();
        Sample {
            rtc_seconds: self.has_rtc.then(|| unsigned(self.rtc / S)),
            realtime_ns: unsigned(self.realtime),
            boottime_ns: unsigned(self.boottime),
            monotonic_ns: unsigned(self.monotonic),
            raw_ns: unsigned(self.raw),
            spread_ns: 1000,
        }
    }
    /// Events if this happens between two samples 30 s apart.
    fn seen(mut self, happens: impl FnOnce(&mut Self)) -> Vec<(Kind, i64)> {
        let mut detector = Detector::default();
        assert_eq!(detector.observe(self.sample()).count(), 0);
        assert_eq!(
            detector.detection_limit(),
            DetectionLimit::Unknown,
            "one sample detects nothing"
        );
        self.runs(30 * S);
        happens(&mut self);
        let events: Vec<Event> = detector.observe(self.sample()).collect();
        // Nothing is detected twice.
        self.runs(30 * S);
        assert_eq!(detector.observe(self.sample()).count(), 0, "{events:?}");
        let rounded = |event: Event| (event.length_ns + event.length_ns.signum() * S / 2) / S;
        events
            .into_iter()
            .map(|event| (event.kind, rounded(event)))
            .collect()
    }
}

type Happens = fn(&mut Guest);
type Seen = [(Kind, i64)];

#[test]
fn events_are_distinguished() {
    let cases: [(&str, Happens, &Seen); 15] = [
        ("nothing", |_| {}, &[]),
        ("a pause", |g| g.paused(37 * S), &[(Kind::Pause, 37)]),
        ("a long pause", |g| g.paused(90_000 * S), &[(Kind::Pause, 90_000)]),
        ("a pause below what can be known", |g| g.paused(S), &[]),
        (
            "a paravirtual clock that continues hides the pause",
            |g| g.runs(60 * S),
            &[],
        ),
        (
            "a suspend by the guest",
            |g| g.suspended(60 * S),
            &[(Kind::Suspend, 60)],
        ),
        (
            "the clock is set forward",
            |g| g.realtime += 3600 * S,
            &[(Kind::Step, 3600)],
        ),
        (
            "the clock is set back",
            |g| g.realtime -= 7 * S,
            &[(Kind::Step, -7)],
        ),
        ("a leap second", |g| g.realtime -= S, &[(Kind::Step, -1)]),
        (
            "a time service slews: too small to be a step",
            |g| g.realtime += S / 20,
            &[],
        ),
        ("the RTC is set back", |g| g.rtc -= 3600 * S, &[]),
        (
            "a pause, and the clock is corrected",
            |g| {
                g.paused(40 * S);
                g.realtime += 40 * S;
            },
            &[(Kind::Pause, 40), (Kind::Step, 40)],
        ),
        (
            "a pause and a suspend",
            |g| {
                g.paused(40 * S);
                g.suspended(50 * S);
            },
            &[(Kind::Pause, 40), (Kind::Suspend, 50)],
        ),
        (
            "chrony slews boot, monotonic and wall clock by 8 %",
            |g| {
                let back = 30 * S / 12;
                g.realtime -= back;
                g.boottime -= back;
                g.monotonic -= back;
            },
            &[],
        ),
        (
            "no RTC",
            |g| {
                g.paused(40 * S);
                g.has_rtc = false;
            },
            &[],
        ),
    ];
    for (name, happens, expected) in cases {
        assert_eq!(Guest::new().seen(happens), expected, "{name}");
    }
}

#[test]
fn rtc_correction_is_no_pause() {
    for off in [-2 * S, -37 * S, -3600 * S] {
        let mut guest = Guest::new();
        guest.rtc += off;
        let set = |guest: &mut Guest| guest.rtc = guest.realtime;
        assert_eq!(guest.seen(set), [], "{off}");
        // The RTC gains as much, but is not closer to the clock than before: that is a pause.
        let other = guest.seen(|guest| guest.paused(-off + 5 * S));
        assert_eq!(other, [(Kind::Pause, -off / S + 5)], "{off}");
    }
}

#[test]
fn resolution_grows_with_the_sample_interval() {
    let mut guest = Guest::new();
    let mut detector = Detector::default();
    drop(detector.observe(guest.sample()));
    let mut sight = |detector: &mut Detector, time| {
        guest.runs(time);
        drop(detector.observe(guest.sample()));
        detector.detection_limit()
    };
    assert_eq!(sight(&mut detector, 0), DetectionLimit::Above(2_000_002_000));
    assert_eq!(
        sight(&mut detector, 1000 * S),
        DetectionLimit::Above(2_500_002_000)
    );
    guest.has_rtc = false;
    drop(detector.observe(guest.sample()));
    assert_eq!(detector.detection_limit(), DetectionLimit::Unknown);
}

#[test]
fn pause_with_clock_step_is_marked() {
    let mut guest = Guest::new();
    let mut detector = Detector::default();
    drop(detector.observe(guest.sample()));
    guest.paused(10 * S);
    guest.realtime += 10 * S;
    let pause = detector.observe(guest.sample()).next().unwrap();
    assert_eq!((pause.kind, pause.clock_set_too), (Kind::Pause, true));
}

#[test]
fn extreme_clock_values_do_not_panic() {
    let mut detector = Detector::default();
    let wild = [0, 1, u64::MAX, 0, u64::MAX / 2];
    for rtc in wild {
        for other in wild {
            let sample = Sample {
                rtc_seconds: Some(rtc),
                realtime_ns: other,
                boottime_ns: rtc,
                monotonic_ns: other,
                raw_ns: rtc,
                spread_ns: other,
            };
            assert!(detector.observe(sample).count() <= 3);
        }
    }
}

proptest! {
    /// For any phase and drift of the RTC and any interval: no false pause is reported, a pause
    /// above the resolution is always detected, and its length is correct within the resolution.
    #[test]
    fn pauses_above_the_resolution_are_detected(
        phase in 0..S,
        between in 0..7200 * S,
        paused in 0..600 * S,
        drift_ppm in -500..=500i64,
    ) {
        let mut guest = Guest::new();
        guest.rtc += phase;
        let mut detector = Detector::default();
        drop(detector.observe(guest.sample()));
        guest.runs(between);
        guest.rtc += between / 1_000_000 * drift_ppm;
        guest.paused(paused);
        let events: Vec<Event> = detector.observe(guest.sample()).collect();
        let DetectionLimit::Above(resolution) = detector.detection_limit() else { panic!("there is an RTC") };
        let resolution = i64::try_from(resolution).unwrap();
        match events.as_slice() {
            [] => prop_assert!(paused <= 2 * resolution, "missed {paused}"),
            [pause] => {
                prop_assert_eq!(pause.kind, Kind::Pause);
                prop_assert!(paused > 0, "false pause {pause:?}");
                prop_assert!((pause.length_ns - paused).abs() <= resolution, "{pause:?}");
            }
            more => prop_assert!(false, "{more:?}"),
        }
    }
}
