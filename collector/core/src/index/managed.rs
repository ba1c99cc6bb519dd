//! VMs whose agents are not pulled.

use virtfleet_wire::ids::Namespace;

use super::{FleetIndex, touched::Touched};
use crate::{managed::ManagedRules, store::VmEntry, view::AgentStatus};

impl FleetIndex {
    /// Sets which VMs have an agent that is pulled; before the first event.
    pub fn set_managed_rules(&mut self, rules: ManagedRules) {
        self.store.managed = rules;
    }

    /// Sets whether the agents of a namespace are not pulled. Returns whether that has changed.
    pub(super) fn put_namespace(
        &mut self,
        name: &Namespace,
        is_ignored: bool,
        touched: &mut Touched,
    ) -> bool {
        let ignored = &mut self.store.ignored_namespaces;
        let changed = if is_ignored {
            ignored.insert(name.clone())
        } else {
            ignored.remove(name)
        };
        if changed {
            let vms = self.store.vms_by_namespace.get(name);
            touched.views.extend(vms.into_iter().flatten().cloned());
        }
        changed
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
        facts::{Exclusion, Fact, FactKey, InventoryEvent},
        fleet_status::FleetStatus,
        index::FleetIndex,
        managed::ManagedRules,
        namespace::InfraNamespace,
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
    fn an_ignored_namespace_excludes_its_vms_until_it_is_no_longer_ignored() {
        let mut index = index(ManagedRules::default());
        let dialled = [key("a", "agent"), key("a", "foreign")];
        let namespace = |name: &str, is_ignored| {
            let name = name.parse().unwrap();
            InventoryEvent::Apply(Fact::Namespace(InfraNamespace { name, is_ignored }))
        };
        assert_eq!(index.apply(namespace("b", true)), [], "no VM is there");
        assert_eq!(index.targets(), dialled);

        let changed = index.apply(namespace("a", true));
        assert_eq!(changed.len(), 6, "{changed:?}");
        assert_eq!(index.apply(namespace("a", true)), [], "it is known already");
        assert_eq!(index.targets(), []);
        let fleet = index.snapshot();
        let status = FleetStatus::of(&fleet);
        assert_eq!((status.vms, status.unmanaged), (0, 6));
        // A change of health is shown after it has lasted.
        index.set_time(String::new(), 600_000);
        index.settle();
        for (name, expected) in [
            (
                "agent",
                "not dialled: its namespace has the annotation virtfleet.io/ignore",
            ),
            (
                "ignored",
                "not dialled: it has the annotation virtfleet.io/ignore",
            ),
        ] {
            let conditions = index.detail(&key("a", name)).unwrap().conditions;
            let reporting = conditions.iter().find(|one| one.kind == "AgentReporting");
            let message = &reporting.unwrap().message;
            assert!(message.ends_with(expected), "{name}: {message}");
        }

        index.apply(namespace("a", false));
        assert_eq!(index.targets(), dialled);
        index.apply(namespace("a", true));
        index.apply(InventoryEvent::Delete(FactKey::Namespace("a".parse().unwrap())));
        assert_eq!(index.targets(), dialled);

        // What a complete list no longer has is removed.
        index.apply(namespace("a", true));
        index.apply(InventoryEvent::Init);
        for name in ["agent", "foreign"] {
            index.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(vmi("a", name)))));
        }
        index.apply(InventoryEvent::Synced);
        assert_eq!(index.targets(), dialled);
    }

    #[test]
    fn without_rules_only_annotation_and_windows_count() {
        let targets = index(ManagedRules::default()).targets();
        assert_eq!(targets, [key("a", "agent"), key("a", "foreign")]);
    }
}
