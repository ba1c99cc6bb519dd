//! Derives one VM's keys, view and findings from the store. Pure: equal stores give equal values.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{NodeName, VmKey},
};

use crate::{
    agent,
    facts::{InfraNode, Labels, Vmi},
    findings::{self, guest_text},
    health::HealthView,
    identity,
    join::{self, name_all},
    keys::{Keys, NodeMatch, SharedValue},
    machine::VmMachine,
    managed::ExcludedBy,
    pending,
    placement::unmet_node_rules,
    pull_history::PullHistory,
    pull_result::UnixMs,
    report::{Document, KeptReport, MAX_KEPT_BYTES},
    spec_check,
    state::vm_state,
    store::{Store, VmEntry},
    tenant::{Tenant, tenant},
    view::{AgentStatus, AgentView, GuestView, IdentityVerdict, SeverityCounts, VmState, VmView},
    way::AgentWay,
};

/// The VM's keys: assignments, and values that it may share with other VMs.
pub(crate) fn keys(store: &Store, key: &VmKey, entry: &VmEntry) -> Keys {
    let labels = labels(entry);
    let clusters = store.clusters_for(&key.namespace, &labels);
    let tenant = tenant(clusters, &key.namespace, &labels);
    let cluster = tenant.cluster();
    let machine = VmMachine::of(entry);
    let node_match = cluster.map_or(NodeMatch::None, |cluster| {
        join::node_match(store, cluster, key, &machine)
    });
    let mut keys = Keys {
        node_match,
        ..Keys::default()
    };
    let mut shared_values = BTreeSet::new();
    if machine.may_be_of_name() {
        shared_values.insert(SharedValue::HashedName(key.name.clone()));
        shared_values.extend(machine.firmware.map(SharedValue::HashedUuid));
    }
    if let Some(vmi) = &entry.vmi {
        keys.host.clone_from(&vmi.node);
        shared_values.extend(machine.firmware.map(SharedValue::Firmware));
        if entry.state().can_answer() {
            shared_values.extend(store.address_of(vmi).ok().map(SharedValue::Address));
        }
    }
    if let Some((_, answer)) = &entry.pulls.answer {
        let report = &answer.report;
        shared_values.extend(identity::claimed_uuid(report).map(SharedValue::Claimed));
        shared_values.extend(boot_id(report).map(SharedValue::Boot));
        if keys.node_match == NodeMatch::None
            && let (Some(cluster), Some(hostname)) = (cluster, hostname(report))
        {
            shared_values.insert(SharedValue::Hostname(cluster.clone(), hostname));
        }
    }
    if tenant == Tenant::None {
        keys.cluster_label = pending::cluster_label(&labels);
    }
    keys.tenant = tenant;
    keys.shared_values = shared_values.into_iter().collect();
    keys
}

/// The labels by which a VM is selected: those of the VMI, and those that only its VirtualMachine
/// has. Gardener's machine-controller-manager labels the VirtualMachine and not the template.
pub(crate) fn labels(entry: &VmEntry) -> Labels {
    let of_vm = entry.vm.as_ref().map(|vm| &vm.labels);
    match (entry.vmi.as_ref().map(|vmi| &vmi.labels), of_vm) {
        (None, None) => Labels::new(),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (Some(vmi), Some(vm)) if vm.keys().all(|key| vmi.contains_key(key)) => vmi.clone(),
        (Some(vmi), Some(vm)) => vm.clone().into_iter().chain(vmi.clone()).collect(),
    }
}

fn boot_id(report: &KeptReport) -> Option<String> {
    (!report.boot_id.is_empty()).then(|| report.boot_id.to_string())
}

fn hostname(report: &KeptReport) -> Option<NodeName> {
    report.identity.hostname.as_ref()?.value.parse().ok()
}

/// Why the agent of a VM is not pulled; none if it is.
pub(crate) fn excluded_by(store: &Store, entry: &VmEntry) -> Option<ExcludedBy> {
    let (vmi, vm) = (entry.vmi.as_deref(), entry.vm.as_ref());
    let key = vmi.map(|vmi| &vmi.key).or_else(|| vm.map(|vm| &vm.key));
    let is_ignored = key.is_some_and(|key| store.ignored_namespaces.contains(&key.namespace));
    let has_answered = entry.pulls.answer.is_some();
    store.managed.excluded_by(vmi, vm, is_ignored, has_answered)
}

