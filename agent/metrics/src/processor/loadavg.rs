//! `loadavg`: `/proc/loadavg`.

use virtfleet_agent_core::procfs::loadavg;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError};

struct Loadavg(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Loadavg(
        Reread::new(context.roots.proc("loadavg")).single_record(),
    )))
}

impl Collector for Loadavg {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.0.path().to_owned();
        let [one, five, fifteen] = loadavg::loads(&self.0.text()?).map_err(CollectError::parse(&path))?;
        page.gauge("node_load1", "1m load average.", one);
        page.gauge("node_load5", "5m load average.", five);
        page.gauge("node_load15", "15m load average.", fifteen);
        Ok(())
    }
}
