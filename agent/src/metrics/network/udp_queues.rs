//! `udp_queues`: bytes that UDP sockets hold, from `/proc/net/udp` and `udp6`.

use std::path::PathBuf;

use virtfleet_agent_core::procfs::sockets::queues;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::host::slurp;
use crate::metrics::{CollectError, Collector, Context, RegistryError};

/// A line of 128 bytes for each socket, of which a guest can have more than ports, by addresses.
const LIMIT: usize = 16 << 20;

struct UdpQueues {
    files: [PathBuf; 2],
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(UdpQueues {
        files: ["net/udp", "net/udp6"].map(|path| context.roots.proc(path)),
        buffer: Vec::new(),
    }))
}

impl Collector for UdpQueues {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut family = page.family(
            "node_udp_queues",
            "Bytes that the kernel holds for UDP sockets.",
            MetricType::Gauge,
        );
        let mut any = false;
        for (file, version) in self.files.iter().zip(["v4", "v6"]) {
            match slurp(file, &mut self.buffer, LIMIT) {
                Err(error) if error.is_missing() => continue,
                text => {
                    let text = String::from_utf8_lossy(text?);
                    let sum = queues(&text).map_err(CollectError::parse(file))?;
                    family.sample(&[("queue", "tx"), ("ip", version)], sum.transmit as f64);
                    family.sample(&[("queue", "rx"), ("ip", version)], sum.receive as f64);
                }
            }
            any = true;
        }
        if any {
            Ok(())
        } else {
            Err(CollectError::no_data("the kernel has no UDP"))
        }
    }
}
