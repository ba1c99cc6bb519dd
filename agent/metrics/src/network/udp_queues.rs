//! `udp_queues`: bytes that UDP sockets hold, from `/proc/net/udp` and `udp6`.

use virtfleet_agent_core::procfs::sockets::queues;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

/// A line of 128 bytes for each socket, of which a guest can have more than ports, by addresses.
const LIMIT: usize = 16 << 20;
/// A line over IPv6 is longer, with room for the largest numbers. The kernel walks through all of its table for each
/// reading.
const LINE: usize = 512;

struct UdpQueues {
    files: [Reread; 2],
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(UdpQueues {
        files: ["net/udp", "net/udp6"]
            .map(|path| Reread::with_limit(context.roots.proc(path), LIMIT).made_in_pieces(LINE)),
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
        for (file, version) in self.files.iter_mut().zip(["v4", "v6"]) {
            let path = file.path().to_owned();
            match file.text() {
                Err(error) if error.is_missing() => continue,
                text => {
                    let sum = queues(&text?).map_err(CollectError::parse(&path))?;
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
