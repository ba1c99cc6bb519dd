//! When a nameserver is asked, and when root is asked for a pass. Pure: time and randomness are passed in.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use virtfleet_agent_core::dns::{
    Asked,
    state::{DnsState, Standing},
};
use virtfleet_agent_host::dns::DnsChange;

/// In the long run one wish for a pass in this time, whatever flaps; and each nameserver is asked no more often.
const PACE: Duration = Duration::from_mins(1);
/// So many wishes may come one after the other: an event asks at once, and what a pass writes is an event, too.
const AT_ONCE: u32 = 6;
/// The least time between two wishes: what belongs together is one.
const GAP: Duration = Duration::from_secs(2);
/// A pass is asked for at the start, once what the last one found is older than this part of the time since boot, [`PACE`] at the most: a process that starts again and again asks for fewer and fewer.
const START: u32 = 4;
/// So many answers of one kind in a row are a change for good.
const IN_A_ROW: usize = 3;
/// Questions of root's that are made up for at the most, in intervals: what the slow timer's passes ask, and no more, or a day of events would make the watch deaf.
const MOST_OWED: u32 = 15;
/// Nameservers that are asked at the most; a resolver uses three.
const MOST: usize = 8;

/// What is known.
pub(super) struct Mind {
    interval: Duration,
    /// The user cluster's own addresses.
    watched: Vec<IpAddr>,
    targets: BTreeMap<IpAddr, Target>,
    /// Whether nothing answered in the last pass, or there was none.
    without: bool,
    /// Whether the last pass found all as asked for.
    verified: bool,
    /// Whether the platform's nameservers are in use in place of those that are requested, and answer.
    fallback: bool,
    /// When the pass was that was counted last, `CLOCK_BOOTTIME`.
    counted: u64,
    wish: Option<String>,
    /// No wish is told earlier, in the time of this process.
    not_before: Duration,
    /// When the last wish was told.
    wished: Option<Duration>,
    /// When all wishes that were told would have been due, at one in [`PACE`].
    paid: Duration,
}

struct Target {
    next: Duration,
    /// Until then every question that was asked has had its interval.
    paid: Duration,
    /// Whether it is good, as root has found or as it was for good since.
    good: Option<bool>,
    last: VecDeque<bool>,
}

impl Mind {
    pub(super) fn new(asked: &Asked) -> Self {
        let mut watched = asked.node_local.clone();
        watched.extend(&asked.user_nameservers);
        Self {
            interval: Duration::from_millis(asked.probe_interval_ms).max(PACE),
            watched,
            targets: BTreeMap::new(),
            without: true,
            verified: false,
            fallback: false,
            counted: 0,
            wish: None,
            not_before: Duration::ZERO,
            wished: None,
            paid: Duration::ZERO,
        }
    }

    /// What changed between the last pass and the start of this process was not heard: unless all was well, a pass looks again.
    pub(super) fn start(&mut self, state: Option<&DnsState>, since_boot: Duration) {
        let well = |state: &DnsState| matches!(state.standing, Standing::Verified | Standing::Off);
        if state.is_some_and(well) {
            return;
        }
        let pass = state.map_or(Duration::ZERO, |state| Duration::from_nanos(state.at_boottime_ns));
        let due = pass + (pass / START).min(PACE);
        self.not_before = due.saturating_sub(since_boot);
        self.wish = Some("what has changed before the watch began is not known".to_owned());
    }

    /// Takes up what root's last pass has found: who is in use, and, while that is not what is asked for, who is asked for and collides with nothing. One that is new is asked within the first interval, at a random moment.
    pub(super) fn follow(
        &mut self,
        state: Option<&DnsState>,
        now: Duration,
        random: &mut dyn FnMut() -> u64,
    ) {
        self.without = state.is_none_or(|state| {
            matches!(
                state.standing,
                Standing::Broken | Standing::Unknown | Standing::RolledBack
            )
        });
        self.verified = state.is_some_and(|state| state.standing == Standing::Verified);
        self.fallback = !self.without && state.is_some_and(|state| state.fallback);
        let mut followed: Vec<IpAddr> = state
            .into_iter()
            .flat_map(|state| &state.effective.nameservers)
            .copied()
            .collect();
        // One that is waited for: root is told as soon as it answers.
        if let Some(state) = state.filter(|state| state.standing != Standing::Verified) {
            let collides = |address: &IpAddr| state.collisions.iter().any(|one| one.nameserver == *address);
            let wanted = state.asked.nameservers.iter().filter(|one| !collides(one));
            followed.extend(wanted);
        }
        followed.truncate(MOST);
        self.targets.retain(|address, _| followed.contains(address));
        for address in followed {
            let interval = self.interval;
            let judged = state
                .into_iter()
                .flat_map(|state| &state.judged)
                .find(|one| one.nameserver == address);
            self.targets.entry(address).or_insert_with(|| Target {
                next: now + part(interval, random()),
                paid: Duration::ZERO,
                good: judged.map(|one| one.health.is_usable()),
                last: VecDeque::new(),
            });
        }
    }

