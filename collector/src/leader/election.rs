//! When to take, renew and give up a Lease: client-go's rules as a state machine, with the time passed in.
//!
//! What a Lease says of time is never compared with a clock here: another machine's may be wrong. A Lease counts as held until
//! it was seen unchanged, by our own monotonic clock, for as long as its holder asked for. Ours counts as held for
//! `renew` after the request that renewed it was *sent*, which is shorter than what the others wait: we stop first.

use std::time::{Duration, Instant};

/// The three times of an election: `lease > renew > retry`.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long others leave a Lease alone that is not renewed.
    pub lease: Duration,
    /// How long the holder goes on without a successful renewal.
    pub renew: Duration,
    /// Between two attempts.
    pub retry: Duration,
}

/// What of a Lease matters to an election.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// `spec.holderIdentity`; none when it was released.
    pub holder: Option<String>,
    /// `spec.leaseDurationSeconds`.
    pub seconds: Option<i32>,
    /// `spec.renewTime`, as text: compared for equality only.
    pub renewed: Option<String>,
    /// `spec.leaseTransitions`.
    pub transitions: i32,
}

/// Who may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// Another one, or nobody.
    Standby,
    /// This process, until then; none: for ever (no election).
    Leader {
        /// Nothing may be written from then on.
        until: Option<Instant>,
    },
}

impl Leadership {
    /// Whether this process may write, and still may after `margin`.
    pub fn holds(self, now: Instant, margin: Duration) -> bool {
        match self {
            Self::Standby => false,
            Self::Leader { until } => until.is_none_or(|until| now < until && now + margin <= until),
        }
    }
}

/// What is to be done with a Lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Another one holds it.
    Wait,
    /// Write this record, under the resourceVersion that was read.
    Write(Record),
}

/// See the module.
#[derive(Debug)]
pub struct Election {
    identity: String,
    timing: Timing,
    /// The last record that was read, and when it was first seen so.
    seen: Option<(Record, Instant)>,
    until: Option<Instant>,
}

