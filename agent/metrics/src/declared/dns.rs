//! `dns`: the guest's nameservers, from the state that root's reconcile runs write to
//! `/run/virtfleet/state/dns.json`, and from the nameserver watch. Only nameservers in use or
//! requested, so their number is bounded.

use std::net::IpAddr;

use virtfleet_agent_core::dns::{
    answers::{Health, Judged},
    state::{DnsState, DnsStatus},
};
use virtfleet_agent_state::{CachedState, DNS_STATE, DnsHistory, dns_history::NameserverHistory};
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
            write(page, state, &self.history.snapshot());
        }
        Ok(())
    }
}

fn write(page: &mut Page, state: &DnsState, history: &[NameserverHistory]) {
    let shown: Vec<NameserverRow<'_>> = state
        .shown()
        .map(|address| NameserverRow::of(state, history, address))
        .collect();
    nameservers(page, state, &shown);
    probes(page, &shown);
    let mut family = page.family(
        "virtfleet_dns_state",
        "State of the guest's DNS: 1 for its state, 0 for the others.",
        MetricType::Gauge,
    );
    for &standing in DnsStatus::ALL {
        let value = f64::from(u8::from(state.standing == standing));
        family.sample(&[("state", standing.word())], value);
    }
    let mut family = page.family(
        "virtfleet_dns_collision",
        "A nameserver in use or requested that this guest must not have; now=\"false\" if that is only predicted. Always 1.",
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
        "Reconcile runs of this boot that changed the guest's DNS.",
        f64::from(state.changes),
    );
    page.counter(
        "virtfleet_dns_rollbacks_total",
        "Reconcile runs of this boot whose changes were reverted.",
        f64::from(state.rollbacks),
    );
    if let Some(ms) = state.verified_at_boottime_ms {
        page.gauge(
            "virtfleet_dns_verified_seconds",
            "Time from the start of the guest to the first DNS answer that a reconcile run verified in this boot.",
            ms as f64 / 1000.0,
        );
    }
}

struct NameserverRow<'a> {
    address: IpAddr,
    name: String,
    judged: Option<&'a Judged>,
    history: Option<&'a NameserverHistory>,
    /// True if the watch has a result that is newer than the last reconcile run.
    watch_is_newer: bool,
}

impl<'a> NameserverRow<'a> {
    fn of(state: &'a DnsState, history: &'a [NameserverHistory], address: IpAddr) -> Self {
        let history = history.iter().find(|one| one.nameserver == address);
        Self {
            address,
            name: address.to_string(),
            judged: state.judged.iter().find(|one| one.nameserver == address),
            watch_is_newer: history.is_some_and(|history| {
                history
                    .last()
                    .is_some_and(|last| last.at_boottime_ns > state.at_boottime_ns)
            }),
            history,
        }
    }

    fn up(&self) -> Option<bool> {
        match self
            .history
            .filter(|_| self.watch_is_newer)
            .and_then(NameserverHistory::last)
        {
            Some(last) => Some(last.good),
            None => self.judged.map(|judged| judged.health.is_usable()),
        }
    }

    fn micros(&self) -> Option<u64> {
        let last = self
            .history
            .filter(|_| self.watch_is_newer)
            .and_then(NameserverHistory::last);
        match last {
            Some(last) => last.micros,
            None => self.judged?.micros,
        }
    }
}

fn nameservers(page: &mut Page, state: &DnsState, shown: &[NameserverRow<'_>]) {
    let mut family = page.family(
        "virtfleet_dns_nameserver_info",
        "A nameserver in use or requested, and the owner of the resolver configuration, always 1.",
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
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&NameserverRow<'_>) -> Option<f64>| {
        let mut family = page.family(name, help, MetricType::Gauge);
        for one in shown {
            if let Some(value) = value(one) {
                family.sample(&[("nameserver", one.name.as_str())], value);
            }
        }
    };
    gauge(
        "virtfleet_dns_nameserver_up",
        "Whether a nameserver gave the expected answer to the last probe.",
        &|one| one.up().map(|up| f64::from(u8::from(up))),
    );
    gauge(
        "virtfleet_dns_nameserver_latency_seconds",
        "Response time of a nameserver at the last probe.",
        &|one| one.micros().map(|micros| micros as f64 / 1e6),
    );
    let mut family = page.family(
        "virtfleet_dns_nameserver_health",
        "State of a nameserver in the last reconcile run: 1 for its state, 0 for the others.",
        MetricType::Gauge,
    );
    for one in shown {
        let Some(judged) = one.judged else { continue };
        for &health in Health::ALL {
            let labels = [("nameserver", one.name.as_str()), ("state", health.word())];
            family.sample(&labels, f64::from(u8::from(judged.health == health)));
        }
    }
}

fn probes(page: &mut Page, shown: &[NameserverRow<'_>]) {
    let mut family = page.family(
        "virtfleet_dns_probes_total",
        "Results of the nameserver watch's probes since the agent started, by outcome.",
        MetricType::Counter,
    );
    for one in shown {
        for (outcome, count) in one.history.into_iter().flat_map(|history| &history.outcomes) {
            let labels = [("nameserver", one.name.as_str()), ("outcome", *outcome)];
            family.sample(&labels, *count as f64);
        }
    }
}
