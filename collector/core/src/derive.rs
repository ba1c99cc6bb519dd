//! One VM's keys, view and findings from what the store holds. Pure: the same store gives the same values.

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
    facts::{Labels, Vmi},
    findings::{self, word},
    heard::UnixMs,
    identity,
    join::{self, Firm, name_all},
    keys::{Keys, Tie},
    pending,
    report::{Document, KeptReport, MAX_KEPT_BYTES},
    state::vm_state,
    store::{Entry, Memory, Store},
    tenant::{Tenant, tenant},
    view::{AgentStatus, AgentView, GuestView, IdentityVerdict, SeverityCounts, VmState, VmView},
};

/// What a VM shares with others.
pub(crate) fn keys(store: &Store, key: &VmKey, entry: &Entry) -> Keys {
    let labels = labels(entry);
    let clusters = store.clusters_for(&key.namespace, &labels);
    let tenant = tenant(clusters, &key.namespace, &labels);
    let cluster = tenant.cluster();
    let firmware = entry.vmi.as_ref().and_then(|vmi| vmi.firmware_uuid);
    let firm = cluster.map_or(Firm::None, |cluster| join::firm(store, cluster, key, firmware));
    let mut keys = Keys {
        firm,
        ..Keys::default()
    };
    let mut ties = BTreeSet::new();
    if let Some(vmi) = &entry.vmi {
        keys.host.clone_from(&vmi.node);
        ties.extend(
            vmi.firmware_uuid
                .filter(|uuid| !uuid.is_placeholder())
                .map(Tie::Firmware),
        );
        if vm_state(Some(vmi)).can_answer() {
            ties.extend(store.address_of(vmi).ok().map(Tie::Address));
        }
    }
    if let Some((_, answer)) = &entry.memory.answer {
        let report = &answer.report;
        ties.extend(identity::claimed_uuid(report).map(Tie::Claimed));
        ties.extend(boot_id(report).map(Tie::Boot));
        if keys.firm == Firm::None
            && let (Some(cluster), Some(hostname)) = (cluster, hostname(report))
        {
            ties.insert(Tie::Hostname(cluster.clone(), hostname));
        }
    }
    if tenant == Tenant::None {
        keys.wish = pending::wish(&labels);
    }
    keys.tenant = tenant;
    keys.ties = ties.into_iter().collect();
    keys
}

/// The labels by which a VM is selected: the VMI's, and those that only its definition has. Gardener's
/// machine-controller-manager puts its own on the VirtualMachine and not on the template.
pub(crate) fn labels(entry: &Entry) -> Labels {
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

/// A VM's view and what the collector finds about it. Its keys, and those of all others, must be settled.
pub(crate) fn view(store: &Store, key: &VmKey, entry: &Entry) -> (VmView, Vec<Finding>) {
    let vmi = entry.vmi.as_deref();
    let state = vm_state(vmi);
    let node = entry
        .keys
        .host
        .as_ref()
        .and_then(|host| store.infra_nodes.get(host));
    let (user_node, mut found) = join::join(store, key, entry);
    found.extend(entry.keys.tenant.finding(key));
    found.extend(pending::finding(store, key, &labels(entry), entry));
    found.extend(shared(store, key, entry));
    found.extend(agent::finding(key, entry));
    if let Some(vmi) = vmi {
        found.extend(of_vmi(vmi, node.is_some()));
        if let Some((_, answer)) = &entry.memory.answer {
            let checks = identity::checks(vmi, Some(&answer.report));
            found.extend(identity::identity_findings(vmi, &checks));
            found.extend(identity::claim_findings(vmi, node, &answer.report.claims));
            found.extend(not_kept(key, &answer.report));
            found.extend(agent::answer_findings(key, &entry.memory));
        }
    }
    found.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
    let of_agent = entry.memory.answer.as_ref();
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
        agent: agent_view(store, vmi, state, &entry.memory),
        guest: guest(vmi, &entry.memory),
        findings: found.len() + of_agent.len(),
        severities: SeverityCounts::of(found.iter().chain(of_agent)),
        findings_key: findings_key(found.iter().chain(of_agent)),
    };
    (view, found)
}

fn findings_key<'a>(findings: impl Iterator<Item = &'a Finding>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for finding in findings {
        (&finding.id, finding.severity as u8).hash(&mut hasher);
    }
    hasher.finish()
}

fn agent_view(store: &Store, vmi: Option<&Vmi>, state: VmState, memory: &Memory) -> AgentView {
    let status = match &memory.last_try {
        _ if !state.can_answer() => AgentStatus::Off,
        _ if !store.rules.pulls() => AgentStatus::Disabled,
        None => AgentStatus::Waiting,
        Some((_, None)) => AgentStatus::Up,
        Some((_, Some(_))) => AgentStatus::Silent,
    };
    let dialled = vmi
        .filter(|_| state.can_answer())
        .and_then(|vmi| store.address_of(vmi).ok());
    let answer = memory.answer.as_ref().map(|(_, answer)| answer);
    let seen: Option<UnixMs> = memory.answer.as_ref().map(|(at, _)| *at);
    AgentView {
        status,
        address: dialled,
        verified_ms: memory.verified_at(dialled),
        version: answer.map(|answer| answer.report.agent_version.to_string()),
        last_seen_ms: seen,
        last_try_ms: memory.last_try.as_ref().map(|(at, _)| *at),
        took_ms: answer.map(|answer| answer.took_ms),
        failure: memory.last_try.as_ref().and_then(|(_, failure)| failure.clone()),
    }
}

