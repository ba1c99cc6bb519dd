//! VMs whose agents are not pulled.

use super::FleetIndex;
use crate::{managed::ManagedRules, store::VmEntry, view::AgentStatus};

impl FleetIndex {
    /// Sets which VMs have an agent that is pulled; before the first event.
    pub fn set_managed_rules(&mut self, rules: ManagedRules) {
        self.store.managed = rules;
    }

    /// Whether labels and conditions of the VM's Node follow.
    pub(super) fn is_followed(&self, entry: &VmEntry) -> bool {
        let unmanaged = entry
            .view
            .as_ref()
            .is_some_and(|view| view.agent.status == AgentStatus::Unmanaged);
        !unmanaged || self.store.managed.nodes_of_unmanaged
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        dial::DialRules,
        facts::{Exclusion, Fact, InventoryEvent},
        fleet_status::FleetStatus,
        index::FleetIndex,
        managed::ManagedRules,
        selector_text::parse_selector,
        store::tests::{key, labels, launcher, vm, vmi},
        view::AgentStatus,
    };

    fn exclusion(name: &str, ignored: &str, windows: &str) -> Exclusion {
        match name {
            name if name == ignored => Exclusion::Ignored,
            name if name == windows => Exclusion::Windows,
            _ => Exclusion::None,
        }
    }

    fn index(rules: ManagedRules) -> FleetIndex {
        let mut index = FleetIndex::new(DialRules::default());
        index.set_managed_rules(rules);
        index.apply(InventoryEvent::Init);
        let names = [
            "agent",
            "ignored",
            "ignored-vm",
            "windows",
            "windows-vm",
            "foreign",
        ];
        for (number, name) in names.into_iter().enumerate() {
            let address = format!("10.0.0.{}", number + 1);
            let mut one = vmi("a", name);
            one.interfaces[0].addresses = vec![address.parse().unwrap()];
            one.exclusion = exclusion(name, "ignored", "windows");
            one.labels = labels(&[("pool", if name == "foreign" { "other" } else { "workers" })]);
            index.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(one))));
            let mut definition = vm("a", name);
            definition.exclusion = exclusion(name, "ignored-vm", "windows-vm");
            index.apply(InventoryEvent::Apply(Fact::Vm(definition)));
            let pod = launcher("a", name, &[&address]);
            index.apply(InventoryEvent::Apply(Fact::LauncherPod(pod)));
        }
        index.apply(InventoryEvent::Synced);
        index
    }

    #[test]
    fn only_managed_vms_are_dialled_and_counted() {
        let selector = parse_selector("pool=workers").unwrap();
        let rules = ManagedRules {
            selector,
            nodes_of_unmanaged: false,
        };
        let index = index(rules);
        assert_eq!(index.targets(), [key("a", "agent")]);
        for name in ["ignored", "ignored-vm", "windows", "windows-vm", "foreign"] {
            let refused = index.dial(&key("a", name)).unwrap_err();
            assert!(refused.message().contains("not dialled"), "{name}: {refused:?}");
            assert!(!index.can_answer(&key("a", name)));
            let found = index.findings(&key("a", name));
            assert!(found.iter().all(|one| !one.id.starts_with("agent-")), "{found:?}");
        }
        let fleet = index.snapshot();
        let unmanaged = fleet
            .vms
            .values()
            .filter(|vm| vm.agent.status == AgentStatus::Unmanaged);
        assert!(unmanaged.clone().all(|vm| vm.agent.address.is_none()));
        assert_eq!(unmanaged.count(), 5);
        let status = FleetStatus::of(&fleet);
        assert_eq!((status.vms, status.unmanaged), (1, 5));
    }

    #[test]
    fn without_rules_only_annotation_and_windows_count() {
        let targets = index(ManagedRules::default()).targets();
        assert_eq!(targets, [key("a", "agent"), key("a", "foreign")]);
    }
}
