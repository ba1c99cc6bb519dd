//! `entropy`: the kernel's entropy pool, from `/proc/sys/kernel/random` (kernel:
//! `drivers/char/random.c`).

use virtfleet_agent_core::procfs::single;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError};

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
            number(&mut self.available)?,
        );
        page.gauge(
            "node_entropy_pool_size_bits",
            "Bits of entropy pool.",
            number(&mut self.pool)?,
        );
        Ok(())
    }
}

/// Reads a file with one number.
pub(super) fn number(file: &mut Reread) -> Result<f64, CollectError> {
    file.refresh()?;
    held(file)
}

/// The number of a file that was just read.
pub(super) fn held(file: &Reread) -> Result<f64, CollectError> {
    let text = String::from_utf8_lossy(file.bytes());
    let number = single::unsigned(&text).map_err(CollectError::parse(file.path()))?;
    Ok(number as f64)
}
