//! `udp_queues`: queued bytes of UDP sockets, from `/proc/net/udp` and `udp6`.

use virtfleet_agent_core::procfs::sockets::queues;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum size of a file in bytes: a line of 128 bytes per socket. A guest can have more sockets
/// than ports, with different addresses.
const MAX_FILE_BYTES: usize = 16 << 20;
/// Maximum length of a line; IPv6 lines are longer. The kernel walks its whole table for each read.
const MAX_LINE_BYTES: usize = 512;

struct UdpQueues {
    files: [Reread; 2],
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(UdpQueues {
        files: ["net/udp", "net/udp6"].map(|path| {
            Reread::with_limit(context.roots.proc(path), MAX_FILE_BYTES).max_record_bytes(MAX_LINE_BYTES)
        }),
    }))
}

impl Collector for UdpQueues {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut family = page.family(
            "node_udp_queues",
            "Bytes in the queues of UDP sockets.",
            MetricType::Gauge,
        );
        let mut any = false;
        let mut skipped = Skipped::default();
        for (file, version) in self.files.iter_mut().zip(["v4", "v6"]) {
            let path = file.path().to_owned();
            match file.text() {
                Err(error) if error.is_missing() => continue,
                text => {
                    // The sum of the other sockets would be wrong.
                    let sum = queues(&text?).map_err(CollectError::parse(&path));
                    if let Some(sum) = skipped.take(sum) {
                        family.sample(&[("queue", "tx"), ("ip", version)], sum.transmit as f64);
                        family.sample(&[("queue", "rx"), ("ip", version)], sum.receive as f64);
                    }
                }
            }
            any = true;
        }
        if any {
            skipped.end()
        } else {
            Err(CollectError::no_data("the kernel has no UDP"))
        }
    }
}
