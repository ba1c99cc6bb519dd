//! Measures the traffic of an interface before and after a change.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use virtfleet_agent_core::nic::state::Rates;
use virtfleet_agent_host::Traffic;

use super::World;

/// How long traffic is sampled to see whether there is any.
const SHORT_SAMPLE_TIME: Duration = Duration::from_millis(250);
/// How long traffic is sampled to measure its rate.
pub(super) const SAMPLE_TIME: Duration = Duration::from_secs(1);
/// Rates below this many packets per second are not compared.
const MIN_PACKETS: f64 = 1000.0;

/// Counters at one moment.
struct Sample {
    at: Duration,
    softirq: Option<Duration>,
    nics: BTreeMap<String, Traffic>,
}

fn sample(world: &dyn World, nics: &[String]) -> Sample {
    let each = nics
        .iter()
        .filter_map(|nic| Some((nic.clone(), world.traffic(nic)?)));
    let nics = each.collect();
    Sample {
        at: world.now(),
        softirq: world.softirq(),
        nics,
    }
}

/// Traffic of some interfaces.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Rates of each interface.
    pub(super) rates: BTreeMap<String, Rates>,
    /// Interfaces with enough traffic to be measured.
    pub(super) busy: BTreeSet<String>,
}

/// Samples all of these interfaces for a quarter of a second; if one of them is busy, for a whole
/// second.
pub(super) fn load(world: &dyn World, nics: &[String]) -> Load {
    if nics.is_empty() {
        return Load::default();
    }
    let before = sample(world, nics);
    world.pause(SHORT_SAMPLE_TIME);
    let glance = sample(world, nics);
    let seconds = glance.at.saturating_sub(before.at).as_secs_f64();
    let is_busy = |nic: &&String| {
        let packets = before.nics.get(*nic).zip(glance.nics.get(*nic));
        packets.is_some_and(|(a, b)| per_second(a.packets, b.packets, seconds) >= MIN_PACKETS)
    };
    let busy: Vec<String> = nics.iter().filter(is_busy).cloned().collect();
    let mut rates_of = rates(&before, &glance);
    if !busy.is_empty() {
        world.pause(SAMPLE_TIME.saturating_sub(SHORT_SAMPLE_TIME));
        rates_of.extend(rates(&before, &sample(world, &busy)));
    }
    Load {
        rates: rates_of,
        busy: busy.into_iter().collect(),
    }
}

pub(super) fn measure(world: &dyn World, nics: &[String]) -> BTreeMap<String, Rates> {
    let before = sample(world, nics);
    world.pause(SAMPLE_TIME);
    rates(&before, &sample(world, nics))
}

fn rates(before: &Sample, after: &Sample) -> BTreeMap<String, Rates> {
    let seconds = after.at.saturating_sub(before.at).as_secs_f64();
    let spent = |(a, b): (Duration, Duration)| b.saturating_sub(a).as_secs_f64();
    let softirq = before.softirq.zip(after.softirq).map_or(0.0, spent) / seconds.max(f64::EPSILON);
    let each = after.nics.iter().filter_map(|(nic, now)| {
        let then = before.nics.get(nic)?;
        let rates = Rates {
            rx_bytes: per_second(then.rx_bytes, now.rx_bytes, seconds),
            tx_bytes: per_second(then.tx_bytes, now.tx_bytes, seconds),
            softirq,
        };
        Some((nic.clone(), rates))
    });
    each.collect()
}

#[allow(clippy::cast_precision_loss, reason = "a rate of a second is far below 2^52")]
fn per_second(then: u64, now: u64, seconds: f64) -> f64 {
    now.saturating_sub(then) as f64 / seconds.max(f64::EPSILON)
}