    /// Counts what root's last pass has asked, a while ago: each question is one that is not asked here. So the bound holds whatever the timer does, while an event
    /// asks at once. One that is waited for is not left out: a boot without a network has asked it for half a minute, and nobody else would hear it come back.
    pub(super) fn count(&mut self, state: &DnsState, ago: Duration, now: Duration) {
        if self.counted == state.at_boottime_ns {
            return;
        }
        self.counted = state.at_boottime_ns;
        let interval = self.interval;
        let verified = self.verified;
        let counts = |target: &Target| verified || target.good != Some(false);
        for (address, target) in self.targets.iter_mut().filter(|(_, target)| counts(target)) {
            let questions = state.questions.get(address).copied().unwrap_or_default();
            if questions > 0 {
                let owed = target.paid.max(now.saturating_sub(ago)) + interval * questions;
                target.paid = owed.min(now + interval * MOST_OWED);
                target.next = target.next.max(target.paid);
            }
        }
    }

    /// Who is followed.
    pub(super) fn nameservers(&self) -> Vec<IpAddr> {
        self.targets.keys().copied().collect()
    }

    /// Who is to be asked now. Each is asked again after its interval and up to a quarter of it more.
    pub(super) fn due(&mut self, now: Duration, random: &mut dyn FnMut() -> u64) -> Vec<IpAddr> {
        let interval = self.interval;
        let due = self.targets.iter_mut().filter(|(_, target)| target.next <= now);
        due.map(|(address, target)| {
            target.paid = target.paid.max(now) + interval;
            target.next = target.paid + part(interval / 4, random());
            *address
        })
        .collect()
    }

    /// Takes up one probe's result. A nameserver changes state after [`IN_A_ROW`] equal results. One that answers again counts at once while the guest needs it, and not
    /// while the platform's nameservers stand in for it: the guest resolves, and a flapping cluster DNS is not to be switched to and fro.
    pub(super) fn heard(&mut self, nameserver: IpAddr, good: bool) {
        let Some(target) = self.targets.get_mut(&nameserver) else {
            return;
        };
        target.last.push_back(good);
        if target.last.len() > IN_A_ROW {
            target.last.pop_front();
        }
        let lasts = target.last.len() == IN_A_ROW && target.last.iter().all(|one| *one == good);
        let waited_for = good && target.good == Some(false) && !self.verified && !self.fallback;
        if (lasts || waited_for) && target.good != Some(good) {
            if target.good.is_some() {
                let word = if good {
                    "answers again"
                } else {
                    "no longer answers"
                };
                self.wish = Some(format!("{nameserver} {word}"));
            }
            target.good = Some(good);
        }
    }

    /// What has changed in the guest.
    pub(super) fn changed(&mut self, change: &DnsChange, state: Option<&DnsState>) {
        let reason = match change {
            DnsChange::Address {
                address,
                interface,
                gone,
            } => {
                let given = state.is_some_and(|state| {
                    state.shown().any(|one| one == *address)
                        || state.judged.iter().any(|one| one.nameserver == *address)
                });
                let network = self.without && !gone && !address.is_loopback();
                if !(given || network || self.watched.contains(address)) {
                    return;
                }
                let word = if *gone { "gone from" } else { "now on" };
                format!("{address} is {word} {interface}")
            }
            DnsChange::ResolvConf { path } => format!("{path} has changed"),
            DnsChange::Lease { path } => format!("the lease {path} has changed"),
        };
        self.wish = Some(reason);
    }

    /// Why a pass is to be asked for now: at once, unless there were many lately; nothing is forgotten meanwhile.
    pub(super) fn wish(&mut self, now: Duration) -> Option<String> {
        if now < self.may_wish() {
            return None;
        }
        let wish = self.wish.take()?;
        self.wished = Some(now);
        self.paid = self.paid.max(now) + PACE;
        Some(wish)
    }

    fn may_wish(&self) -> Duration {
        let apart = self.wished.map_or(Duration::ZERO, |wished| wished + GAP);
        apart
            .max(self.not_before)
            .max(self.paid.saturating_sub(PACE * (AT_ONCE - 1)))
    }

    /// How long nothing is to be done, unless something happens.
    pub(super) fn rest(&self, now: Duration) -> Duration {
        let asks = self.targets.values().map(|target| target.next);
        let wish = self.wish.as_ref().map(|_| self.may_wish());
        let next = asks.chain(wish).min().unwrap_or(now + self.interval);
        next.saturating_sub(now).min(self.interval)
    }
}

/// A random part of a time.
fn part(time: Duration, random: u64) -> Duration {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random % milliseconds.max(1))
}

#[cfg(test)]
mod tests;
