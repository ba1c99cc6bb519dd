//! The last line under a list.

use std::time::Duration;

use virtfleet_collector_core::view::List;
use virtfleet_wire::finding::Severity;

use super::{
    client::{ApiResponse, Client},
    target::Target,
    text::count,
};
use crate::api::FindingView;

/// The line after a list: whether the list is complete, and findings about the inventory. It is
/// omitted if it cannot be read.
pub(super) fn summary(client: &Client, target: &Target, answer: &ApiResponse) -> Option<String> {
    if !target.list {
        return None;
    }
    let mut parts = Vec::new();
    if answer.body["partial"] == true {
        parts.push("the inventory is incomplete, so objects may be missing here".to_owned());
    }
    if target.path != "/api/v1/findings" {
        let query = [("scope", "inventory".to_owned())];
        let found = client.get("/api/v1/findings", &query, Duration::ZERO).ok()?;
        let found: List<FindingView> = found.read().ok()?;
        let worst = found.items.iter().map(|view| view.finding.severity).max();
        if let Some(worst) = worst.filter(|worst| *worst > Severity::Info) {
            let grave = found.items.iter().filter(|view| view.finding.severity == worst);
            parts.push(format!(
                "{} about the inventory ({} {}): virtfleetctl findings --scope inventory",
                count(found.items.len(), "finding"),
                grave.count(),
                crate::api::severity_name(worst),
            ));
        }
    }
    (!parts.is_empty()).then(|| format!("warning: {}", parts.join("; ")))
}