/// A VM's view and the collector's findings about it. The keys of all VMs must be up to date.
pub(crate) fn view(store: &Store, key: &VmKey, entry: &VmEntry) -> (VmView, Vec<Finding>) {
    let vmi = entry.vmi.as_deref();
    let state = entry.state();
    let node = entry
        .keys
        .host
        .as_ref()
        .and_then(|host| store.infra_nodes.get(host));
    let (user_node, mut found) = join::join(store, key, entry);
    found.extend(entry.keys.tenant.finding(key));
    found.extend(pending::finding(store, key, &labels(entry), entry));
    found.extend(shared(store, key, entry));
    if excluded_by(store, entry).is_none() {
        found.extend(agent::finding(key, entry));
    }
    found.extend(entry.story.finding().cloned());
    if let Some(vmi) = vmi {
        found.extend(of_vmi(vmi, node.is_some()));
        found.extend(node.and_then(|node| misplaced(vmi, node)));
        if let Some((_, answer)) = &entry.pulls.answer {
            let checks = identity::checks(vmi, Some(&answer.report));
            found.extend(identity::identity_findings(vmi, &checks));
            let migration = entry.migration();
            let claims = &answer.report.claims;
            found.extend(identity::claim_findings(vmi, migration.as_deref(), node, claims));
            found.extend(not_kept(key, &answer.report));
            found.extend(agent::answer_findings(key, &entry.pulls));
            // An older answer says nothing about the guest of now.
            if state.can_answer() && entry.pulls.failing.is_none() {
                found.extend(spec_check::finding(vmi, &answer.report.hardware));
            }
        }
    }
    found.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
    let of_agent = entry.pulls.answer.as_ref();
    let of_agent = of_agent.map_or(&[][..], |(_, answer)| answer.report.findings.as_slice());
    let view = VmView {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: vmi.and_then(|vmi| vmi.uid.clone()),
        cluster: entry.keys.tenant.cluster().cloned(),
        user_node,
        infra_node: entry.keys.host.clone(),
        region: node.and_then(|node| node.region()).map(str::to_owned),
        zone: node.and_then(|node| node.zone()).map(str::to_owned),
        state,
        agent: agent_view(store, vmi, state, entry),
        guest: guest(vmi, &entry.pulls),
        // The index sets it from the earlier health.
        health: HealthView::default(),
        findings: found.len() + of_agent.len(),
        severities: SeverityCounts::of(found.iter().chain(of_agent)),
        findings_key: findings_key(found.iter().chain(of_agent)),
        cluster_label: entry.keys.cluster_label.clone(),
    };
    (view, found)
}

/// Hash of the ids and severities of findings.
pub(crate) fn findings_key<'a>(findings: impl Iterator<Item = &'a Finding>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for finding in findings {
        (&finding.id, finding.severity as u8).hash(&mut hasher);
    }
    hasher.finish()
}

fn agent_view(store: &Store, vmi: Option<&Vmi>, state: VmState, entry: &VmEntry) -> AgentView {
    let pulls = &entry.pulls;
    let status = match &pulls.last_try {
        _ if excluded_by(store, entry).is_some() => AgentStatus::Unmanaged,
        _ if !state.can_answer() => AgentStatus::Off,
        _ if !store.rules.pulls() => AgentStatus::Disabled,
        None => AgentStatus::Waiting,
        Some((_, None)) => AgentStatus::Up,
        Some((_, Some(_))) => AgentStatus::Silent,
    };
    let pushed = pulls.pushed.filter(|_| state.can_answer());
    let dialled = vmi
        .filter(|_| state.can_answer() && pushed.is_none() && status != AgentStatus::Unmanaged)
        .and_then(|vmi| store.address_of(vmi).ok());
    let address = pushed.or(dialled);
    let way = match pushed {
        Some(peer) => Some(AgentWay::Push { peer }),
        None => dialled.map(|_| store.way_of(entry)),
    };
    let answer = pulls.answer.as_ref().map(|(_, answer)| answer);
    let seen: Option<UnixMs> = pulls.answer.as_ref().map(|(at, _)| *at);
    AgentView {
        status,
        address,
        way,
        verified_ms: pulls.verified_at(address),
        version: answer.map(|answer| answer.report.agent_version.to_string()),
        last_seen_ms: seen,
        last_try_ms: pulls.last_try.as_ref().map(|(at, _)| *at),
        took_ms: answer.map(|answer| answer.took_ms),
        failure: pulls.last_try.as_ref().and_then(|(_, failure)| failure.clone()),
    }
}

