//! `virtfleetctl why`: the verdict on a VM, its cause, the evidence, what was before, and the next
//! command, in sentences.

use virtfleet_collector_core::{
    health::{HealthCause, HealthConditionStatus, HealthConditionView, HealthVerdict},
    view::VmDetail,
};
use virtfleet_wire::finding::Severity;

use super::{ViewOptions, severity_tone, sheet::Sheet, story::kind_tone, verdict_tone};
use crate::{
    api::severity_name,
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
        text::{safe, since},
    },
};

/// Maximum entries of the timeline that are shown.
const MAX_BEFORE: usize = 8;
/// Maximum findings that are shown.
const MAX_FINDINGS: usize = 3;
/// Maximum characters of a sentence.
const MAX_SENTENCE_CHARS: usize = 1000;

pub(in crate::ctl) fn why(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let detail: VmDetail = answer.read()?;
    let mut sheet = Sheet::new(options);
    headline(&mut sheet, &detail, options);
    evidence(&mut sheet, &detail, options);
    findings(&mut sheet, &detail, options.colour);
    before(&mut sheet, &detail, options);
    next(&mut sheet, &detail);
    Ok(sheet.finish())
}

/// Whose fault it is, in words of a sentence.
fn blame(cause: HealthCause) -> &'static str {
    match cause {
        HealthCause::Host => "because of its infra node",
        HealthCause::Storage => "because of its storage",
        HealthCause::Vm => "because of the VM itself, as KubeVirt runs it",
        HealthCause::Migration => "because of a migration",
        HealthCause::Network => "because of the network",
        HealthCause::Guest => "because of its guest",
        HealthCause::Neighbour => "because of other VMs on its infra node",
        HealthCause::Agent => "because of the agent",
        HealthCause::Labels => "because of the labels of its Node",
        HealthCause::Receiver => "because of the receiver of its metrics",
    }
}

fn headline(sheet: &mut Sheet<'_>, detail: &VmDetail, options: &ViewOptions) {
    let (vm, health) = (&detail.vm, &detail.vm.health);
    let verdict = verdict_tone(health.verdict).paint(health.verdict.as_str(), options.colour);
    let cause = health.cause.map(|cause| format!(", {}", blame(cause)));
    let age = since(options.now, health.since_ms);
    sheet.line(&format!(
        "{}/{} is {verdict}{}, for {age}.",
        vm.namespace,
        vm.name,
        cause.unwrap_or_default()
    ));
    let sentence = match health.verdict {
        HealthVerdict::Healthy => health.message.clone(),
        _ => format!("{} ({})", health.message, health.reason),
    };
    sheet.line(&sentence_of(&sentence));
    if let Some(place) = place(detail) {
        sheet.line(&safe(&place, MAX_SENTENCE_CHARS));
    }
}

