//! `kernel_hung`: tasks that hung, from `/proc/sys/kernel/hung_task_detect_count` (kernel: `kernel/hung_task.c`, since 6.13).

use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use super::entropy::held;
use crate::{CollectError, Collector, Context, RegistryError};

struct KernelHung(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let file = context.roots.proc("sys/kernel/hung_task_detect_count");
    Ok(Box::new(KernelHung(Reread::new(file).made_at_once())))
}

impl Collector for KernelHung {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        match self.0.refresh() {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data(
                    "this kernel does not count tasks that hang",
                ));
            }
            read => read?,
        }
        page.counter(
            "node_kernel_hung_tasks_total",
            "Tasks that were found to hang since the system booted.",
            held(&self.0)?,
        );
        Ok(())
    }
}
