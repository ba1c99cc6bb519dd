//! `entropy`: the kernel's entropy pool, from `/proc/sys/kernel/random` (kernel:
//! `drivers/char/random.c`).

use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError, Skipped, attributes::number_in};

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
        let mut skipped = Skipped::default();
        for (file, name, help) in [
            (
                &mut self.available,
                "node_entropy_available_bits",
                "Bits of available entropy.",
            ),
            (
                &mut self.pool,
                "node_entropy_pool_size_bits",
                "Bits of entropy pool.",
            ),
        ] {
            if let Some(bits) = skipped.take(number_in(file)) {
                page.gauge(name, help, bits);
            }
        }
        skipped.end()
    }
}
