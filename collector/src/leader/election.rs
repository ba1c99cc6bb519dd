//! Leader election by a Lease: client-go's rules as a state machine; the caller passes the time.
//!
//! Times in the Lease are never compared with the local clock, because another machine's clock may
//! be wrong. A Lease of another process counts as held until it was seen unchanged, by the local
//! monotonic clock, for the duration that its holder requested. The own Lease counts as held for
//! `renew` after the request that renewed it was *sent*. That is shorter than the time for which
//! others wait, so this process stops writing first.

use std::time::{Duration, Instant};

/// Durations of an election: `lease > renew > retry`.
#[derive(Debug, Clone, Copy)]
pub struct ElectionTiming {
    /// Time for which others wait before they take a Lease that is not renewed.
    pub lease: Duration,
    /// Time for which the holder stays leader without a successful renewal.
    pub renew: Duration,
    /// Interval between two attempts.
    pub retry: Duration,
}

/// The fields of a Lease that an election uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseRecord {
    /// `spec.holderIdentity`; none after a release.
    pub holder: Option<String>,
    /// `spec.leaseDurationSeconds`.
    pub seconds: Option<i32>,
    /// `spec.renewTime`, as text: compared for equality only.
    pub renewed: Option<String>,
    /// `spec.leaseTransitions`.
    pub transitions: i32,
}

/// Whether this process may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// Another process leads, or none.
    Standby,
    /// This process leads until then; none: without limit (no election).
    Leader {
        /// After this time nothing may be written.
        until: Option<Instant>,
    },
}

