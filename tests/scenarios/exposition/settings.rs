//! Settings that change what collectors say.

use std::collections::BTreeMap;

use virtfleet_agent_metrics::{COLLECTORS, Registry};
use virtfleet_wire::settings::MetricsSettings;

use crate::exposition::world::*;

/// The lines of `collector` on a fixture, without help and type.
fn said(root: &str, collector: &str, settings: impl FnOnce(&mut MetricsSettings)) -> Vec<String> {
    let mut wanted = MetricsSettings::default();
    settings(&mut wanted);
    let (context, _) = context(&fixture(root), wanted);
    let only = COLLECTORS
        .iter()
        .map(|entry| (entry.name.to_owned(), entry.name == collector));
    let only: BTreeMap<_, _> = only.collect();
    let mut registry = Registry::with_table(COLLECTORS, context, &only).unwrap();
    let page = scrape(&mut registry);
    let lines = page
        .lines()
        .filter(|line| line.starts_with("node_") && !line.starts_with("node_scrape_"));
    lines.map(str::to_owned).collect()
}

fn starting<'lines>(lines: &'lines [String], start: &str) -> Vec<&'lines str> {
    let found = lines.iter().filter(|line| line.starts_with(start));
    found.map(String::as_str).collect()
}

#[test]
fn counters_of_devices_with_aliases_and_the_kernels_names() {
    let plain = said("kubevirt", "netdev", |_| {});
    assert!(!starting(&plain, "node_network_receive_drop_total{device=\"eth0\"}").is_empty());
    let labelled = said("kubevirt", "netdev", |settings| {
        settings.netdev.label_ifalias = true;
    });
    assert_eq!(plain.len(), labelled.len());
    assert!(labelled.iter().all(|line| line.contains("\",ifalias=\"")));
    let detailed = said("kubevirt", "netdev", |settings| {
        settings.netdev.detailed_metrics = true;
    });
    assert_eq!(plain.len(), detailed.len());
    for (one, other) in [
        ("receive_errs", "receive_errors"),
        ("receive_drop", "receive_dropped"),
        ("transmit_errs", "transmit_errors"),
        ("transmit_drop", "transmit_dropped"),
    ] {
        let of = |lines: &[String], name: &str| {
            let start = format!("node_network_{name}_total{{");
            let rest = |line: &&str| line[start.len()..].to_owned();
            starting(lines, &start).iter().map(rest).collect::<Vec<_>>()
        };
        assert_eq!(of(&plain, one), of(&detailed, other));
        assert!(of(&detailed, one).is_empty() && !of(&detailed, other).is_empty());
    }
}

#[test]
fn an_unknown_speed_can_be_left_out() {
    let plain = said("kubevirt", "netclass", |_| {});
    let without = said("kubevirt", "netclass", |settings| {
        settings.netclass.ignore_invalid_speed = true;
    });
    let unknown: Vec<_> = plain.iter().filter(|line| line.ends_with(" -125000")).collect();
    assert!(!unknown.is_empty());
    let rest: Vec<_> = plain.iter().filter(|line| !unknown.contains(line)).collect();
    assert_eq!(without.iter().collect::<Vec<_>>(), rest);
}

#[test]
fn servers_that_labels_do_not_tell_apart_are_added_up() {
    let sum = |lines: &[String]| -> f64 {
        let lines = starting(lines, "node_ipvs_backend_weight");
        let values = lines.iter().map(|line| line.rsplit(' ').next().unwrap());
        values.map(|value| value.parse::<f64>().unwrap()).sum()
    };
    let all = said("kubevirt", "ipvs", |_| {});
    let some = said("kubevirt", "ipvs", |settings| {
        settings.ipvs.backend_labels = Some("proto".to_owned());
    });
    let none = said("kubevirt", "ipvs", |settings| {
        settings.ipvs.backend_labels = Some(String::new());
    });
    assert!(
        starting(&some, "node_ipvs_backend_weight{proto=\"TCP\"}").len() == 1,
        "{some:#?}"
    );
    assert_eq!(starting(&none, "node_ipvs_backend_weight ").len(), 1, "{none:#?}");
    for lines in [&some, &none] {
        assert!((sum(lines) - sum(&all)).abs() < 0.5);
    }
}
