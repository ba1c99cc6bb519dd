//! Tier 1: scripts of facts over time, each with the verdict that follows. They run through the
//! real readers of manifests and reports, the fleet index and the verdict. `docs/health.md` is made
//! from them.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod guests;
mod leases;
mod metrics;
mod page;
pub(crate) mod real;
pub(crate) mod script;
pub(crate) mod stage;
mod times;
mod volumes;

use std::{collections::BTreeSet, fs, path::PathBuf};

use virtfleet_collector_core::{
    access::{AccessScope, VisibleFleet, tenant_detail, tenant_snapshot},
    health::{HealthVerdict, HoldTimes},
};

use self::{
    script::{Expectation, Script},
    stage::{PULL_INTERVAL_SECONDS, Stage},
};

/// Set to rewrite `docs/health.md`.
const UPDATE: &str = "VIRTFLEET_UPDATE_HEALTH";

/// A path below the top of the tree.
fn tree(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .join(path)
}

/// All scripts, by file name.
pub(crate) fn scripts() -> Vec<(String, Script)> {
    let listed = fs::read_dir(tree("tests/fixtures/health")).unwrap();
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let script = Script::read(&fs::read_to_string(path).unwrap());
        (
            name.clone(),
            script.unwrap_or_else(|error| panic!("{name}: {error}")),
        )
    };
    paths.iter().map(read).collect()
}

/// What differs from the expectation after a step.
pub(crate) fn differences(stage: &Stage, expected: &Expectation) -> Vec<String> {
    let Some(detail) = stage.detail() else {
        return vec!["the VM does not exist".to_owned()];
    };
    let health = &detail.vm.health;
    let mut found = Vec::new();
    let mut compare = |what: &str, is: &str, wanted: &str| {
        if is != wanted {
            found.push(format!("{what} is {is}, not {wanted}"));
        }
    };
    compare("the verdict", health.verdict.as_str(), expected.verdict.as_str());
    let cause = health.cause.map_or("", |cause| cause.as_str());
    if let Some(wanted) = &expected.cause {
        compare("the cause", cause, wanted);
    }
    if let Some(wanted) = &expected.reason {
        compare("the reason", &health.reason, wanted);
    }
    for (kind, wanted) in &expected.conditions {
        let condition = detail.conditions.iter().find(|one| one.kind == *kind);
        let is = condition.map(|one| format!("{} {}", one.status.as_str(), one.reason));
        compare(kind, is.as_deref().unwrap_or("absent"), wanted);
    }
    if let Some(wanted) = &expected.message
        && !health.message.contains(wanted)
    {
        found.push(format!(
            "the message {:?} does not contain {wanted:?}",
            health.message
        ));
    }
    if let Some(wanted) = &expected.next
        && !health.next.contains(wanted)
    {
        found.push(format!(
            "the next command {:?} does not contain {wanted:?}",
            health.next
        ));
    }
    if !found.is_empty() {
        found.push(format!("conditions: {:#?}", detail.conditions));
    }
    found
}

/// Entries that the timeline lacks, or has in another order.
fn missing_entries(stage: &Stage, expected: &[String]) -> Vec<String> {
    let timeline = stage.detail().map(|detail| detail.timeline).unwrap_or_default();
    let mut entries = timeline.iter();
    let missing = expected
        .iter()
        .filter(|text| !entries.any(|entry| entry.text.contains(text.as_str())));
    missing
        .map(|text| format!("the timeline has no {text:?} there: {timeline:#?}"))
        .collect()
}