impl Election {
    /// Nobody was seen, nothing is held.
    pub fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            seen: None,
            until: None,
        }
    }

    /// Who this is.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether this process may write at `now`.
    pub fn leadership(&self, now: Instant) -> Leadership {
        match self.until {
            Some(until) if now < until => Leadership::Leader { until: Some(until) },
            _ => Leadership::Standby,
        }
    }

    /// Who was seen to hold the Lease.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref()?.0.holder.as_deref()
    }

    /// The Lease was read at `now`; none when there is none. `stamp` is the `renewTime` that would be written.
    pub fn read(&mut self, found: Option<Record>, now: Instant, stamp: String) -> Step {
        let Some(found) = found else {
            self.seen = None;
            self.until = None;
            return Step::Write(self.record(stamp, 0));
        };
        if self.seen.as_ref().is_none_or(|(known, _)| *known != found) {
            self.seen = Some((found.clone(), now));
        }
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let ours = found.holder.as_ref() == Some(&self.identity);
        let free = found.holder.as_deref().is_none_or(str::is_empty);
        // The holder's own word on how long it wants to be left alone; ours when it has said nothing.
        let asked = found.seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let term = asked.map_or(self.timing.lease, Duration::from_secs);
        if !ours {
            // Whoever wrote it after us has taken it; what we believed is over.
            self.until = None;
            if !free && now < since + term {
                return Step::Wait;
            }
        }
        Step::Write(self.record(stamp, found.transitions + i32::from(!ours)))
    }

    /// `record` was written by a request that was sent at `sent` and answered at `now`.
    pub fn written(&mut self, record: Record, sent: Instant, now: Instant) {
        self.until = Some(sent + self.timing.renew);
        self.seen = Some((record, now));
    }

    /// What gives the Lease up, when it is ours: without holder, so that the next one need not wait.
    pub fn release(&mut self, stamp: String) -> Option<Record> {
        self.until = None;
        let (record, _) = self.seen.take()?;
        (record.holder.as_ref() == Some(&self.identity)).then_some(Record {
            holder: None,
            seconds: Some(1),
            renewed: Some(stamp),
            transitions: record.transitions,
        })
    }

    fn record(&self, stamp: String, transitions: i32) -> Record {
        Record {
            holder: Some(self.identity.clone()),
            seconds: i32::try_from(self.timing.lease.as_secs()).ok(),
            renewed: Some(stamp),
            transitions,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMING: Timing = Timing {
        lease: Duration::from_secs(15),
        renew: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn held_by(who: &str, stamp: &str) -> Record {
        Record {
            holder: Some(who.into()),
            seconds: Some(15),
            renewed: Some(stamp.into()),
            transitions: 3,
        }
    }

    #[test]
    fn anothers_lease_is_taken_only_after_it_was_seen_unchanged_for_its_whole_term() {
        let start = Instant::now();
        let mut us = Election::new("us".into(), TIMING);
        let at = |seconds| start + Duration::from_secs(seconds);
        // The stamp lies far in the past and means nothing.
        assert_eq!(
            us.read(Some(held_by("them", "1999")), at(0), "s".into()),
            Step::Wait
        );
        assert_eq!(
            us.read(Some(held_by("them", "1999")), at(14), "s".into()),
            Step::Wait
        );
        assert_eq!(
            us.read(Some(held_by("them", "2000")), at(15), "s".into()),
            Step::Wait
        );
        assert_eq!(
            us.read(Some(held_by("them", "2000")), at(29), "s".into()),
            Step::Wait
        );
        let Step::Write(record) = us.read(Some(held_by("them", "2000")), at(30), "s".into()) else {
            panic!("not taken");
        };
        assert_eq!((record.holder.as_deref(), record.transitions), (Some("us"), 4));
        assert_eq!(
            us.leadership(at(30)),
            Leadership::Standby,
            "not before the answer"
        );
        us.written(record, at(30), at(31));
        assert!(us.leadership(at(39)).holds(at(39), Duration::from_secs(1)));
        assert!(!us.leadership(at(39)).holds(at(39), Duration::from_secs(2)));
        assert_eq!(
            us.leadership(at(40)),
            Leadership::Standby,
            "counted from the request"
        );
    }

    #[test]
    fn a_free_lease_is_taken_at_once_and_ours_is_renewed_and_released() {
        let now = Instant::now();
        for found in [None, Some(Record::default()), Some(held_by("", "x"))] {
            let mut us = Election::new("us".into(), TIMING);
            assert!(matches!(us.read(found, now, "s".into()), Step::Write(_)));
        }
        let mut us = Election::new("us".into(), TIMING);
        assert_eq!(us.release("s".into()), None);
        let Step::Write(first) = us.read(None, now, "a".into()) else {
            panic!()
        };
        us.written(first.clone(), now, now);
        let Step::Write(second) = us.read(Some(first), now, "b".into()) else {
            panic!()
        };
        assert_eq!(second.transitions, 0, "a renewal is no transition");
        us.written(second, now, now);
        let given_up = us.release("c".into()).unwrap();
        assert_eq!((given_up.holder, given_up.seconds), (None, Some(1)));
        assert_eq!(us.leadership(now), Leadership::Standby);
    }

    #[test]
    fn who_reads_anothers_name_stops_at_once() {
        let now = Instant::now();
        let mut us = Election::new("us".into(), TIMING);
        let Step::Write(record) = us.read(None, now, "a".into()) else {
            panic!()
        };
        us.written(record, now, now);
        assert_eq!(us.read(Some(held_by("them", "t")), now, "b".into()), Step::Wait);
        assert_eq!(us.leadership(now), Leadership::Standby);
    }

    proptest! {
        /// Three of them, one Lease, requests that are lost on the way there or back and take their time: never two at once.
        #[test]
        fn two_never_lead_at_once(script in prop::collection::vec((0_usize..3, 0_u64..4000, 0_u8..4, 0_u64..3000), 1..400)) {
            let start = Instant::now();
            let mut all: Vec<_> = (0..3).map(|n| Election::new(format!("c{n}"), TIMING)).collect();
            let mut lease: Option<(Record, u64)> = None;
            let mut version = 0;
            let mut clock = 0_u64;
            for (who, pause, fate, delay) in script {
                clock += pause;
                let now = |ms: u64| start + Duration::from_millis(ms);
                let read = lease.clone();
                if let Step::Write(record) = all[who].read(read.clone().map(|(r, _)| r), now(clock), format!("{clock}")) {
                    let sent = clock;
                    clock += delay;
                    // 0: lost on the way there; 1: the answer is lost; else: answered.
                    if fate > 0 && lease.as_ref().map(|l| l.1) == read.map(|l| l.1) {
                        version += 1;
                        lease = Some((record.clone(), version));
                        if fate > 1 {
                            all[who].written(record, now(sent), now(clock));
                        }
                    }
                }
                let leaders = all.iter().filter(|one| one.leadership(now(clock)) != Leadership::Standby).count();
                prop_assert!(leaders <= 1);
            }
        }
    }
}
