//! Views of the API with pseudonyms.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use virtfleet_wire::{finding::Finding, report::GuestReport};

use super::{
    Redactor,
    terms::{is_place, is_public},
};
use crate::{
    facts::Migration,
    findings::{CLAIM_INFRA_NODE_DIFFERS, CLAIM_REGION_STALE, CLAIM_ZONE_STALE, INFRA_NODE_UNKNOWN},
    health::HealthConditionView,
    pull_result::Failure,
    spec_view::SpecCheckView,
    view::{ClusterView, FleetSnapshot, HostView, IdentityCheck, InterfaceView, VmDetail, VmView},
};

/// Keys of a finding's evidence whose values are infra names, known or not: a guest may claim a
/// node or a zone that no longer exists.
fn place_evidence(id: &str) -> &'static [&'static str] {
    match id {
        CLAIM_INFRA_NODE_DIFFERS => &["claimed", "placed"],
        CLAIM_ZONE_STALE | CLAIM_REGION_STALE => &["claimed", "placed", "infraNode"],
        INFRA_NODE_UNKNOWN => &["infraNode"],
        _ => &[],
    }
}

impl Redactor {
    /// A fleet. Hosts are sorted by their pseudonyms.
    pub fn snapshot(&self, fleet: FleetSnapshot) -> FleetSnapshot {
        let vms = fleet.vms.into_iter();
        let mut hosts: Vec<_> = fleet
            .hosts
            .into_iter()
            .filter_map(|host| self.host(host))
            .collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        FleetSnapshot {
            vms: vms.map(|(key, vm)| (key, Arc::new(self.vm(&vm)))).collect(),
            hosts,
            clusters: fleet.clusters.into_iter().map(|one| self.cluster(one)).collect(),
            findings: fleet.findings.into_iter().map(|one| self.finding(one)).collect(),
            ..fleet
        }
    }

    fn vm(&self, vm: &VmView) -> VmView {
        let mut view = vm.clone();
        view.infra_node = vm.infra_node.as_ref().and_then(|node| self.node(node));
        view.region = self.place(vm.region.as_ref());
        view.zone = self.place(vm.zone.as_ref());
        view.health.message = self.text(&view.health.message);
        view.health.next = self.text(&view.health.next);
        view.agent.failure = view.agent.failure.map(|failure| self.failure(&failure));
        if let Some(guest) = &mut view.guest {
            for text in [&mut guest.os, &mut guest.kernel, &mut guest.hostname] {
                *text = text.as_ref().map(|text| self.text(text));
            }
        }
        view
    }

    fn host(&self, host: HostView) -> Option<HostView> {
        Some(HostView {
            name: self.node(&host.name)?,
            region: self.place(host.region.as_ref()),
            zone: self.place(host.zone.as_ref()),
            ..host
        })
    }

    fn cluster(&self, cluster: ClusterView) -> ClusterView {
        let zones = cluster.zones.iter();
        ClusterView {
            message: cluster.message.as_ref().map(|text| self.text(text)),
            zones: zones
                .map(|(zone, count)| (self.pseudonym(zone), *count))
                .collect(),
            ..cluster
        }
    }

    /// A failed pull.
    pub fn failure(&self, failure: &Failure) -> Failure {
        failure.reworded(self.text(failure.message()))
    }

    /// A finding of the collector or of a guest.
    pub fn finding(&self, mut finding: Finding) -> Finding {
        let places = place_evidence(&finding.id);
        let is_infra = |key: &str, value: &str| places.contains(&key) || self.terms.has(value);
        let evidence = std::mem::take(&mut finding.evidence);
        let hidden = evidence.iter().filter(|(key, value)| is_infra(key, value));
        let hidden: Vec<&str> = hidden.map(|(_, value)| value.as_str()).collect();
        finding.message = self.text_with(&finding.message, &hidden);
        finding.remedy = self.text_with(&finding.remedy, &hidden);
        finding.subject.name = self.text(&finding.subject.name);
        let replaced = evidence.iter().map(|(key, value)| {
            let value = if is_infra(key, value) {
                self.pseudonym(value)
            } else {
                self.text(value)
            };
            (key.clone(), value)
        });
        finding.evidence = replaced.collect();
        finding
    }

    pub fn detail(&self, detail: VmDetail) -> VmDetail {
        let none = BTreeSet::new();
        // A label of the Node that its infra node has, too, was probably copied from there.
        let infra = detail.infra_node_labels.iter();
        let infra = infra.filter(|(key, value)| !is_public(key, value));
        let copied: BTreeSet<String> = infra.map(|(key, _)| key.to_owned()).collect();
        let text = |text: Option<String>| text.map(|text| self.text(&text));
        let identity = detail.identity.into_iter().map(|(name, check)| {
            let check = IdentityCheck {
                expected: text(check.expected),
                claimed: text(check.claimed),
                ..check
            };
            (name, check)
        });
        let interfaces = detail.interfaces.into_iter().map(|one| InterfaceView {
            dial: self.text(&one.dial),
            ..one
        });
        let conditions = detail.conditions.into_iter().map(|one| HealthConditionView {
            message: self.text(&one.message),
            next: self.text(&one.next),
            ..one
        });
        let spec = detail.spec.into_iter().map(|one| SpecCheckView {
            path: self.text(&one.path),
            asked: self.text(&one.asked),
            seen: text(one.seen),
            ..one
        });
        VmDetail {
            vm: self.vm(&detail.vm),
            created_ms: detail.created_ms,
            labels: self.tenant_labels(&detail.labels, &none),
            infra_node_labels: self.infra_labels(&detail.infra_node_labels),
            node_conditions: detail.node_conditions,
            user_node_labels: self.tenant_labels(&detail.user_node_labels, &copied),
            migration: detail.migration.map(|migration| Migration {
                source: migration.source.as_ref().and_then(|node| self.node(node)),
                target: migration.target.as_ref().and_then(|node| self.node(node)),
                failure_reason: text(migration.failure_reason),
                ..migration
            }),
            interfaces: interfaces.collect(),
            spec: spec.collect(),
            conditions: conditions.collect(),
            identity: identity.collect::<BTreeMap<_, _>>(),
            timeline: self.timeline(detail.timeline),
            timeline_since_ms: detail.timeline_since_ms,
            migrations: self.migrations(detail.migrations),
            usage_history: detail.usage_history,
            history_ranges: detail.history_ranges,
            queues: detail.queues,
            // Names nothing of the infra cluster.
            enrolment: detail.enrolment,
            findings_list: detail
                .findings_list
                .into_iter()
                .map(|one| self.finding(one))
                .collect(),
            report: detail.report.and_then(|report| self.report(report)),
        }
    }

    /// A guest's report: what it claims to be its place, and infra names in any text.
    fn report(&self, mut report: GuestReport) -> Option<GuestReport> {
        let claims = &mut report.claims;
        let places = claims.kubelet_labels.iter_mut().filter(|(key, _)| is_place(key));
        let claimed = places.map(|(_, claim)| claim).chain(claims.infra_node.as_mut());
        for claim in claimed {
            claim.value = self.pseudonym(&claim.value);
        }
        let mut json = serde_json::to_value(report).ok()?;
        self.json(&mut json);
        serde_json::from_value(json).ok()
    }

    fn json(&self, json: &mut Value) {
        match json {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.json(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
