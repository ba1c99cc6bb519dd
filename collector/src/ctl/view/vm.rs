//! `virtfleetctl vm`: all details of one VM on one sheet.

use std::collections::BTreeSet;

use serde_json::Value;
use virtfleet_collector_core::{
    facts::Migration,
    health::{HealthCondition, HealthConditionStatus, HealthVerdict},
    view::{IdentityVerdict, VmDetail, VmView},
    way::AgentWay,
};
use virtfleet_wire::{
    finding::Finding,
    report::{Section, SectionStatus},
};

use super::{
    ViewOptions, agent_tone, enrolment, severity_tone,
    sheet::Sheet,
    spec, state_tone, verdict_tone,
    vms::{memory, word},
};
use crate::{
    api::severity_name,
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
        text::{age, bytes, safe, since},
    },
};

/// Sections of the report that are always shown, with their titles; `-o wide` shows the others as
/// well.
const SECTIONS: [(&str, &str); 3] = [("system", "System"), ("disks", "Disks"), ("nics", "NICs")];
/// Maximum columns of a readable table.
const MAX_COLUMNS: usize = 9;

pub(in crate::ctl) fn vm(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let detail: VmDetail = answer.read()?;
    let vm = &detail.vm;
    let mut sheet = Sheet::new(options);
    sheet.pair("Name", Some(&vm.name));
    sheet.pair("Namespace", Some(&vm.namespace));
    sheet.pair("Cluster", vm.cluster.as_ref());
    sheet.toned("State", Some(vm.state.as_str()), state_tone(vm.state));
    sheet.pair("UID", vm.uid.as_ref());
    if options.wide && !detail.labels.is_empty() {
        let labels: Vec<_> = detail
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        sheet.pair("Labels", Some(labels.join(",")));
    }
    health(&mut sheet, &detail, options.now);
    placement(&mut sheet, &detail);
    agent(&mut sheet, vm, options.now);
    if let Some(enrolment) = &detail.enrolment {
        enrolment::show(&mut sheet, enrolment, options.now);
    }
    guest(&mut sheet, vm, options.now);
    identity(&mut sheet, &detail);
    spec::show(&mut sheet, &detail.spec, options.wide);
    interfaces(&mut sheet, &detail);
    report(&mut sheet, &detail, options.wide);
    findings(&mut sheet, &detail.findings_list, options.colour);
    Ok(sheet.finish())
}

/// The specification against what the guest sees, every field.
pub(in crate::ctl) fn vm_spec(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let detail: VmDetail = answer.read()?;
    let mut sheet = Sheet::new(options);
    sheet.pair("Name", Some(&detail.vm.name));
    sheet.pair("Namespace", Some(&detail.vm.namespace));
    let kind = HealthCondition::SpecInEffect.as_str();
    let condition = detail.conditions.iter().find(|one| one.kind == kind);
    let condition = condition.map(|one| {
        let status = one.status.as_str();
        format!("{status} ({}): {}", one.reason, one.message)
    });
    sheet.pair("In effect", condition);
    if detail.spec.is_empty() {
        sheet.line("The inventory has no VMI with spec.domain of this VM.");
    }
    spec::show(&mut sheet, &detail.spec, true);
    Ok(sheet.finish())
}

/// The verdict with its evidence: what is not True first.
fn health(sheet: &mut Sheet<'_>, detail: &VmDetail, now: u64) {
    let health = &detail.vm.health;
    sheet.section("Health");
    sheet.toned("Verdict", Some(word(health)), verdict_tone(health.verdict));
    sheet.pair("Since", Some(format!("{} ago", since(now, health.since_ms))));
    sheet.pair("Reason", Some(&health.reason));
    sheet.pair("Message", Some(&health.message));
    if !health.next.is_empty() {
        sheet.pair("Next", Some(&health.next));
    }
    if detail.conditions.is_empty() {
        return;
    }
    let mut table = Table::new(&["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"]);
    let mut conditions: Vec<_> = detail.conditions.iter().collect();
    conditions.sort_by_key(|one| std::cmp::Reverse(one.severity));
    for one in conditions {
        let tone = match (one.severity, one.status) {
            (HealthVerdict::Healthy, HealthConditionStatus::True) => Tone::Good,
            (HealthVerdict::Healthy, _) => Tone::Dim,
            (severity, _) => verdict_tone(severity),
        };
        table.rows.push(vec![
            Cell::new(&one.kind),
            Cell::toned(one.status.as_str(), tone),
            Cell::new(&one.reason),
            Cell::new(since(now, one.since_ms)),
            Cell::new(&one.message),
        ]);
    }
    sheet.table(&table);
}

