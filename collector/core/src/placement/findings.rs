//! Findings about required rules between VMs. Those about infra nodes are each VM's own.

use virtfleet_wire::{finding::Finding, finding::Severity, ids::VmKey};

use super::check::{PlacementLevel, PlacementReport, RULE_NODE_AFFINITY};
use crate::findings::{self, PLACEMENT_VM_RULE};

/// Maximum findings; `virtfleetctl placement` lists all problems.
const MAX_PLACEMENT_FINDINGS: usize = 100;

/// The findings of a report, each VM once, sorted by VM. They name no other VM, because it may be
/// one of another tenant.
pub fn placement_findings(report: &PlacementReport) -> Vec<Finding> {
    let problems = report.problems.iter();
    let of_vms = problems
        .filter(|one| one.level == PlacementLevel::Violated && one.rule != RULE_NODE_AFFINITY)
        .map(|one| {
            let key = VmKey {
                namespace: one.namespace.clone(),
                name: one.name.clone(),
            };
            let message = format!("{key} violates its {} rule: {}", one.rule, one.message);
            let found = findings::vm(
                PLACEMENT_VM_RULE,
                Severity::Warning,
                &key,
                "PlacementVmRule",
                message,
            );
            let found = found
                .with("namespace", &one.namespace)
                .with("rule", &one.rule)
                .with("vms", one.vms);
            found.remedy(
                "virtfleetctl placement lists all such rules; migrate one of the VMs: virtctl migrate",
            )
        });
    let mut found: Vec<Finding> = of_vms.collect();
    found.dedup_by(|a, b| a.subject == b.subject);
    found.truncate(MAX_PLACEMENT_FINDINGS);
    found
}
