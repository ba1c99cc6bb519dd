//! Decides when to probe each nameserver and when to request a reconcile run. Pure: time and
//! randomness are passed in.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use virtfleet_agent_core::dns::{
    Asked,
    answers::Health,
    state::{DnsState, DnsStatus},
};
use virtfleet_agent_host::dns::DnsChange;

/// Sustained rate: one reconcile request, and one probe of each nameserver, per interval.
const RECONCILE_INTERVAL: Duration = Duration::from_mins(1);
/// Requests allowed in a burst. An event triggers one at once, and the changes that a reconcile run
/// makes are events too.
const RECONCILE_BURST: u32 = 6;
/// Events within this window are merged into one request.
const COALESCE_WINDOW: Duration = Duration::from_secs(2);
/// At the start, a reconcile run is requested once the last one is older than this fraction of the
/// time that passed between boot and that run, at most [`RECONCILE_INTERVAL`]. So an agent that
/// restarts repeatedly requests runs at growing intervals.
const START_AGE_DIVISOR: u32 = 4;
/// Equal consecutive results before a nameserver counts as up or down.
const STATE_CHANGE_THRESHOLD: usize = 3;
/// Limit of the probes of reconcile runs that the watch makes up for, in intervals. It covers the
/// runs of the timer; without a limit, a day of events would silence the watch.
const MAX_COUNTED_PROBES: u32 = 15;
/// Limit of nameservers that are probed; a resolver uses three (`resolv.conf(5)`, MAXNS).
const MAX_NAMESERVERS: usize = 8;

/// Decides when to probe each nameserver and when to request a reconcile run. Times are those of
/// the caller's clock.
pub(super) struct ProbeScheduler {
    interval: Duration,
    /// The user cluster's own nameserver addresses.
    cluster_addresses: Vec<IpAddr>,
    targets: BTreeMap<IpAddr, Target>,
    /// The last reconcile run found no working nameserver, or has not happened yet.
    no_working_nameserver: bool,
    /// The last reconcile run found everything as requested.
    verified: bool,
    /// The platform's nameservers are in use in place of the requested ones, and answer.
    fallback: bool,
    /// `CLOCK_BOOTTIME` in nanoseconds of the last reconcile run whose probes were counted.
    counted_run: u64,
    /// Reason for the pending reconcile request, if any.
    pending_request: Option<String>,
    /// Earliest time of the next request.
    not_before: Duration,
    last_request: Option<Duration>,
    /// Token-bucket position: when all requests so far would have been due at
    /// [`RECONCILE_INTERVAL`].
    bucket_time: Duration,
}

/// A nameserver that is probed.
struct Target {
    next_probe: Duration,
    /// Token-bucket position: when all probes so far would have been due at the interval.
    bucket_time: Duration,
    /// Whether the nameserver is up; none until that is known.
    is_up: Option<bool>,
    last_results: VecDeque<bool>,
}

impl ProbeScheduler {
    pub(super) fn new(asked: &Asked) -> Self {
        let mut cluster_addresses = asked.node_local.clone();
        cluster_addresses.extend(&asked.user_nameservers);
        Self {
            interval: Duration::from_millis(asked.probe_interval_ms).max(RECONCILE_INTERVAL),
            cluster_addresses,
            targets: BTreeMap::new(),
            no_working_nameserver: true,
            verified: false,
            fallback: false,
            counted_run: 0,
            pending_request: None,
            not_before: Duration::ZERO,
            last_request: None,
            bucket_time: Duration::ZERO,
        }
    }

    /// Requests a reconcile run at the start of the process, unless the last run of this boot
    /// (`state`) found everything in order: changes between that run and the start were not
    /// observed.
    pub(super) fn request_at_start(&mut self, state: Option<&DnsState>, since_boot: Duration) {
        let is_in_order = |state: &DnsState| matches!(state.standing, DnsStatus::Verified | DnsStatus::Off);
        if state.is_some_and(is_in_order) {
            return;
        }
        let last_run = state.map_or(Duration::ZERO, |state| Duration::from_nanos(state.at_boottime_ns));
        let due = last_run + (last_run / START_AGE_DIVISOR).min(RECONCILE_INTERVAL);
        self.not_before = due.saturating_sub(since_boot);
        self.pending_request = Some("changes before the start of the watch are unknown".to_owned());
    }

