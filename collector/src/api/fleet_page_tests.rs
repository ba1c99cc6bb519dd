//! Tests of the fleet metrics: well-formed, one placement per VM, and silent agents differ from
//! stopped VMs.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_collector_core::view::{FleetSnapshot, VmState};
use virtfleet_wire::exposition::{Line, parse_line};

use super::*;
use crate::api::testing;

fn text(fleet: &FleetSnapshot) -> String {
    let mut page = Page::new();
    fleet_series::fleet(&mut page, fleet);
    page.to_text()
}

/// Family and labels of every sample, checked line by line.
fn samples(text: &str) -> Vec<(String, BTreeMap<String, String>, f64)> {
    let mut seen = BTreeSet::new();
    let mut samples = Vec::new();
    for line in text.lines() {
        match parse_line(line).unwrap() {
            Line::Sample(sample) => {
                let labels = sample.labels.clone().map(Result::unwrap);
                let labels: BTreeMap<_, _> = labels
                    .map(|(name, value)| (name.to_owned(), value.into_owned()))
                    .collect();
                assert!(
                    seen.insert((sample.name.to_owned(), labels.clone())),
                    "twice: {line}"
                );
                samples.push((sample.name.to_owned(), labels, sample.value));
            }
            Line::Type(..) | Line::Help(..) => {}
            other => panic!("{line}: {other:?}"),
        }
    }
    samples
}

#[test]
fn snapshot_of_the_page() {
    insta::assert_snapshot!(text(&testing::fleet()));
}

#[test]
fn every_vm_with_a_vmi_has_exactly_one_placement_and_every_vm_one_state() {
    let fleet = testing::fleet();
    let samples = samples(&text(&fleet));
    let of = |family: &str| -> Vec<_> {
        let chosen = samples.iter().filter(|(name, _, _)| name == family);
        chosen
            .map(|(_, labels, _)| (labels["namespace"].clone(), labels["name"].clone()))
            .collect()
    };
    let keys = |placed: bool| -> Vec<_> {
        let vms = fleet.vms.values();
        vms.filter(|vm| !placed || vm.state != VmState::Stopped)
            .map(|vm| (vm.namespace.to_string(), vm.name.to_string()))
            .collect()
    };
    assert_eq!(of("virtfleet_vm_placement_info"), keys(true));
    assert_eq!(of("virtfleet_vm_state"), keys(false));
    assert_eq!(of("virtfleet_vm_up"), keys(false));
}

#[test]
fn a_hostile_zone_stays_one_label_value() {
    let samples = samples(&text(&testing::fleet()));
    let (_, labels, _) = samples
        .iter()
        .find(|(name, labels, _)| name == "virtfleet_vm_placement_info" && labels["name"] == "worker-2")
        .unwrap();
    assert_eq!(labels["zone"], "zone \"b\"\\\n");
}

#[test]
fn before_the_first_read_there_are_no_series_of_vms() {
    let mut fleet = testing::fleet();
    fleet.synced = false;
    let samples = samples(&text(&fleet));
    assert!(
        samples
            .iter()
            .all(|(name, _, _)| name.starts_with("virtfleet_inventory_"))
    );
    assert_eq!(samples[0].2.to_string(), "0");
}

#[test]
fn every_family_is_documented() {
    let documented = include_str!("../../../docs/metrics.md");
    for (family, labels, _) in samples(&text(&testing::fleet())) {
        let row = documented
            .lines()
            .find(|line| line.starts_with(&format!("| `{family}` ")))
            .unwrap_or_else(|| panic!("{family} has no row in docs/metrics.md"));
        for label in labels.keys() {
            assert!(
                row.contains(label),
                "the row of {family} does not have its label {label}"
            );
        }
    }
}
