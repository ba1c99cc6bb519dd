//! `dns`: the guest's nameservers, from the state that root's passes leave in `/run/virtfleet/state/dns.json`, and from what the watch hears. Only nameservers
//! that are in use or asked for: their number is bounded.

use std::net::IpAddr;

use virtfleet_agent_core::dns::{
    answers::{Health, Judged},
    state::{DnsState, Standing},
};
use virtfleet_agent_state::{CachedState, DNS_STATE, DnsHistory, dns_history::Heard};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

struct Dns {
    file: CachedState<DnsState>,
    history: DnsHistory,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Dns {
        file: CachedState::new(&context.roots, &DNS_STATE),
        history: context.dns.clone(),
    }))
}

impl Collector for Dns {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let state = self.file.get()?;
        if let Some(state) = state {
            write(page, state, &self.history.heard());
        }
        Ok(())
    }
}

fn write(page: &mut Page, state: &DnsState, heard: &[Heard]) {
    let shown: Vec<One<'_>> = state
        .shown()
        .map(|address| One::of(state, heard, address))
        .collect();
    nameservers(page, state, &shown);
    probes(page, &shown);
    let mut family = page.family(
        "virtfleet_dns_state",
        "How the guest's DNS stands: 1 for its state, 0 for the others.",
        MetricType::Gauge,
    );
    for standing in Standing::ALL {
        let value = f64::from(u8::from(state.standing == standing));
        family.sample(&[("state", standing.word())], value);
    }
    let mut family = page.family(
        "virtfleet_dns_collision",
        "A nameserver in use or asked for that this guest must not have; now=\"false\" where it is foreseen. Always 1.",
        MetricType::Gauge,
    );
    let collisions = state.collisions.iter();
    for one in collisions.filter(|one| shown.iter().any(|shown| shown.address == one.nameserver)) {
        let nameserver = one.nameserver.to_string();
        let now = if one.now { "true" } else { "false" };
        let labels = [
            ("nameserver", nameserver.as_str()),
            ("kind", one.kind.word()),
            ("now", now),
        ];
        family.sample(&labels, 1.0);
    }
    page.counter(
        "virtfleet_dns_changes_total",
        "Passes of this boot that changed the guest's DNS.",
        f64::from(state.changes),
    );
    page.counter(
        "virtfleet_dns_rollbacks_total",
        "Passes of this boot whose changes were put back.",
        f64::from(state.rollbacks),
    );
    if let Some(ms) = state.verified_at_boottime_ms {
        page.gauge(
            "virtfleet_dns_verified_seconds",
            "From the start of the guest to the first answer of this boot that a pass has verified.",
            ms as f64 / 1000.0,
        );
    }
}

/// A nameserver that is shown.
struct One<'a> {
    address: IpAddr,
    name: String,
    judged: Option<&'a Judged>,
    heard: Option<&'a Heard>,
    /// Whether the watch has spoken after the last pass.
    fresher: bool,
}

impl<'a> One<'a> {
    fn of(state: &'a DnsState, heard: &'a [Heard], address: IpAddr) -> Self {
        let heard = heard.iter().find(|one| one.nameserver == address);
        Self {
            address,
            name: address.to_string(),
            judged: state.judged.iter().find(|one| one.nameserver == address),
            fresher: heard.is_some_and(|heard| {
                heard
                    .last()
                    .is_some_and(|last| last.at_boottime_ns > state.at_boottime_ns)
            }),
            heard,
        }
    }

    fn up(&self) -> Option<bool> {
        match self.heard.filter(|_| self.fresher).and_then(Heard::last) {
            Some(last) => Some(last.good),
            None => self.judged.map(|judged| judged.health.is_usable()),
        }
    }

    fn micros(&self) -> Option<u64> {
        let last = self.heard.filter(|_| self.fresher).and_then(Heard::last);
        match last {
            Some(last) => last.micros,
            None => self.judged?.micros,
        }
    }
}

fn nameservers(page: &mut Page, state: &DnsState, shown: &[One<'_>]) {
    let mut family = page.family(
        "virtfleet_dns_nameserver_info",
        "A nameserver in use or asked for, and who configures the resolver, always 1.",
        MetricType::Gauge,
    );
    for one in shown {
        let has = |list: &[IpAddr]| {
            if list.contains(&one.address) {
                "true"
            } else {
                "false"
            }
        };
        let labels = [
            ("nameserver", one.name.as_str()),
            ("owner", state.owner.word()),
            ("in_use", has(&state.effective.nameservers)),
            ("asked", has(&state.asked.nameservers)),
        ];
        family.sample(&labels, 1.0);
    }
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&One<'_>) -> Option<f64>| {
        let mut family = page.family(name, help, MetricType::Gauge);
        for one in shown {
            if let Some(value) = value(one) {
                family.sample(&[("nameserver", one.name.as_str())], value);
            }
        }
    };
    gauge(
        "virtfleet_dns_nameserver_up",
        "Whether a nameserver gave a true answer when it was asked last.",
        &|one| one.up().map(|up| f64::from(u8::from(up))),
    );
    gauge(
        "virtfleet_dns_nameserver_latency_seconds",
        "How long a nameserver took when it was asked last.",
        &|one| one.micros().map(|micros| micros as f64 / 1e6),
    );
    let mut family = page.family(
        "virtfleet_dns_nameserver_health",
        "How a nameserver was in the last pass: 1 for its state, 0 for the others.",
        MetricType::Gauge,
    );
    for one in shown {
        let Some(judged) = one.judged else { continue };
        for health in Health::ALL {
            let labels = [("nameserver", one.name.as_str()), ("state", health.word())];
            family.sample(&labels, f64::from(u8::from(judged.health == health)));
        }
    }
}

fn probes(page: &mut Page, shown: &[One<'_>]) {
    let mut family = page.family(
        "virtfleet_dns_probes_total",
        "What a nameserver has answered to the watch since the agent started.",
        MetricType::Counter,
    );
    for one in shown {
        for (outcome, count) in one.heard.into_iter().flat_map(|heard| &heard.outcomes) {
            let labels = [("nameserver", one.name.as_str()), ("outcome", *outcome)];
            family.sample(&labels, *count as f64);
        }
    }
}