    /// Updates the nameservers to probe from the state of the last reconcile run: those in use and,
    /// while these are not the requested ones, the requested ones without a collision. A new one is
    /// probed within the first interval, at a random time.
    pub(super) fn update_targets(
        &mut self,
        state: Option<&DnsState>,
        now: Duration,
        random: &mut dyn FnMut() -> u64,
    ) {
        self.no_working_nameserver = state.is_none_or(|state| {
            matches!(
                state.standing,
                DnsStatus::Broken | DnsStatus::Unknown | DnsStatus::RolledBack
            )
        });
        self.verified = state.is_some_and(|state| state.standing == DnsStatus::Verified);
        self.fallback = !self.no_working_nameserver && state.is_some_and(|state| state.fallback);
        let mut nameservers: Vec<IpAddr> = state
            .into_iter()
            .flat_map(|state| &state.effective.nameservers)
            .copied()
            .collect();
        // Probed so that root learns at once when a requested nameserver answers.
        if let Some(state) = state.filter(|state| state.standing != DnsStatus::Verified) {
            let collides = |address: &IpAddr| state.collisions.iter().any(|one| one.nameserver == *address);
            let requested = state.asked.nameservers.iter().filter(|one| !collides(one));
            nameservers.extend(requested);
        }
        nameservers.truncate(MAX_NAMESERVERS);
        self.targets.retain(|address, _| nameservers.contains(address));
        for address in nameservers {
            let interval = self.interval;
            let judged = state
                .into_iter()
                .flat_map(|state| &state.judged)
                .find(|one| one.nameserver == address);
            self.targets.entry(address).or_insert_with(|| Target {
                next_probe: now + random_part(interval, random()),
                bucket_time: Duration::ZERO,
                is_up: judged.map(|one| one.health.is_usable()),
                last_results: VecDeque::new(),
            });
        }
    }

    /// Records the last reconcile run, which was `ago`.
    /// - A nameserver that did not answer the run is down, so that its return is noticed even if
    ///   the watch did not see it fail. Other bad results are not adopted: the watch's one question
    ///   may be answered all the time, and would request run after run.
    /// - Each probe of the run replaces one of the watch. So the rate of one probe per interval
    ///   holds with the timer's runs included. A nameserver that is down is not counted: a run
    ///   probes it many times, and only the watch notices when it comes up.
    pub(super) fn record_run(&mut self, state: &DnsState, ago: Duration, now: Duration) {
        if self.counted_run == state.at_boottime_ns {
            return;
        }
        self.counted_run = state.at_boottime_ns;
        for judged in state.judged.iter().filter(|one| one.health == Health::Dead) {
            if let Some(target) = self.targets.get_mut(&judged.nameserver) {
                target.is_up = Some(false);
                target.last_results.clear();
            }
        }
        let interval = self.interval;
        let counted = self.targets.iter_mut();
        for (address, target) in counted.filter(|(_, target)| target.is_up != Some(false)) {
            let probes = state.questions.get(address).copied().unwrap_or_default();
            if probes > 0 {
                let filled = target.bucket_time.max(now.saturating_sub(ago)) + interval * probes;
                target.bucket_time = filled.min(now + interval * MAX_COUNTED_PROBES);
                target.next_probe = target.next_probe.max(target.bucket_time);
            }
        }
    }

    pub(super) fn nameservers(&self) -> Vec<IpAddr> {
        self.targets.keys().copied().collect()
    }