fn placement(sheet: &mut Sheet<'_>, detail: &VmDetail) {
    let vm = &detail.vm;
    sheet.section("Placement");
    let placed = vm.infra_node.as_ref().map_or("-", |node| node.as_str());
    sheet.pair("Infra node", Some(placed));
    sheet.pair("Zone", vm.zone.as_ref());
    sheet.pair("Region", vm.region.as_ref());
    sheet.pair("User node", vm.user_node.as_ref());
    let conditions = detail.node_conditions.iter();
    let conditions: Vec<_> = conditions
        .map(|(kind, status)| format!("{kind}={status}"))
        .collect();
    sheet.pair(
        "Node conditions",
        Some(conditions.join(", ")).filter(|all| !all.is_empty()),
    );
    sheet.pair("Migration", detail.migration.as_ref().map(migration));
}

fn migration(migration: &Migration) -> String {
    let name = |node: &Option<_>| node.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    let route = format!("{} to {}", name(&migration.source), name(&migration.target));
    let times = [("begun", &migration.start), ("ended", &migration.end)];
    let times: Vec<_> = times
        .iter()
        .filter_map(|(word, time)| time.as_ref().map(|time| format!("{word} {time}")))
        .collect();
    let outcome = match migration {
        _ if migration.in_progress() => "in progress",
        _ if migration.failed => "failed",
        _ => "completed",
    };
    [vec![format!("{route}: {outcome}")], times].concat().join(", ")
}

fn agent(sheet: &mut Sheet<'_>, vm: &VmView, now: u64) {
    let agent = &vm.agent;
    let ago = |then: Option<u64>| then.map(|then| format!("{} ago", since(now, then)));
    sheet.section("Agent");
    sheet.toned("Status", Some(agent.status.as_str()), agent_tone(agent.status));
    sheet.pair("Address", agent.address);
    sheet.pair("Way", agent.way.as_ref().map(AgentWay::describe));
    sheet.pair("Version", agent.version.as_ref());
    sheet.pair("Last seen", ago(agent.last_seen_ms));
    sheet.pair("Last try", ago(agent.last_try_ms));
    sheet.pair("Answer took", agent.took_ms.map(|ms| format!("{ms}ms")));
    if let Some(failure) = &agent.failure {
        let text = format!("{}: {}", failure.class.as_str(), failure.message());
        sheet.toned("Failure", Some(text), Tone::Bad);
    }
}

fn guest(sheet: &mut Sheet<'_>, vm: &VmView, now: u64) {
    let Some(guest) = &vm.guest else { return };
    let metrics = &guest.metrics;
    sheet.section("Guest");
    sheet.pair("OS", guest.os.as_ref());
    sheet.pair("Kernel", guest.kernel.as_ref());
    sheet.pair("Hostname", guest.hostname.as_ref());
    sheet.pair("Boot ID", guest.boot_id.as_ref());
    let up = metrics.boot_time_seconds.filter(|boot| *boot > 0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and an age is shown, not computed with"
    )]
    let up = up.map(|boot| age((now / 1000).saturating_sub(boot as u64)));
    sheet.pair("Up for", up);
    sheet.pair("CPUs", Some(metrics.cpus).filter(|cpus| *cpus > 0));
    sheet.pair("Memory used", memory(metrics));
    sheet.pair("Load", metrics.load1);
    if metrics.failed_collectors > 0 {
        let text = format!("{} of the agent's collectors failed", metrics.failed_collectors);
        sheet.toned("Metrics", Some(text), Tone::Warn);
    }
}

fn identity(sheet: &mut Sheet<'_>, detail: &VmDetail) {
    if detail.identity.is_empty() {
        return;
    }
    sheet.section("Identity");
    let mut table = Table::new(&["FIELD", "VERDICT", "INVENTORY", "GUEST", "SOURCE"]);
    for (field, check) in &detail.identity {
        let verdict = match check.verdict {
            IdentityVerdict::Confirmed => Cell::toned("confirmed", Tone::Good),
            IdentityVerdict::Disagrees => Cell::toned("disagrees", Tone::Bad),
            IdentityVerdict::Unknown => Cell::toned("unknown", Tone::Dim),
        };
        table.rows.push(vec![
            Cell::new(field),
            verdict,
            Cell::maybe(check.expected.as_ref()),
            Cell::maybe(check.claimed.as_ref()),
            Cell::maybe(check.source.as_ref()),
        ]);
    }
    sheet.table(&table);
}

fn interfaces(sheet: &mut Sheet<'_>, detail: &VmDetail) {
    if detail.interfaces.is_empty() {
        return;
    }
    sheet.section("Interfaces");
    let mut table = Table::new(&["NAME", "MAC", "ADDRESSES", "DIAL"]);
    for interface in &detail.interfaces {
        table.rows.push(vec![
            Cell::new(&interface.name),
            Cell::maybe(interface.mac.as_ref()),
            Cell::new(interface.addresses.join(",")),
            Cell::new(&interface.dial),
        ]);
    }
    sheet.table(&table);
}

