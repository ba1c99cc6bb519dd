//! `tcpstat`: TCP sockets by state, from sock_diag, without the sockets' extended information.

use std::sync::Arc;

use virtfleet_agent_core::netlink::diag::state_name;
use virtfleet_agent_host::NetworkCalls;
use virtfleet_wire::exposition::{MetricType, Page};

use super::query_error;
use crate::{CollectError, Collector, Context, RegistryError};

/// Number of states that the kernel has, plus one for unknown states.
const STATES: usize = 12;

struct Tcpstat {
    network: Arc<dyn NetworkCalls>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Tcpstat {
        network: Arc::clone(&context.network),
    }))
}

impl Collector for Tcpstat {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut states = [0_u64; STATES];
        let sockets = self
            .network
            .tcp_sockets()
            .map_err(query_error("the TCP sockets"))?;
        for (state, count) in sockets.states {
            // States 1 to 11 have a name.
            let state = if state < 12 { usize::from(state) } else { 0 };
            states[state] += count;
        }
        let mut family = page.family(
            "node_tcp_connection_states",
            "TCP sockets in the state, and the queued bytes of all of them.",
            MetricType::Gauge,
        );
        let any = states.iter().any(|count| *count > 0);
        for (state, count) in states.iter().enumerate().filter(|(_, count)| **count > 0) {
            family.sample(&[("state", state_name(state))], *count as f64);
        }
        if any {
            family.sample(&[("state", "rx_queued_bytes")], sockets.receive_queue as f64);
            family.sample(&[("state", "tx_queued_bytes")], sockets.transmit_queue as f64);
        }
        Ok(())
    }
}
