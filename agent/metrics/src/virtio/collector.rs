//! `virtio`: the guest's virtio devices, and other devices where virtio is expected.

use virtfleet_agent_core::{
    nic::state::NicState,
    virtio::{complete, findings},
};
use virtfleet_agent_host::virtio::observe;
use virtfleet_agent_state::{CachedState, NIC_STATE};
use virtfleet_wire::{exposition::Page, settings::NicSettings};

use super::{devices, disks, nics, standing, watch::Watch};
use crate::{CollectError, Collector, Context, RegistryError, Skipped};

struct Virtio {
    watch: Watch,
    state: CachedState<NicState>,
    settings: NicSettings,
    /// Why the state could not be read at the last scrape; logged once.
    logged_failure: Option<String>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Virtio {
        watch: Watch::new(&context.roots, &context.nics, observe),
        state: CachedState::new(&context.roots, &NIC_STATE),
        settings: context.nic.clone(),
        logged_failure: None,
    }))
}

impl Collector for Virtio {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut skipped = Skipped::default();
        let (machine, interrupts) = self.watch.machine();
        let all_interrupts = skipped.take(interrupts).is_some();
        let (state, unread) = match self.state.get() {
            Ok(state) => (state, None),
            Err(error) => (None, Some(CollectError::from(error))),
        };
        if machine.devices.is_empty()
            && machine.nics.is_empty()
            && machine.disks.is_empty()
            && state.is_none()
        {
            return Err(unread.unwrap_or_else(|| CollectError::no_data("there is no virtio device")));
        }
        if let Some(state) = state {
            complete(machine, state);
        }
        devices::write(page, machine, all_interrupts);
        nics::write(page, machine);
        disks::write(page, &machine.disks);
        if let Some(state) = state {
            standing::write(page, state);
        }
        standing::findings(page, &findings(machine, state, &self.settings));
        // Last, because a page without sufficient room drops the end, and these are the least
        // important.
        nics::write_queues(page, machine);
        // An unreadable file affects only its own metrics.
        let why = unread.map(|error| error.to_string());
        if let Some(error) = why.as_ref().filter(|_| why != self.logged_failure) {
            tracing::warn!(%error, "the metrics lack the status of queues");
        }
        self.logged_failure = why;
        skipped.end()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_core::virtio::{Device, Machine};
    use virtfleet_agent_host::{NicCalls, Roots};
    use virtfleet_wire::settings::MetricsSettings;

    use super::*;

    fn one_device(_: &Roots, _: &dyn NicCalls, _: bool) -> Machine {
        Machine {
            devices: vec![Device {
                name: "virtio0".to_owned(),
                status: Some(64),
                ..Device::default()
            }],
            ..Machine::default()
        }
    }

    #[test]
    fn an_unreadable_state_affects_no_other_metrics() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().join("rootfs"),
            procfs: dir.path().join("proc"),
            sysfs: dir.path().join("sys"),
            ..Roots::default()
        };
        let context = Context::new(roots.clone(), MetricsSettings::default());
        let collector = |observe| Virtio {
            watch: Watch::new(&roots, &context.nics, observe),
            state: CachedState::new(&roots, &NIC_STATE),
            settings: NicSettings::default(),
            logged_failure: None,
        };
        let mut nothing = collector(|_, _, _| Machine::default());
        assert!(matches!(
            nothing.collect(&mut Page::new()),
            Err(CollectError::NoData(_))
        ));
        let mut virtio = collector(one_device);
        let state = dir.path().join("rootfs/run/virtfleet/state");
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join("nic.json"), "{").unwrap();
        let mut page = Page::new();
        virtio.collect(&mut page).unwrap();
        let page = page.to_text();
        assert!(
            page.contains("virtfleet_virtio_device_info{device=\"virtio0\""),
            "{page}"
        );
        assert!(
            page.contains("virtfleet_virtio_finding{subject=\"virtio0\",id=\"virtio-"),
            "{page}"
        );
        assert!(virtio.logged_failure.is_some(), "the failure is logged");
        fs::remove_file(state.join("nic.json")).unwrap();
        virtio.collect(&mut Page::new()).unwrap();
        assert_eq!(virtio.logged_failure, None);
    }
}
