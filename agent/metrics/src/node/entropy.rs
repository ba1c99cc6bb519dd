//! `entropy`: the kernel's entropy pool, from `/proc/sys/kernel/random` (kernel:
//! `drivers/char/random.c`).

use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError, attributes::number_in};

struct Entropy {
    available: Reread,
    pool: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let dir = context.roots.proc("sys/kernel/random");
    Ok(Box::new(Entropy {
        available: Reread::new(dir.join("entropy_avail")).single_record(),
        pool: Reread::new(dir.join("poolsize")).single_record(),
    }))
}

impl Collector for Entropy {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        page.gauge(
            "node_entropy_available_bits",
            "Bits of available entropy.",
            number_in(&mut self.available)?,
        );
        page.gauge(
            "node_entropy_pool_size_bits",
            "Bits of entropy pool.",
            number_in(&mut self.pool)?,
        );
        Ok(())
    }
}