impl Leadership {
    /// Whether this process may write, now and for at least `margin`.
    pub fn holds(self, now: Instant, margin: Duration) -> bool {
        match self {
            Self::Standby => false,
            Self::Leader { until } => until.is_none_or(|until| now < until && now + margin <= until),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAction {
    /// Another process holds it.
    Wait,
    /// Write this record if the resourceVersion is still the one that was read.
    Write(LeaseRecord),
}

/// State of one candidate in the election.
#[derive(Debug)]
pub struct Election {
    identity: String,
    timing: ElectionTiming,
    /// The last record read, and when it was first seen.
    seen: Option<(LeaseRecord, Instant)>,
    until: Option<Instant>,
}

impl Election {
    /// A candidate that holds nothing and has seen no holder.
    pub fn new(identity: String, timing: ElectionTiming) -> Self {
        Self {
            identity,
            timing,
            seen: None,
            until: None,
        }
    }

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

    /// The holder last seen.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref()?.0.holder.as_deref()
    }

    /// The other process that leads, as far as this one knows at `now`. None if it has not renewed
    /// the Lease for its term, or if the Lease could not be read for so long.
    pub fn other_leader(&self, now: Instant) -> Option<&str> {
        let (record, since) = self.seen.as_ref()?;
        let holder = record.holder.as_deref().filter(|holder| !holder.is_empty())?;
        (holder != self.identity && now < *since + self.term(record)).then_some(holder)
    }

    /// Handles the Lease read at `now`; none if it does not exist. `stamp` is the `renewTime` to
    /// write.
    pub fn read(&mut self, found: Option<LeaseRecord>, now: Instant, stamp: String) -> LeaseAction {
        let Some(found) = found else {
            self.seen = None;
            self.until = None;
            return LeaseAction::Write(self.record(stamp, 0));
        };
        if self.seen.as_ref().is_none_or(|(known, _)| *known != found) {
            self.seen = Some((found.clone(), now));
        }
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let ours = found.holder.as_ref() == Some(&self.identity);
        let free = found.holder.as_deref().is_none_or(str::is_empty);
        let term = self.term(&found);
        if !ours {
            // Another process has taken the Lease since the last write, so this process does not
            // hold it any more.
            self.until = None;
            if !free && now < since + term {
                return LeaseAction::Wait;
            }
        }
        LeaseAction::Write(self.record(stamp, found.transitions + i32::from(!ours)))
    }

    /// Handles a successful write of `record`, whose request was sent at `sent` and answered at
    /// `now`.
    pub fn written(&mut self, record: LeaseRecord, sent: Instant, now: Instant) {
        self.until = Some(sent + self.timing.renew);
        self.seen = Some((record, now));
    }

    /// The record that releases the Lease if this process holds it: without holder, so that the
    /// next one need not wait.
    pub fn release(&mut self, stamp: String) -> Option<LeaseRecord> {
        self.until = None;
        let (record, _) = self.seen.take()?;
        (record.holder.as_ref() == Some(&self.identity)).then_some(LeaseRecord {
            holder: None,
            seconds: Some(1),
            renewed: Some(stamp),
            transitions: record.transitions,
        })
    }

    /// The duration that the holder requested; the own duration if it requested none.
    fn term(&self, record: &LeaseRecord) -> Duration {
        let requested = record.seconds.and_then(|seconds| u64::try_from(seconds).ok());
        requested.map_or(self.timing.lease, Duration::from_secs)
    }

    fn record(&self, stamp: String, transitions: i32) -> LeaseRecord {
        LeaseRecord {
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

    const TIMING: ElectionTiming = ElectionTiming {
        lease: Duration::from_secs(15),
        renew: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn held_by(who: &str, stamp: &str) -> LeaseRecord {
        LeaseRecord {
            holder: Some(who.into()),
            seconds: Some(15),
            renewed: Some(stamp.into()),
            transitions: 3,
        }
    }

    #[test]
    fn anothers_lease_is_taken_only_after_it_was_unchanged_for_its_duration() {
        let start = Instant::now();
        let mut own = Election::new("own".into(), TIMING);
        let at = |seconds| start + Duration::from_secs(seconds);
        // The stamp is long ago, but it is not compared with the clock.
        assert_eq!(
            own.read(Some(held_by("them", "1999")), at(0), "s".into()),
            LeaseAction::Wait
        );
        assert_eq!(
            own.read(Some(held_by("them", "1999")), at(14), "s".into()),
            LeaseAction::Wait
        );
        assert_eq!(
            own.read(Some(held_by("them", "2000")), at(15), "s".into()),
            LeaseAction::Wait
        );
        assert_eq!(
            own.read(Some(held_by("them", "2000")), at(29), "s".into()),
            LeaseAction::Wait
        );
        let LeaseAction::Write(record) = own.read(Some(held_by("them", "2000")), at(30), "s".into()) else {
            panic!("not taken");
        };
        assert_eq!((record.holder.as_deref(), record.transitions), (Some("own"), 4));
        assert_eq!(
            own.leadership(at(30)),
            Leadership::Standby,
            "not before the response"
        );
        own.written(record, at(30), at(31));
        assert!(own.leadership(at(39)).holds(at(39), Duration::from_secs(1)));
        assert!(!own.leadership(at(39)).holds(at(39), Duration::from_secs(2)));
        assert_eq!(
            own.leadership(at(40)),
            Leadership::Standby,
            "counted from the request"
        );
    }

    #[test]
    fn a_free_lease_is_taken_at_once_renewed_and_released() {
        let now = Instant::now();
        for found in [None, Some(LeaseRecord::default()), Some(held_by("", "x"))] {
            let mut own = Election::new("own".into(), TIMING);
            assert!(matches!(own.read(found, now, "s".into()), LeaseAction::Write(_)));
        }
        let mut own = Election::new("own".into(), TIMING);
        assert_eq!(own.release("s".into()), None);
        let LeaseAction::Write(first) = own.read(None, now, "a".into()) else {
            panic!()
        };
        own.written(first.clone(), now, now);
        let LeaseAction::Write(second) = own.read(Some(first), now, "b".into()) else {
            panic!()
        };
        assert_eq!(second.transitions, 0, "a renewal is no transition");
        own.written(second, now, now);
        let given_up = own.release("c".into()).unwrap();
        assert_eq!((given_up.holder, given_up.seconds), (None, Some(1)));
        assert_eq!(own.leadership(now), Leadership::Standby);
    }

    #[test]
    fn reading_another_holder_ends_the_term_at_once() {
        let now = Instant::now();
        let mut own = Election::new("own".into(), TIMING);
        let LeaseAction::Write(record) = own.read(None, now, "a".into()) else {
            panic!()
        };
        own.written(record, now, now);
        assert_eq!(
            own.read(Some(held_by("them", "t")), now, "b".into()),
            LeaseAction::Wait
        );
        assert_eq!(own.leadership(now), Leadership::Standby);
    }

    proptest! {
        /// Three candidates, one Lease, requests that are lost on the way there or back or take
        /// long: never two leaders at once.
        #[test]
        fn two_never_lead_at_once(script in prop::collection::vec((0_usize..3, 0_u64..4000, 0_u8..4, 0_u64..3000), 1..400)) {
            let start = Instant::now();
            let mut all: Vec<_> = (0..3).map(|n| Election::new(format!("c{n}"), TIMING)).collect();
            let mut lease: Option<(LeaseRecord, u64)> = None;
            let mut version = 0;
            let mut clock = 0_u64;
            for (who, pause, fate, delay) in script {
                clock += pause;
                let now = |ms: u64| start + Duration::from_millis(ms);
                let read = lease.clone();
                if let LeaseAction::Write(record) = all[who].read(read.clone().map(|(r, _)| r), now(clock), format!("{clock}")) {
                    let sent = clock;
                    clock += delay;
                    // 0: the request is lost; 1: the response is lost; else: answered.
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
