//! `kernel_hung`: hung tasks, from `/proc/sys/kernel/hung_task_detect_count` (kernel:
//! `kernel/hung_task.c`, since 6.13).

use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use crate::attributes::held_number;
use crate::{CollectError, Collector, Context, RegistryError};

struct KernelHung(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let file = context.roots.proc("sys/kernel/hung_task_detect_count");
    Ok(Box::new(KernelHung(Reread::new(file).single_record())))
}

impl Collector for KernelHung {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        match self.0.refresh() {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("this kernel does not count hung tasks"));
            }
            read => read?,
        }
        page.counter(
            "node_kernel_hung_tasks_total",
            "Hung tasks that were detected since the system booted.",
            held_number(&self.0)?,
        );
        Ok(())
    }
}
