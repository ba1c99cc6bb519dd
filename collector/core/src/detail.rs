//! All details of one VM, made on request.

use std::{borrow::Cow, collections::BTreeMap};

use virtfleet_wire::{finding::Finding, ids::VmKey};

use crate::{
    derive, identity,
    node_conditions::NODE_CONDITION_PREFIX,
    pull_result::UnixMs,
    report::KeptReport,
    reported::ReportedConditions,
    spec_check,
    store::{Store, VmEntry},
    story::StoryView,
    view::{InterfaceView, VmDetail},
};

/// The collector's findings about a VM, followed by those of its guest.
pub(crate) fn findings(entry: &VmEntry) -> Vec<Finding> {
    let of_guest = entry.pulls.answer.iter();
    let of_guest = of_guest.flat_map(|(_, answer)| answer.report.findings.iter());
    entry.findings.iter().chain(of_guest).cloned().collect()
}

/// The conditions of a Node that the collector writes, each with its status.
fn written(conditions: &ReportedConditions) -> BTreeMap<String, String> {
    let ours = conditions
        .iter()
        .filter(|one| one.kind.starts_with(NODE_CONDITION_PREFIX));
    ours.map(|one| (one.kind.to_string(), one.status.as_str().to_owned()))
        .collect()
}

/// All details of a VM; none for an unknown VM.
pub(crate) fn detail(
    store: &Store,
    key: &VmKey,
    told: StoryView,
    story_since_ms: Option<UnixMs>,
    now_ms: UnixMs,
) -> Option<VmDetail> {
    let entry = store.vms.get(key)?;
    let vm = entry.view.as_deref().cloned()?;
    let report: Option<&KeptReport> = entry.pulls.answer.as_ref().map(|(_, answer)| &*answer.report);
    let node = vm
        .infra_node
        .as_ref()
        .and_then(|node| store.infra_nodes.get(node));
    let user_node = vm.cluster.as_ref().zip(vm.user_node.as_ref());
    let user_node = user_node.and_then(|(cluster, node)| store.user_node(cluster, node));
    let vmi = entry.vmi.as_deref();
    let interfaces = vmi.map_or_else(Vec::new, |vmi| {
        let views = vmi.interfaces.iter().map(|interface| InterfaceView {
            name: interface.name.clone(),
            mac: interface.mac.map(|mac| mac.to_string()),
            addresses: interface.addresses.iter().map(ToString::to_string).collect(),
            dial: store.rules.explain(interface, store.launcher(vmi)),
        });
        views.collect()
    });
    Some(VmDetail {
        vm,
        created_ms: match &entry.vm {
            Some(vm) => vm.created_ms,
            None => vmi.and_then(|vmi| vmi.created_ms),
        },
        labels: derive::labels(entry),
        infra_node_labels: node.map(|node| node.labels.clone()).unwrap_or_default(),
        user_node_labels: user_node.map(|node| node.labels.clone()).unwrap_or_default(),
        node_conditions: user_node
            .map(|node| written(&node.conditions))
            .unwrap_or_default(),
        migration: entry.migration().map(Cow::into_owned),
        interfaces,
        identity: vmi.map(|vmi| identity::checks(vmi, report)).unwrap_or_default(),
        spec: vmi
            .map(|vmi| spec_check::views(vmi, report.map(|report| &report.hardware)))
            .unwrap_or_default(),
        conditions: entry
            .health
            .as_ref()
            .map(|track| track.conditions())
            .unwrap_or_default(),
        findings_list: findings(entry),
        timeline: told.timeline,
        timeline_since_ms: story_since_ms,
        migrations: told.migrations,
        usage_history: entry.pulls.history.view(now_ms),
        // The settings are not in the index.
        history_ranges: Vec::new(),
        queues: entry.pulls.queues.to_vec(),
        // The records are not in the index.
        enrolment: None,
        report: report.and_then(KeptReport::whole),
    })
}
