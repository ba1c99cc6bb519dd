//! Histories that are longer than the collector's memory, from a real Prometheus that has a week of
//! samples.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use virtfleet_tests::{
    bins, parts,
    process::Launch,
    prometheus_past::{self, STEAL, STEAL_THEN, USED},
    scrape::{Answer, Client},
    sim::{Guest, Options},
    skip,
    stage::{Beat, STAGE_TIMEOUT, Stage},
};

/// Known values of a column, and how many are not known.
fn column(history: &Value, name: &str) -> (Vec<f64>, usize) {
    let all = history[name].as_array().unwrap();
    let known: Vec<f64> = all.iter().filter_map(Value::as_f64).collect();
    let unknown = all.len() - known.len();
    (known, unknown)
}

fn answer(stage: &Stage, path: &str) -> Answer {
    Client::plain(stage.api, STAGE_TIMEOUT)
        .unwrap()
        .get(path)
        .unwrap()
}

fn is_about(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 0.02
}

/// `virtfleetctl history` of a VM of a week, and of one of four hours.
fn prints_histories(stage: &Stage, old: &Guest, young: &Guest) {
    let ctl = |guest: &Guest, range: &str| {
        let name = format!("{}/{}", guest.cluster, guest.name);
        let launch = stage.ctl().unwrap().args(["history", &name, "--range", range]);
        launch.text(STAGE_TIMEOUT).unwrap()
    };
    let printed = ctl(old, "24h");
    let cells = |series: &str| -> Vec<&str> {
        let line = printed.lines().find(|line| line.starts_with(series));
        line.unwrap_or_else(|| panic!("{series}: {printed}"))
            .split_whitespace()
            .collect()
    };
    let percent = |cell: &str| cell.trim_end_matches('%').parse::<f64>().unwrap() / 100.0;
    let steal = cells("CPU steal");
    assert!(is_about(percent(steal[2]), STEAL), "last: {printed}");
    assert!(is_about(percent(steal[5]), STEAL_THEN), "max: {printed}");
    let is_half = |level| level == '▄' || level == '▅';
    assert!(steal[7].contains(is_half) && steal[7].contains('▁'), "{printed}");
    assert_eq!(cells("I/O pressure")[7..], ["no", "samples"], "{printed}");
    assert!(
        printed.contains("Prometheus has no samples for CPU pressure, I/O pressure"),
        "{printed}"
    );
    let printed = ctl(young, "24h");
    assert!(printed.contains("The VM was created at "), "{printed}");
    assert!(printed.contains("····"), "{printed}");
    let name = format!("{}/nowhere", old.cluster);
    let unknown = stage
        .ctl()
        .unwrap()
        .args(["history", &name])
        .said(STAGE_TIMEOUT)
        .unwrap();
    assert_eq!(unknown.0, 4, "{unknown:?}");
}

/// What `virtfleet-collector doctor` says with the stage's settings: check and status.
fn doctor(stage: &Stage) -> BTreeMap<String, String> {
    let output = Launch::new(bins::collector().unwrap())
        .args(["doctor", "-o", "json", "--config"])
        .arg(stage.path().join("collector.yaml"))
        .output(STAGE_TIMEOUT)
        .unwrap();
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let word = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let states = lines
        .iter()
        .map(|line| (word(line, "what"), word(line, "status")));
    states.collect()
}

