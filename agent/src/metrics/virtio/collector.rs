//! `virtio`: what the guest sees of its virtio devices, and of those that stand where virtio was meant.

use virtfleet_wire::{exposition::Page, settings::NicSettings};

use super::{
    devices, disks, nics,
    source::{FINDINGS, Findings, OBSERVE},
    standing,
    state::State,
    watch::Watch,
};
use crate::metrics::{CollectError, Collector, Context, RegistryError};

struct Virtio {
    watch: Watch,
    state: State,
    settings: NicSettings,
    findings: Findings,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Virtio {
        watch: Watch::new(&context.roots, &context.nics, OBSERVE),
        state: State::new(&context.roots),
        settings: context.nic.clone(),
        findings: FINDINGS,
    }))
}

impl Collector for Virtio {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let machine = self.watch.machine();
        let (state, unread) = match self.state.get() {
            Ok(state) => (state, None),
            Err(error) => (None, Some(error)),
        };
        if machine.devices.is_empty()
            && machine.nics.is_empty()
            && machine.disks.is_empty()
            && state.is_none()
        {
            return Err(unread.unwrap_or_else(|| CollectError::no_data("there is no virtio device")));
        }
        devices::write(page, machine);
        nics::write(page, machine, state);
        disks::write(page, &machine.disks);
        if let Some(state) = state {
            standing::write(page, state);
        }
        standing::findings(page, &(self.findings)(machine, state, &self.settings));
        // A file that cannot be read takes nothing from the page but what it would have said.
        if let Some(error) = unread {
            tracing::debug!(%error, "how queues stand is not told");
        }
        Ok(())
    }
}
