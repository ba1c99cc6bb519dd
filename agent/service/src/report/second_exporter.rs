//! A second source of `node_*`: something listens on node_exporter's port.

use virtfleet_agent_host::has_listener;
use virtfleet_wire::{
    finding::{Finding, Severity},
    settings::Listener,
};

/// Port of node_exporter (Prometheus wiki, "Default port allocations"). KKP's add-on and the Helm
/// chart `prometheus-node-exporter` use it too, in the node's network namespace.
const NODE_EXPORTER_PORT: u16 = 9100;
/// Interval between two queries of the kernel, in nanoseconds.
const CHECK_INTERVAL_NS: u64 = 60 * 1_000_000_000;

/// Finds a second source of `node_*` in this guest.
#[derive(Debug)]
pub(super) struct SecondExporter {
    /// The agent has that port itself, in place of node_exporter.
    is_own: bool,
    /// Whether anything listens on a port; none if that is unknown.
    has_listener: fn(u16) -> Option<bool>,
    /// Time of the last query since the start of the guest, in nanoseconds, and its result.
    last: Option<(u64, bool)>,
}

impl SecondExporter {
    /// For an agent with these listeners, which does not query the kernel yet.
    pub(super) fn new(listeners: &[Listener]) -> Self {
        let port = |listener: &Listener| listener.address.rsplit_once(':')?.1.parse().ok();
        Self {
            is_own: listeners
                .iter()
                .any(|listener| port(listener) == Some(NODE_EXPORTER_PORT)),
            has_listener: |_| None,
            last: None,
        }
    }

    /// Queries the kernel's table of listeners.
    pub(super) fn query_kernel(&mut self) {
        self.has_listener = |port| has_listener(port).ok();
    }

    /// The finding; queries at most once in [`CHECK_INTERVAL_NS`].
    pub(super) fn finding(&mut self, boottime_ns: u64) -> Option<Finding> {
        if self.is_own {
            return None;
        }
        let is_due = |(at, _): (u64, bool)| boottime_ns.saturating_sub(at) >= CHECK_INTERVAL_NS;
        if self.last.is_none_or(is_due) {
            // An unknown state changes nothing: the last finding stays until a query succeeds.
            let known = self.last.is_some_and(|(_, listens)| listens);
            let listens = (self.has_listener)(NODE_EXPORTER_PORT).unwrap_or(known);
            self.last = Some((boottime_ns, listens));
        }
        self.last.filter(|(_, listens)| *listens)?;
        let message = format!(
            "something listens on TCP port {NODE_EXPORTER_PORT}, node_exporter's: if it is scraped into the same \
             tenant as this agent, node_* series are there twice"
        );
        let subject = ("Port", "9100");
        Some(
            Finding::new(
                "second-node-exporter",
                Severity::Info,
                subject,
                "PortInUse",
                message,
            )
            .with("port", NODE_EXPORTER_PORT)
            .remedy(
                "stop scraping one of the two: docs/mla.md, \"Hand over from KKP's node-exporter add-on\"",
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn listener(address: &str) -> Listener {
        Listener {
            address: address.to_owned(),
            ..Listener::default()
        }
    }

    fn with(answer: fn(u16) -> Option<bool>) -> SecondExporter {
        let mut exporter = SecondExporter::new(&[Listener::default()]);
        exporter.has_listener = answer;
        exporter
    }

    #[test]
    fn a_listener_on_the_port_is_a_finding() {
        let found = with(|port| Some(port == 9100)).finding(SECOND).unwrap();
        assert_eq!(
            (found.id.as_str(), found.severity),
            ("second-node-exporter", Severity::Info)
        );
        assert!(with(|_| Some(false)).finding(SECOND).is_none());
        assert!(with(|_| None).finding(SECOND).is_none(), "unknown is not found");
        assert!(
            include_str!("../../../../docs/findings.md").contains("`second-node-exporter`"),
            "listed"
        );
    }

    #[test]
    fn the_agents_own_port_is_none() {
        for address in ["[::]:9100", "127.0.0.1:9100"] {
            let mut exporter = SecondExporter::new(&[Listener::default(), listener(address)]);
            exporter.has_listener = |_| Some(true);
            assert!(exporter.finding(SECOND).is_none(), "{address}");
        }
    }

    #[test]
    fn the_kernel_is_queried_once_a_minute_and_an_error_changes_nothing() {
        let mut exporter = with(|_| Some(true));
        assert!(exporter.finding(SECOND).is_some());
        exporter.has_listener = |_| Some(false);
        assert!(exporter.finding(60 * SECOND).is_some(), "not queried yet");
        assert!(exporter.finding(61 * SECOND).is_none());
        exporter.has_listener = |_| Some(true);
        assert!(exporter.finding(121 * SECOND).is_some());
        exporter.has_listener = |_| None;
        assert!(exporter.finding(181 * SECOND).is_some(), "unknown");
    }
}
