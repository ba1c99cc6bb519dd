//! The watch over the guest's DNS, in `run`, without rights: it asks each nameserver in use now and then, hears of changes, and asks root for a pass when one
//! is due. At rest it sleeps in `poll`.
//!
//! ```text
//! netlink, inotify ─▶ DnsWatch (host) ─┐
//! dns.json ─▶ who is in use ───────────┼─▶ Mind ─ due ─▶ one question ─▶ DnsHistory ─▶ metrics, report
//!                                      └────────── wish ─▶ /run/virtfleet/ask/dns
//! ```

mod mind;

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use virtfleet_agent_core::dns::{
    Asked,
    answers::{at_rest, by_interface},
    state::DnsState,
};
use virtfleet_wire::settings::DnsManage;

use mind::Mind;
use virtfleet_agent_host::{
    Requester, Roots, Stamped, clock,
    dns::{Asker, DnsChange, DnsChangeSource, Network, random_bytes},
    request_reconcile,
};
use virtfleet_agent_state::{
    DNS_STATE, DnsHistory,
    dns_history::is_good,
    identity::observe,
    settings::{LoadedSettings, dns::wanted},
};

/// A small stack is enough for a few questions.
const STACK: usize = 512 << 10;

/// Starts the watch, unless `dns.manage` is off. It ends with the process. What is due at once is done when this returns, as the process may end soon for want of a
/// certificate. Errors: there can be no thread.
pub fn start(roots: &Roots, settings: &LoadedSettings, history: &DnsHistory) -> io::Result<()> {
    let wanted = wanted(roots, settings);
    if wanted.asked.manage == DnsManage::Off {
        return Ok(());
    }
    let changes = DnsChangeSource::open(roots);
    let mut watch = Watch::new(roots, wanted.asked, history.clone());
    watch.wish(Duration::ZERO);
    std::thread::Builder::new()
        .name("dns".to_owned())
        .stack_size(STACK)
        .spawn(move || watch.run(changes))?;
    Ok(())
}

struct Watch {
    roots: Roots,
    asked: Asked,
    boot_id: String,
    mind: Mind,
    history: DnsHistory,
    file: Stamped<Option<DnsState>>,
    began: Instant,
}

impl Watch {
    fn new(roots: &Roots, asked: Asked, history: DnsHistory) -> Self {
        let mut file = Stamped::new(roots.root(DNS_STATE.path));
        let boot_id = observe(roots).boot_id;
        let mut mind = Mind::new(&asked);
        let since_boot = Duration::from_nanos(clock().boottime_ns);
        mind.start(Self::state(&mut file, &boot_id), since_boot);
        Self {
            mind,
            file,
            boot_id,
            roots: roots.clone(),
            began: Instant::now(),
            asked,
            history,
        }
    }

    fn run(mut self, mut source: DnsChangeSource) {
        loop {
            let now = self.began.elapsed();
            self.round(now, &Network, &mut || u64::from_ne_bytes(random_bytes()));
            let changes = source.wait(self.mind.rest(now));
            self.hear(&changes);
        }
    }

    /// Asks whom it is time to ask, and root, when there is a reason.
    fn round(&mut self, now: Duration, asker: &dyn Asker, random: &mut dyn FnMut() -> u64) {
        let state = Self::state(&mut self.file, &self.boot_id);
        let mut zones = BTreeMap::new();
        if let Some(state) = state {
            zones.extend(state.asked.zones.clone());
            zones.extend(state.effective.zones.clone());
        }
        self.mind.follow(state, now, random);
        if let Some(state) = state {
            let ago = Duration::from_millis(state.age_ms(clock().boottime_ns));
            self.mind.count(state, ago, now);
        }
        self.history.keep(&self.mind.nameservers());
        let due = self.mind.due(now, random);
        if !due.is_empty() {
            let questions = due.iter().map(|one| at_rest(&self.asked, *one)).collect();
            let questions = by_interface(questions, &zones);
            let timeout = Duration::from_millis(self.asked.probe_timeout_ms);
            for answer in asker.ask(&questions, timeout) {
                self.history.add(&answer, clock().boottime_ns);
                let good = is_good(&answer.outcome);
                self.mind.heard(answer.question.nameserver, good);
            }
        }
        self.wish(now);
    }

    /// Asks root, when there is a reason.
    fn wish(&mut self, now: Duration) {
        if let Some(reason) = self.mind.wish(now) {
            match request_reconcile(&self.roots, Requester::Dns) {
                Ok(()) => tracing::info!(reason, "asked for a reconcile of DNS"),
                Err(error) => tracing::warn!(
                    reason,
                    error = &error as &dyn std::error::Error,
                    "DNS is not looked at again"
                ),
            }
        }
    }

    fn hear(&mut self, changes: &[DnsChange]) {
        let state = Self::state(&mut self.file, &self.boot_id);
        for change in changes {
            self.mind.changed(change, state);
        }
    }

    /// What root's last pass of this boot has found.
    fn state<'a>(file: &'a mut Stamped<Option<DnsState>>, boot_id: &str) -> Option<&'a DnsState> {
        file.get(|bytes| DNS_STATE.parse(bytes, boot_id).ok())
            .ok()?
            .as_ref()
    }
}

#[cfg(test)]
mod tests;
