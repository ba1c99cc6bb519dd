//! Inventory readers: they convert Kubernetes objects into facts and emit
//! [`InventoryEvent`](virtfleet_collector_core::facts::InventoryEvent)s. The module `read` converts
//! objects from files and from API servers alike.

pub mod cluster;
pub mod folder;
mod read;

use virtfleet_wire::finding::{Finding, Severity};

fn log_new(known: &[Finding], found: &[Finding]) {
    for finding in found.iter().filter(|finding| !known.contains(finding)) {
        if finding.severity == Severity::Info {
            tracing::info!(finding = %finding.id, remedy = %finding.remedy, "{}", finding.message);
        } else {
            tracing::warn!(finding = %finding.id, remedy = %finding.remedy, "{}", finding.message);
        }
    }
    for gone in known.iter().filter(|known| {
        !found
            .iter()
            .any(|f| (&f.id, &f.subject) == (&known.id, &known.subject))
    }) {
        tracing::info!(finding = %gone.id, subject = %gone.subject.name, "finding resolved");
    }
}
