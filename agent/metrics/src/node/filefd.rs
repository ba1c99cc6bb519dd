//! `filefd`: open files of the whole system, from `/proc/sys/fs/file-nr` (kernel:
//! `fs/file_table.c`).

use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError};

struct Filefd(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let file = context.roots.proc("sys/fs/file-nr");
    Ok(Box::new(Filefd(Reread::new(file).single_record())))
}

impl Collector for Filefd {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.0.path().to_owned();
        let text = self.0.text()?;
        // Allocated, allocated but unused (0 since Linux 2.6), maximum.
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(allocated)), Some(Ok(_)), Some(Ok(maximum))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(CollectError::failed(format!(
                "{} does not contain three numbers",
                path.display()
            )));
        };
        page.gauge(
            "node_filefd_allocated",
            "File descriptor statistics: allocated.",
            allocated as f64,
        );
        page.gauge(
            "node_filefd_maximum",
            "File descriptor statistics: maximum.",
            maximum as f64,
        );
        Ok(())
    }
}