#[test]
fn tier3_histories_of_a_week_come_from_prometheus() {
    let test = "tier3_histories_of_a_week_come_from_prometheus";
    let programs = parts::prometheus().and_then(|_| parts::promtool());
    if skip::need(3, test, programs).unwrap().is_none() {
        return;
    }
    let mut stage = Stage::new(Options {
        guests: 2,
        ..Options::default()
    })
    .unwrap();
    let [old, young] = &stage.plan.guests[..] else {
        panic!("two guests");
    };
    let (old, young) = (old.clone(), young.clone());
    let vms = [
        (old.cluster.as_str(), old.name.as_str()),
        (&young.cluster, &young.name),
    ];
    let (prometheus, address) = prometheus_past::start(stage.path(), &vms, "infra_cluster=\"eu-1\"").unwrap();
    // A VM of this name was there before: its past is in Prometheus.
    let created = Timestamp::now() - SignedDuration::from_hours(4);
    let vm = format!(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  namespace: {}\n  name: {}\n  \
         creationTimestamp: \"{created:.0}\"\n",
        young.cluster, young.name
    );
    stage.write_manifest("infra/young.yaml", &vm).unwrap();
    stage.set_settings(format!(
        "prometheus: {{ url: \"http://{address}\", labels: {{ infra_cluster: eu-1 }} }}\n"
    ));
    stage.start_collector(Beat::default()).unwrap();

    let path = |guest: &Guest| format!("/api/v1/vms/{}/{}", guest.cluster, guest.name);
    let detail = stage.json(&path(&old)).unwrap();
    assert_eq!(detail["historyRanges"], serde_json::json!(["6h", "24h", "7d"]));
    for (range, step_ms) in [("6h", 180_000), ("24h", 720_000), ("7d", 5_040_000)] {
        let history = stage
            .json(&format!("{}/history?range={range}", path(&old)))
            .unwrap();
        assert_eq!(history["stepMs"], step_ms, "{range}");
        let (steal, unknown) = column(&history, "cpuSteal");
        assert!(unknown <= 1, "{range}: {history:#}");
        assert!(is_about(*steal.last().unwrap(), STEAL), "{range}: {steal:?}");
        let most = steal.iter().copied().fold(0.0, f64::max);
        assert!(is_about(most, STEAL_THEN), "{range}: {steal:?}");
        let high = steal.iter().filter(|share| **share > 0.3).count();
        let steps_of_an_hour = 3_600_000 / step_ms;
        assert!(
            (steps_of_an_hour..=steps_of_an_hour + 3).contains(&high),
            "{range}: {high} points of {steps_of_an_hour}: {steal:?}"
        );
        let (used, _) = column(&history, "cpuUsed");
        assert!(
            used.iter().all(|share| is_about(*share, USED)),
            "{range}: {used:?}"
        );
        let (memory, _) = column(&history, "memoryPressure");
        assert!(memory.iter().all(|share| is_about(*share, 0.05)), "{range}");
        assert_eq!(column(&history, "ioPressure").0, Vec::<f64>::new(), "{range}");
    }

    // Of the VM that has the name now, only the last four hours are shown.
    let history = stage
        .json(&format!("{}/history?range=24h", path(&young)))
        .unwrap();
    let (steal, unknown) = column(&history, "cpuSteal");
    assert!((18..=20).contains(&steal.len()), "{steal:?}");
    assert_eq!(steal.len() + unknown, 120);

    prints_histories(&stage, &old, &young);
    let states = doctor(&stage);
    // The samples have no pressure of CPU and I/O.
    assert_eq!(states["prometheus server"], "ok", "{states:?}");
    assert_eq!(states["prometheus series"], "warn", "{states:?}");
    assert_eq!(states["prometheus retention"], "ok", "{states:?}");

    // Errors name what is wrong; the VM's own page stays.
    let refused = answer(&stage, &format!("{}/history?range=1h", path(&old)));
    assert_eq!(refused.status, 400);
    drop(prometheus);
    assert_eq!(doctor(&stage)["prometheus server"], "fail");
    let launch = stage
        .ctl()
        .unwrap()
        .args(["history", &format!("{}/{}", old.cluster, old.name)]);
    let (code, said) = launch.said(STAGE_TIMEOUT).unwrap();
    assert!(code == 1 && said.contains("virtfleet-collector doctor"), "{said}");
    let failed = answer(&stage, &format!("{}/history", path(&old)));
    assert_eq!(failed.status, 502);
    let failed = failed.json().unwrap();
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the collector's Prometheus: "), "{message}");
    assert_eq!(stage.json(&path(&old)).unwrap()["name"], old.name);
}