fn report(sheet: &mut Sheet<'_>, detail: &VmDetail, wide: bool) {
    let Some(report) = &detail.report else { return };
    for (name, title) in SECTIONS {
        if let Some(content) = report.sections.get(name) {
            section(sheet, title, content);
        }
    }
    if wide {
        let others = report.sections.iter();
        for (name, content) in others.filter(|(name, _)| SECTIONS.iter().all(|(known, _)| known != name)) {
            section(sheet, &safe(name, 60), content);
        }
    }
}

/// A section with one item as names with values, with several items as a table.
fn section(sheet: &mut Sheet<'_>, title: &str, section: &Section) {
    let mut notes = Vec::new();
    match section.status {
        SectionStatus::Ok => {}
        SectionStatus::Partial => notes.push("partial".to_owned()),
        SectionStatus::Failed => notes.push("failed".to_owned()),
        SectionStatus::Unknown => notes.push("status unknown".to_owned()),
    }
    if section.truncated {
        notes.push("truncated".to_owned());
    }
    if section.age_ms >= 60_000 {
        notes.push(format!("{} old", age(section.age_ms / 1000)));
    }
    if notes.is_empty() {
        sheet.section(title);
    } else {
        sheet.section(&format!("{title} ({})", notes.join(", ")));
    }
    match section.items.as_slice() {
        [] => sheet.line("-"),
        [Value::Object(only)] if !only.contains_key("name") => {
            for (name, value) in only {
                sheet.pair(&label(name), shown(name, value));
            }
        }
        items => sheet.table(&items_table(items)),
    }
}

/// One column for each field of any item, the name first.
fn items_table(items: &[Value]) -> Table {
    let fields: BTreeSet<&str> = items
        .iter()
        .filter_map(Value::as_object)
        .flat_map(|item| item.keys().map(String::as_str))
        .collect();
    let first = ["name", "device"];
    let known = first.iter().copied().filter(|field| fields.contains(field));
    let others = fields.iter().copied().filter(|field| !first.contains(field));
    let columns: Vec<&str> = known.chain(others).take(MAX_COLUMNS).collect();
    if columns.is_empty() {
        let mut table = Table::new(&["ITEM"]);
        table.rows = items.iter().map(|item| vec![Cell::maybe(plain(item))]).collect();
        return table;
    }
    let headers: Vec<String> = columns.iter().map(|field| heading(field)).collect();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let mut table = Table::new(&headers);
    for item in items {
        let cell = |field: &&str| Cell::maybe(item.get(field).and_then(|value| shown(field, value)));
        table.rows.push(columns.iter().map(cell).collect());
    }
    table
}

/// The value of a field: bytes and times with their unit, yes and no.
fn shown(field: &str, value: &Value) -> Option<String> {
    match (value, value.as_f64()) {
        (_, Some(size)) if field.ends_with("Bytes") => Some(bytes(size)),
        (_, Some(_)) if field.ends_with("Unix") => time(value).or_else(|| plain(value)),
        (Value::Bool(yes), _) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        _ => plain(value),
    }
}

/// Seconds since 1970 in UTC, as RFC 3339.
fn time(seconds: &Value) -> Option<String> {
    let time = jiff::Timestamp::from_second(seconds.as_i64()?).ok()?;
    Some(format!("{time:.0}"))
}

/// A field of the report as words: `memoryTotalBytes` becomes `memory total`, because the value has
/// its unit.
fn words(field: &str) -> String {
    let units = ["Bytes", "Unix"];
    let name = units
        .iter()
        .find_map(|unit| field.strip_suffix(unit).filter(|name| !name.is_empty()))
        .unwrap_or(field);
    let mut words = String::new();
    for c in safe(name, 40).chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

/// Words with capital letters.
const CAPITALS: [(&str, &str); 5] = [
    ("os", "OS"),
    ("cpus", "CPUs"),
    ("id", "ID"),
    ("dmi", "DMI"),
    ("mac", "MAC"),
];

/// `osName` as `OS name`, like the other names on the sheet.
fn label(field: &str) -> String {
    let words = words(field);
    let shown = words.split(' ').map(|word| {
        let known = CAPITALS.iter().find(|(plain, _)| *plain == word);
        known.map_or(word, |(_, capitals)| capitals)
    });
    let text = shown.collect::<Vec<_>>().join(" ");
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `rxQueues` as `RX-QUEUES`.
fn heading(field: &str) -> String {
    words(field).replace(' ', "-").to_uppercase()
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn findings(sheet: &mut Sheet<'_>, findings: &[Finding], colour: bool) {
    sheet.section("Findings");
    if findings.is_empty() {
        sheet.line("none");
    }
    for finding in findings {
        let word = severity_tone(finding.severity).paint(severity_name(finding.severity), colour);
        let what = safe(&format!("{}: {}", finding.reason, finding.message), 1000);
        sheet.line(&format!("{word}  {what}"));
        if !finding.remedy.is_empty() {
            sheet.line(&format!("  remedy: {}", safe(&finding.remedy, 1000)));
        }
    }
}
