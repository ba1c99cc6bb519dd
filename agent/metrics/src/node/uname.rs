//! `uname`: the strings of uname(2) as labels.

use std::sync::Arc;

use virtfleet_agent_host::MachineCalls;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

struct UnameInfo(Arc<dyn MachineCalls>);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(UnameInfo(Arc::clone(&context.machine))))
}

impl Collector for UnameInfo {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let uname = self
            .0
            .uname()
            .map_err(|error| CollectError::because("uname(2) failed", error))?;
        page.family(
            "node_uname_info",
            "The kernel and the host from uname(2), always 1.",
            MetricType::Gauge,
        )
        .sample(
            &[
                ("sysname", &uname.sysname),
                ("release", &uname.release),
                ("version", &uname.version),
                ("machine", &uname.machine),
                ("nodename", &uname.nodename),
                ("domainname", &uname.domainname),
            ],
            1.0,
        );
        Ok(())
    }
}