/// Begins with a capital letter and ends with a full stop.
fn sentence_of(text: &str) -> String {
    let text = safe(text, MAX_SENTENCE_CHARS);
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

fn place(detail: &VmDetail) -> Option<String> {
    let vm = &detail.vm;
    let host = vm.infra_node.as_ref()?;
    let zone = vm.zone.as_ref().map(|zone| format!(" in zone {zone}"));
    let node = vm
        .cluster
        .as_ref()
        .zip(vm.user_node.as_ref())
        .map(|(cluster, node)| format!("; its Node in {cluster} is {node}"));
    Some(format!(
        "It is {} on {host}{}{}.",
        vm.state.as_str(),
        zone.unwrap_or_default(),
        node.unwrap_or_default()
    ))
}

fn evidence(sheet: &mut Sheet<'_>, detail: &VmDetail, options: &ViewOptions) {
    let is_bad = |one: &&HealthConditionView| one.severity > HealthVerdict::Healthy;
    let mut bad: Vec<_> = detail.conditions.iter().filter(is_bad).collect();
    bad.sort_by_key(|one| (std::cmp::Reverse(one.severity), one.cause));
    if !bad.is_empty() {
        sheet.section("Evidence");
        let mut table = Table::new(&["CONDITION", "STATUS", "CAUSE", "SINCE", "MESSAGE"]);
        for one in bad {
            table.rows.push(vec![
                Cell::new(&one.kind),
                Cell::toned(one.status.as_str(), verdict_tone(one.severity)),
                Cell::maybe(one.cause.map(HealthCause::as_str)),
                Cell::new(since(options.now, one.since_ms)),
                Cell::new(&one.message),
            ]);
        }
        sheet.table(&table);
    }
    let holds = |one: &&HealthConditionView| one.status == HealthConditionStatus::True;
    let fine: Vec<&str> = detail
        .conditions
        .iter()
        .filter(holds)
        .map(|one| one.kind.as_str())
        .collect();
    let notable = |one: &&HealthConditionView| {
        one.severity == HealthVerdict::Healthy && one.status == HealthConditionStatus::False
    };
    let notable: Vec<String> = detail
        .conditions
        .iter()
        .filter(notable)
        .map(|one| format!("{}: {}", one.kind, one.message))
        .collect();
    if !fine.is_empty() || !notable.is_empty() {
        let is_healthy = detail.vm.health.verdict == HealthVerdict::Healthy;
        sheet.section(if is_healthy { "Evidence" } else { "Not the reason" });
        if !fine.is_empty() {
            sheet.line(&format!("True: {}", fine.join(", ")));
        }
        for text in notable {
            sheet.text(&text);
        }
    }
}

fn findings(sheet: &mut Sheet<'_>, detail: &VmDetail, colour: bool) {
    let grave = |severity: Severity| severity > Severity::Info;
    let mut found: Vec<_> = detail
        .findings_list
        .iter()
        .filter(|one| grave(one.severity))
        .collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.severity));
    if found.is_empty() {
        return;
    }
    sheet.section("Findings");
    for finding in found.iter().take(MAX_FINDINGS) {
        let word = severity_tone(finding.severity).paint(severity_name(finding.severity), colour);
        let text = format!("{}: {}", finding.id, finding.message);
        sheet.line(&format!("{word}  {}", safe(&text, MAX_SENTENCE_CHARS)));
    }
    if found.len() > MAX_FINDINGS {
        let vm = &detail.vm;
        let more = found.len() - MAX_FINDINGS;
        sheet.line(&format!(
            "{more} more: virtfleetctl vm {}/{}",
            vm.namespace, vm.name
        ));
    }
}

fn before(sheet: &mut Sheet<'_>, detail: &VmDetail, options: &ViewOptions) {
    sheet.section("Before");
    let all = &detail.timeline;
    let shown = &all[all.len().saturating_sub(MAX_BEFORE)..];
    let mut table = Table::new(&["AGO", "KIND", "WHAT"]);
    for entry in shown {
        table.rows.push(vec![
            Cell::new(since(options.now, entry.at_ms)),
            Cell::toned(entry.kind.as_str(), kind_tone(entry.kind)),
            Cell::new(&entry.text),
        ]);
    }
    if !table.rows.is_empty() {
        sheet.table(&table);
    }
    let memory = detail.timeline_since_ms.map(|at| since(options.now, at));
    let nothing = if shown.is_empty() {
        "nothing is known; "
    } else {
        ""
    };
    if let Some(memory) = memory {
        let text = format!("{nothing}the collector remembers the last {memory}");
        sheet.line(&Tone::Dim.paint(&text, options.colour));
    } else if shown.is_empty() {
        sheet.line("nothing is known");
    }
}

fn next(sheet: &mut Sheet<'_>, detail: &VmDetail) {
    let health = &detail.vm.health;
    if !health.next.is_empty() {
        sheet.section("Next");
        sheet.text(&health.next);
    } else if health.verdict > HealthVerdict::Healthy {
        sheet.section("Next");
        let vm = &detail.vm;
        sheet.line(&format!("virtfleetctl vm {}/{}", vm.namespace, vm.name));
    }
}
