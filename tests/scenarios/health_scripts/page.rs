//! `docs/health.md`: the template with the table of conditions and the scripts.

use std::fmt::Write as _;

use virtfleet_collector_core::health::{HealthCondition, HoldTimes};

use super::script::{Expectation, Script};

/// Places in the template.
const CONDITIONS: &str = "<!-- conditions -->\n";
const SCRIPTS: &str = "<!-- scripts -->\n";

/// Groups of scripts by the beginning of their names, with their titles.
const GROUPS: [(&str, &str); 21] = [
    ("agent-", "The agent is silent"),
    ("relay-", "The agent is silent"),
    ("collector-", "The agent is silent"),
    ("no-agent-", "The agent is silent"),
    ("guest-", "The guest"),
    ("clock-", "The guest"),
    ("host-", "The infra node"),
    ("compute-", "CPU and memory"),
    ("vm-", "The VM"),
    ("volume-", "A volume keeps the VM from starting"),
    ("node-", "The Node in the user cluster"),
    ("user-cluster-", "The Node in the user cluster"),
    ("inventory-", "The Node in the user cluster"),
    ("disk", "Disks, DNS, virtio"),
    ("dns-", "Disks, DNS, virtio"),
    ("virtio-", "Disks, DNS, virtio"),
    ("spec-", "The specification against the guest"),
    ("metrics-", "Metrics for the tenant"),
    ("blame-", "Several problems at once"),
    ("restart-", "The collector restarts"),
    ("", "Migration and evacuation"),
];

/// The page.
pub(super) fn render(template: &str, scripts: &[(String, Script)]) -> String {
    assert!(template.contains(CONDITIONS) && template.contains(SCRIPTS));
    template
        .replace(CONDITIONS, &conditions())
        .replace(SCRIPTS, &groups(scripts))
}

fn conditions() -> String {
    let mut text = "| condition | holds if | worse after | better after |\n|---|---|---|---|\n".to_owned();
    let time = |ms: u64| format!("{} s", ms / 1000);
    for condition in HealthCondition::ALL
        .into_iter()
        .chain([HealthCondition::LabelsInSync])
    {
        let times = HoldTimes::of(condition);
        let is_shown_at_once = [HealthCondition::LabelsInSync, HealthCondition::MetricsDelivered];
        let (worse, better) = if is_shown_at_once.contains(&condition) {
            ("at once".to_owned(), "at once".to_owned())
        } else {
            (time(times.worse_ms), time(times.better_ms))
        };
        writeln!(
            text,
            "| `{}` | {} | {worse} | {better} |",
            condition.as_str(),
            condition.about()
        )
        .unwrap();
    }
    text
}

fn group(name: &str) -> &'static str {
    let found = GROUPS.iter().find(|(prefix, _)| name.starts_with(prefix));
    found.unwrap().1
}

fn groups(scripts: &[(String, Script)]) -> String {
    let mut titles: Vec<&str> = GROUPS.iter().map(|(_, title)| *title).collect();
    titles.dedup();
    let mut text = String::new();
    for title in titles {
        writeln!(text, "### {title}\n").unwrap();
        for (name, script) in scripts.iter().filter(|(name, _)| group(name) == title) {
            one(&mut text, name, script);
        }
    }
    format!("{}\n", text.trim_end())
}

fn one(text: &mut String, name: &str, script: &Script) {
    let real = if script.is_real {
        "; also run on a real guest"
    } else {
        ""
    };
    writeln!(text, "**{}** (`{name}`{real})", script.title).unwrap();
    for more in [&script.about, &script.elsewhere].into_iter().flatten() {
        writeln!(text, "{more}").unwrap();
    }
    text.push_str("\n| after | what happens | verdict |\n|---|---|---|\n");
    for step in &script.steps {
        let (at, what) = (step.at_seconds, &step.what);
        writeln!(text, "| {at} s | {what} | {} |", verdict(&step.expect)).unwrap();
    }
    let told = script.steps.iter().flat_map(|step| &step.rest.story);
    let told: Vec<String> = told.map(|part| format!("- {part}")).collect();
    if !told.is_empty() {
        writeln!(text, "\nThe timeline then has:\n{}", told.join("\n")).unwrap();
    }
    text.push('\n');
}

fn verdict(expected: &Expectation) -> String {
    let mut text = expected.verdict.as_str().to_owned();
    let more = [&expected.cause, &expected.reason];
    let more: Vec<&str> = more.into_iter().flatten().map(String::as_str).collect();
    if !more.is_empty() {
        write!(text, " ({})", more.join(", ")).unwrap();
    }
    for (kind, condition) in &expected.conditions {
        write!(text, "; {kind}: {condition}").unwrap();
    }
    text
}