#[test]
fn every_script_gives_its_verdicts() {
    let mut failed = Vec::new();
    for (name, script) in scripts() {
        let mut stage = Stage::new(script.starts_empty);
        if !script.starts_empty {
            let first = differences(&stage, &Expectation::healthy());
            assert!(first.is_empty(), "the stage is not healthy: {first:?}");
        }
        for step in &script.steps {
            stage.play(step);
            for difference in differences(&stage, &step.expect) {
                failed.push(format!("{name} at {}s: {difference}", step.at_seconds));
            }
            for missing in missing_entries(&stage, &step.rest.story) {
                failed.push(format!("{name} at {}s: {missing}", step.at_seconds));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A rollout of the collector must not clear alerts: what the objects say is as old as before.
#[test]
fn a_restart_of_the_collector_changes_no_verdict() {
    let mut failed = Vec::new();
    for (name, script) in scripts() {
        let end = |restarts: bool| {
            let mut stage = Stage::new(script.starts_empty);
            for step in &script.steps {
                stage.play(step);
            }
            if restarts {
                stage.restart();
            }
            // The first pull, the time after which a migration counts as forgotten, and the longest
            // time for which a change is held.
            stage.wait(PULL_INTERVAL_SECONDS + 2 * HoldTimes::MAX_MS / 1000 + 15);
            let health = stage.detail().map(|detail| detail.vm.health);
            health.map(|health| (health.verdict, health.cause, health.reason))
        };
        let (with, without) = (end(true), end(false));
        if with != without {
            failed.push(format!("{name}: {with:?} after a restart, {without:?} without"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The message about stolen CPU time names VMs of others to those only who may see them.
#[test]
fn tenants_do_not_see_their_neighbours() {
    let (_, script) = scripts()
        .into_iter()
        .find(|(name, _)| name == "compute-steal-by-neighbour")
        .unwrap();
    let mut stage = Stage::new(false);
    let is_stolen = |step: &&script::Step| step.expect.reason.as_deref() == Some("CpuStolen");
    let stolen = script.steps.iter().find(is_stolen).unwrap();
    for step in script
        .steps
        .iter()
        .take_while(|step| step.at_seconds <= stolen.at_seconds)
    {
        stage.play(step);
    }
    let whole = stage.index().snapshot();
    let detail = stage.detail().unwrap();
    for (scope, is_named) in [
        (AccessScope::All, true),
        (AccessScope::of_namespaces(["prod".parse().unwrap()]), false),
    ] {
        let visible = VisibleFleet::new(&whole, &scope);
        let part = tenant_snapshot(&visible, &|key| stage.index().findings(key));
        let one = tenant_detail(&visible, detail.clone()).unwrap();
        let view = part.vms.values().find(|vm| vm.name == one.vm.name).unwrap();
        let texts = [
            serde_json::to_string(&**view).unwrap(),
            serde_json::to_string(&one).unwrap(),
            one.conditions.iter().map(|one| one.message.clone()).collect(),
        ];
        for text in texts {
            assert!(text.contains("28 vCPUs share 16 CPUs"), "{text}");
            assert_eq!(text.contains("other/batch"), is_named, "{scope:?}: {text}");
        }
    }
}

/// What other consoles show as healthy and is not.
#[test]
fn states_that_others_show_as_healthy_are_scripts() {
    let scripts = scripts();
    let texts: String = scripts
        .iter()
        .filter_map(|(_, one)| one.elsewhere.clone())
        .collect();
    for issue in [
        "harvester#466",
        "harvester#913",
        "harvester#982",
        "harvester#1446",
        "rancher#19293",
        "rancher/dashboard#4608",
    ] {
        assert!(texts.contains(issue), "no script is about {issue}");
    }
    for (name, script) in &scripts {
        let mut verdicts = script.steps.iter().map(|step| step.expect.verdict);
        let is_sick = verdicts.any(|verdict| verdict != HealthVerdict::Healthy);
        assert!(script.elsewhere.is_none() || is_sick, "{name}");
    }
}

#[test]
fn there_are_scripts_for_every_verdict_and_most_causes() {
    let scripts = scripts();
    assert!(scripts.len() >= 120, "{} scripts", scripts.len());
    let steps = || scripts.iter().flat_map(|(_, script)| &script.steps);
    let verdicts: BTreeSet<_> = steps().map(|step| step.expect.verdict).collect();
    assert_eq!(verdicts.len(), 4);
    let causes: BTreeSet<_> = steps().filter_map(|step| step.expect.cause.clone()).collect();
    let known = [
        "agent",
        "guest",
        "host",
        "migration",
        "neighbour",
        "network",
        "storage",
        "vm",
    ];
    assert_eq!(causes.iter().map(String::as_str).collect::<Vec<_>>(), known);
}

#[test]
fn the_page_is_made_of_the_scripts() {
    let path = tree("docs/health.md");
    let template = fs::read_to_string(tree("tests/fixtures/health/base/page.md")).unwrap();
    let now = page::render(&template, &scripts());
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, &now).unwrap();
    }
    let then = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(then, now, "docs/health.md: {UPDATE}=1 rewrites it");
}