    /// The nameservers to probe now. Each is due again after the interval plus up to a quarter of
    /// it.
    pub(super) fn take_due(&mut self, now: Duration, random: &mut dyn FnMut() -> u64) -> Vec<IpAddr> {
        let interval = self.interval;
        let due = self
            .targets
            .iter_mut()
            .filter(|(_, target)| target.next_probe <= now);
        due.map(|(address, target)| {
            target.bucket_time = target.bucket_time.max(now) + interval;
            target.next_probe = target.bucket_time + random_part(interval / 4, random());
            *address
        })
        .collect()
    }

    /// Records one probe's result. A nameserver changes state after [`STATE_CHANGE_THRESHOLD`]
    /// equal results. One result is enough for a nameserver that answers again while the guest
    /// needs it. It is not enough while the platform's nameservers replace it: the guest resolves
    /// names, and must not switch to and fro with a flapping cluster DNS.
    pub(super) fn record_result(&mut self, nameserver: IpAddr, is_up: bool) {
        let Some(target) = self.targets.get_mut(&nameserver) else {
            return;
        };
        target.last_results.push_back(is_up);
        if target.last_results.len() > STATE_CHANGE_THRESHOLD {
            target.last_results.pop_front();
        }
        let is_stable = target.last_results.len() == STATE_CHANGE_THRESHOLD
            && target.last_results.iter().all(|one| *one == is_up);
        let is_needed = is_up && target.is_up == Some(false) && !self.verified && !self.fallback;
        if (is_stable || is_needed) && target.is_up != Some(is_up) {
            if target.is_up.is_some() {
                let word = if is_up {
                    "answers again"
                } else {
                    "no longer answers"
                };
                self.pending_request = Some(format!("{nameserver} {word}"));
            }
            target.is_up = Some(is_up);
        }
    }

    /// Records a change in the guest. A change of an address counts if DNS uses the address, or if
    /// no nameserver works.
    pub(super) fn record_change(&mut self, change: &DnsChange, state: Option<&DnsState>) {
        let reason = match change {
            DnsChange::Address {
                address,
                interface,
                gone,
            } => {
                let is_used = state.is_some_and(|state| {
                    state.shown().any(|one| one == *address)
                        || state.judged.iter().any(|one| one.nameserver == *address)
                });
                let is_network = self.no_working_nameserver && !gone && !address.is_loopback();
                if !(is_used || is_network || self.cluster_addresses.contains(address)) {
                    return;
                }
                let word = if *gone { "gone from" } else { "now on" };
                format!("{address} is {word} {interface}")
            }
            DnsChange::ResolvConf { path } => format!("{path} has changed"),
            DnsChange::Lease { path } => format!("the lease {path} has changed"),
        };
        self.pending_request = Some(reason);
    }

    /// The reason for a reconcile request, if one is due. Above the rate limit the request stays
    /// pending.
    pub(super) fn take_request(&mut self, now: Duration) -> Option<String> {
        if now < self.earliest_request() {
            return None;
        }
        let reason = self.pending_request.take()?;
        self.last_request = Some(now);
        self.bucket_time = self.bucket_time.max(now) + RECONCILE_INTERVAL;
        Some(reason)
    }

    fn earliest_request(&self) -> Duration {
        let coalesced = self
            .last_request
            .map_or(Duration::ZERO, |last| last + COALESCE_WINDOW);
        let burst = RECONCILE_INTERVAL * (RECONCILE_BURST - 1);
        coalesced
            .max(self.not_before)
            .max(self.bucket_time.saturating_sub(burst))
    }

    /// How long there is nothing to do unless a change comes; at most the interval.
    pub(super) fn time_to_next(&self, now: Duration) -> Duration {
        let probes = self.targets.values().map(|target| target.next_probe);
        let request = self.pending_request.as_ref().map(|_| self.earliest_request());
        let next = probes.chain(request).min().unwrap_or(now + self.interval);
        next.saturating_sub(now).min(self.interval)
    }
}

/// A part of `length`, chosen by a random number.
fn random_part(length: Duration, random: u64) -> Duration {
    let milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random % milliseconds.max(1))
}

#[cfg(test)]
mod tests;
