//! The DNS watch of the daemon, without privileges. It probes each nameserver in use from time to
//! time, follows changes of addresses and files, and requests a reconcile run from root when one is
//! due. At rest its thread sleeps in `poll`.
//!
//! ```text
//! netlink, inotify ─▶ DnsChangeSource (host) ─┐
//! dns.json ─▶ nameservers in use ─────────────┼─▶ ProbeScheduler ─ due ─▶ one question ─▶ DnsHistory ─▶ metrics, report
//!                                             └──────────────── request ─▶ /run/virtfleet/ask/dns
//! ```

mod probe_scheduler;
mod thread;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use virtfleet_agent_core::dns::{
    Asked,
    answers::{by_interface, periodic_question},
    state::DnsState,
};
use virtfleet_agent_host::{
    Requester, Roots, Stamped, clock,
    dns::{DnsChange, DnsClient},
    request_reconcile,
};
use virtfleet_agent_state::{DNS_STATE, DnsHistory, dns_history::is_good, identity::observe};

use probe_scheduler::ProbeScheduler;
pub use thread::{DnsWatchEnded, DnsWatchThread, start};

/// Probes nameservers and requests reconcile runs, as [`ProbeScheduler`] decides.
struct DnsWatch {
    roots: Roots,
    asked: Asked,
    boot_id: String,
    scheduler: ProbeScheduler,
    history: DnsHistory,
    file: Stamped<Option<DnsState>>,
    began: Instant,
}

impl DnsWatch {
    fn new(roots: &Roots, asked: Asked, history: DnsHistory) -> Self {
        let mut file = Stamped::new(roots.root(DNS_STATE.path));
        let boot_id = observe(roots).boot_id;
        let mut scheduler = ProbeScheduler::new(&asked);
        let since_boot = Duration::from_nanos(clock().boottime_ns);
        scheduler.request_at_start(recorded_state(&mut file, &boot_id), since_boot);
        Self {
            scheduler,
            file,
            boot_id,
            roots: roots.clone(),
            began: Instant::now(),
            asked,
            history,
        }
    }

    /// Time since the watch began: the scheduler's clock.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Probes the nameservers that are due, and requests a reconcile run if there is a reason.
    fn round(&mut self, now: Duration, dns_client: &dyn DnsClient, random: &mut dyn FnMut() -> u64) {
        let state = recorded_state(&mut self.file, &self.boot_id);
        let mut zones = BTreeMap::new();
        if let Some(state) = state {
            zones.extend(state.asked.zones.clone());
            zones.extend(state.effective.zones.clone());
        }
        self.scheduler.update_targets(state, now, random);
        if let Some(state) = state {
            let ago = Duration::from_millis(state.age_ms(clock().boottime_ns));
            self.scheduler.record_run(state, ago, now);
        }
        self.history.keep(&self.scheduler.nameservers());
        let due = self.scheduler.take_due(now, random);
        if !due.is_empty() {
            let questions = due
                .iter()
                .map(|one| periodic_question(&self.asked, *one))
                .collect();
            let questions = by_interface(questions, &zones);
            let timeout = Duration::from_millis(self.asked.probe_timeout_ms);
            for answer in dns_client.query(&questions, timeout) {
                self.history.add(&answer, clock().boottime_ns);
                let is_up = is_good(&answer.outcome);
                self.scheduler.record_result(answer.question.nameserver, is_up);
            }
        }
        self.request(now);
    }

    /// Requests a reconcile run from root if there is a reason.
    fn request(&mut self, now: Duration) {
        if let Some(reason) = self.scheduler.take_request(now) {
            match request_reconcile(&self.roots, Requester::Dns) {
                Ok(()) => tracing::info!(reason, "requested a reconcile run for DNS"),
                Err(error) => tracing::warn!(
                    reason,
                    error = &error as &dyn std::error::Error,
                    "cannot request a reconcile run for DNS"
                ),
            }
        }
    }

    fn record_changes(&mut self, changes: &[DnsChange]) {
        let state = recorded_state(&mut self.file, &self.boot_id);
        for change in changes {
            self.scheduler.record_change(change, state);
        }
    }
}

/// The state that the last reconcile run of this boot recorded.
fn recorded_state<'a>(file: &'a mut Stamped<Option<DnsState>>, boot_id: &str) -> Option<&'a DnsState> {
    file.get(|bytes| DNS_STATE.parse(bytes, boot_id).ok())
        .ok()?
        .as_ref()
}

#[cfg(test)]
mod tests;