fn guest(vmi: Option<&Vmi>, pulls: &PullHistory) -> Option<GuestView> {
    let (_, answer) = pulls.answer.as_ref()?;
    let report = &answer.report;
    let of_agent = || vmi.and_then(|vmi| vmi.guest_os.as_deref());
    Some(GuestView {
        os: report.os_name.as_deref().or_else(of_agent).map(guest_text),
        kernel: report.kernel.as_deref().map(str::to_owned),
        hostname: report
            .identity
            .hostname
            .as_ref()
            .map(|hostname| guest_text(&hostname.value)),
        boot_id: boot_id(report),
        disks: report.disks,
        nics: report.nics,
        metrics: answer.metrics,
        usage: pulls.usage,
    })
}

/// The finding about parts of a report that were not kept.
fn not_kept(key: &VmKey, report: &KeptReport) -> Option<Finding> {
    let mut reasons = Vec::new();
    match &report.document {
        Document::Kept(_) => {}
        Document::TooLarge(bytes) => reasons.push(format!(
            "the complete report is not kept: it has {bytes} bytes after compression, more than {MAX_KEPT_BYTES}"
        )),
        Document::OverBudget(bytes) => reasons.push(format!(
                        "the complete report, {bytes} bytes after compression, is not kept: the reports of its tenant, or all \
                         reports, exceed their memory budget, and it is the largest"
        )),
    }
    if report.dropped_findings > 0 {
        reasons.push(format!(
            "{} of its findings are not kept",
            report.dropped_findings
        ));
    }
    if reasons.is_empty() {
        return None;
    }
    let message = format!("the guest of {key} reports too much: {}", reasons.join("; "));
    let found = findings::vm(findings::REPORT_CUT, Severity::Warning, key, "ReportCut", message);
    Some(found.remedy(
        "run `virtfleet-agent report` in the guest and find the section or the findings that are too large",
    ))
}

/// Findings about the VMI alone.
fn of_vmi(vmi: &Vmi, node_known: bool) -> Option<Finding> {
    let key = &vmi.key;
    if !vmi.has_status {
        let message =
            format!("the VMI {key} has no status, so its state, placement and addresses are unknown");
        let found = findings::vm(
            findings::VMI_WITHOUT_STATUS,
            Severity::Warning,
            key,
            "VmiWithoutStatus",
            message,
        );
        let command = format!("kubectl -n {} get vmi {} -o yaml", key.namespace, key.name);
        return Some(found.remedy(format!(
            "write the manifest as `{command}` prints it; if the object in the cluster has no status either, check virt-controller"
        )));
    }
    let node = vmi.node.as_ref().filter(|_| !node_known)?;
    let message = format!(
        "{key} runs on the node {node}, which is not in the inventory, so its zone and region are unknown"
    );
    Some(
        findings::vm(
            findings::INFRA_NODE_UNKNOWN,
            Severity::Warning,
            key,
            "InfraNodeUnknown",
            message,
        )
        .with("infraNode", node)
        .remedy(format!(
            "add the Node to the inventory: kubectl get node {node} -o yaml"
        )),
    )
}

/// The finding about a VM whose infra node its rules exclude. It goes on running: Kubernetes
/// applies them only when it schedules a pod.
fn misplaced(vmi: &Vmi, node: &InfraNode) -> Option<Finding> {
    if vmi.scheduling.is_cut || !vm_state(Some(vmi), None).can_answer() {
        return None;
    }
    let rule = unmet_node_rules(&vmi.scheduling, node)?;
    let message = format!("{} runs on {}, which does not match {rule}", vmi.key, node.name);
    let found = findings::vm(
        findings::PLACEMENT_NODE_AFFINITY,
        Severity::Warning,
        &vmi.key,
        "PlacementNodeAffinity",
        message,
    );
    Some(found.with("infraNode", &node.name).remedy(
        "restore the labels of the infra node, or correct the rule and migrate the VM: virtctl migrate",
    ))
}