fn guest(vmi: Option<&Vmi>, memory: &Memory) -> Option<GuestView> {
    let (_, answer) = memory.answer.as_ref()?;
    let report = &answer.report;
    let of_agent = || vmi.and_then(|vmi| vmi.guest_os.as_deref());
    Some(GuestView {
        os: report.os_name.as_deref().or_else(of_agent).map(word),
        kernel: report.kernel.as_deref().map(str::to_owned),
        hostname: report
            .identity
            .hostname
            .as_ref()
            .map(|hostname| word(&hostname.value)),
        boot_id: boot_id(report),
        disks: report.disks,
        nics: report.nics,
        metrics: answer.metrics,
    })
}

/// What of a report was too much to be kept.
fn not_kept(key: &VmKey, report: &KeptReport) -> Option<Finding> {
    let mut reasons = Vec::new();
    match &report.document {
        Document::Kept(_) => {}
        Document::TooLarge(bytes) => reasons.push(format!(
            "the whole report is not kept: it has {bytes} bytes after compression, more than {MAX_KEPT_BYTES}"
        )),
        Document::OverBudget(bytes) => reasons.push(format!(
            "the whole report, {bytes} bytes after compression, is not kept: the reports of its tenant, or all of them, take \
             more memory than they may, and it is the largest"
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
        "look at `virtfleet-agent report` in the guest: a section or its findings have grown beyond use",
    ))
}

/// What is wrong with a VMI by itself.
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
            "give the manifest as `{command}` prints it; if the cluster's own object has none, look at virt-controller"
        )));
    }
    let node = vmi.node.as_ref().filter(|_| !node_known)?;
    let message = format!(
        "{key} stands on the node {node}, which the inventory does not have, so its zone and region are unknown"
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

/// What this VM shares with others and should not.
fn shared(store: &Store, key: &VmKey, entry: &Entry) -> Vec<Finding> {
    let mut found = Vec::new();
    for tie in &entry.keys.ties {
        let (id, severity, reason, what, value, remedy) = match tie {
            Tie::Firmware(uuid) => (
                findings::DUPLICATE_FIRMWARE_UUID,
                Severity::Critical,
                "DuplicateFirmwareUuid",
                "have the firmware UUID",
                uuid.to_string(),
                "VMs of different names must not share it, because CSI drivers and systems know a machine by it: give one of \
                 them another spec.template.spec.domain.firmware.uuid; a clone or a restored VM may have kept the original's",
            ),
            Tie::Claimed(uuid) => (
                findings::DUPLICATE_CLAIMED_UUID,
                Severity::Critical,
                "DuplicateClaimedUuid",
                "have guests that report the SMBIOS UUID",
                uuid.to_string(),
                "compare /sys/class/dmi/id/product_uuid in both guests with their VMIs; one guest may answer at both addresses",
            ),
            Tie::Boot(boot) => (
                findings::DUPLICATE_BOOT_ID,
                Severity::Critical,
                "DuplicateBootId",
                "have guests that report the boot id",
                boot.clone(),
                "one guest answers for both: look for an address that two VMs share, or a proxy between",
            ),
            Tie::Address(address) => (
                findings::DUPLICATE_ADDRESS,
                Severity::Warning,
                "DuplicateAddress",
                "would be dialled at",
                address.to_string(),
                "see status.interfaces of both VMIs; if their networks overlap on purpose, take these out of scrape.allowCIDRs",
            ),
            Tie::Hostname(..) => continue,
        };
        let (others, more) = store.ties.others(tie, key);
        if others.is_empty() {
            continue;
        }
        let severity = match tie {
            Tie::Claimed(_) | Tie::Boot(_) => match blame(entry) {
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

/// How bad it is for a VM that other guests report its SMBIOS UUID or boot id, too. Only a VM whose own guest deviates from what
/// the platform says of it is blamed: otherwise a guest could put findings on any VM whose values it knows. Follows from this VM
/// alone, so that another's facts never change it.
fn blame(entry: &Entry) -> Option<Severity> {
    match platform_says(entry) {
        IdentityVerdict::Disagrees => Some(Severity::Critical),
        IdentityVerdict::Unknown => Some(Severity::Info),
        IdentityVerdict::Confirmed => None,
    }
}

/// Whether a guest is who the platform says: by the firmware UUID, else by hardware addresses.
fn platform_says(entry: &Entry) -> IdentityVerdict {
    let (Some(vmi), Some((_, answer))) = (&entry.vmi, &entry.memory.answer) else {
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