/// Findings about values that this VM shares with others and that must be unique.
fn shared(store: &Store, key: &VmKey, entry: &VmEntry) -> Vec<Finding> {
    let mut found = Vec::new();
    for shared in &entry.keys.shared_values {
        let (id, severity, reason, what, value, remedy) = match shared {
            SharedValue::Firmware(uuid) => (
                findings::DUPLICATE_FIRMWARE_UUID,
                Severity::Critical,
                "DuplicateFirmwareUuid",
                "have the firmware UUID",
                uuid.to_string(),
                "VMs of different names must not share it, because CSI drivers and operating systems identify a machine by it: \
                             delete the one that is a clone or was restored, or give it another \
                             spec.template.spec.domain.firmware.uuid, which makes it another machine to its guest (cloud-init runs as on a \
                             new instance, with disk_setup and host keys; its agent needs `virtfleetctl vm reset`)",
            ),
            SharedValue::Claimed(uuid) => (
                findings::DUPLICATE_CLAIMED_UUID,
                Severity::Critical,
                "DuplicateClaimedUuid",
                "have guests that report the SMBIOS UUID",
                uuid.to_string(),
                "compare /sys/class/dmi/id/product_uuid in both guests with their VMIs; one guest may answer at both addresses",
            ),
            SharedValue::Boot(boot) => (
                findings::DUPLICATE_BOOT_ID,
                Severity::Critical,
                "DuplicateBootId",
                "have guests that report the boot id",
                boot.clone(),
                "one guest answers for both VMs: find the address that they share, or the proxy in between",
            ),
            SharedValue::Address(address) => (
                findings::DUPLICATE_ADDRESS,
                Severity::Warning,
                "DuplicateAddress",
                "would be dialled at",
                address.to_string(),
                "compare status.podIPs of both virt-launcher pods; if their networks overlap on purpose, take these out of scrape.allowCIDRs",
            ),
            SharedValue::Hostname(..) | SharedValue::HashedUuid(_) | SharedValue::HashedName(_) => continue,
        };
        let (others, more) = store.shared_values.others(shared, key);
        if others.is_empty() {
            continue;
        }
        let severity = match shared {
            SharedValue::Claimed(_) | SharedValue::Boot(_) => match duplicate_claim_severity(entry) {
                Some(severity) => severity,
                None => continue,
            },
            _ => severity,
        };
        let others = name_all(&others, more);
        let message = format!("{key} and {others} {what} {value}");
        let finding = findings::vm(id, severity, key, reason, message);
        found.push(finding.with("value", value).with("others", others).remedy(remedy));
    }
    found
}

/// Severity of the finding that other guests report this VM's SMBIOS UUID or boot id too; none if
/// the VM's own identity is confirmed. Otherwise a guest could cause findings on any VM whose
/// values it knows. Depends on this VM alone, so that another VM's facts never change it.
fn duplicate_claim_severity(entry: &VmEntry) -> Option<Severity> {
    match identity_verdict(entry) {
        IdentityVerdict::Disagrees => Some(Severity::Critical),
        IdentityVerdict::Unknown => Some(Severity::Info),
        IdentityVerdict::Confirmed => None,
    }
}

/// Whether the guest's identity agrees with the VMI: by the firmware UUID, else by hardware
/// addresses.
fn identity_verdict(entry: &VmEntry) -> IdentityVerdict {
    let (Some(vmi), Some((_, answer))) = (&entry.vmi, &entry.pulls.answer) else {
        return IdentityVerdict::Unknown;
    };
    let checks = identity::checks(vmi, Some(&answer.report));
    let verdict = |name: &str| {
        checks
            .get(name)
            .map_or(IdentityVerdict::Unknown, |check| check.verdict)
    };
    match (verdict("smbiosUuid"), verdict("macs")) {
        (IdentityVerdict::Disagrees, _) | (_, IdentityVerdict::Disagrees) => IdentityVerdict::Disagrees,
        (IdentityVerdict::Unknown, macs) => macs,
        (uuid, _) => uuid,
    }
}
