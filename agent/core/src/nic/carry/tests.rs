use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    nic::state::{Pending, Still},
    virtio::Nic,
};

fn seen(current: u32, wanted: u32) -> Plan {
    Plan {
        multiqueue: Multiqueue::Auto,
        online: (0..wanted).collect(),
        nics: vec![NicPlan {
            nic: "eth0".to_owned(),
            index: 2,
            mac: "a".to_owned(),
            current: Some(current),
            possible: Some(8),
            wanted: Some(wanted),
            standing: QueueStatus::Differs,
            ..NicPlan::default()
        }],
        ..Plan::default()
    }
}

fn state(standing: NicStatus) -> NicState {
    NicState {
        nics: BTreeMap::from([("eth0".to_owned(), standing)]),
        ..NicState::default()
    }
}

fn carried(mut state: NicState, mut plan: Plan) -> (NicStatus, Plan) {
    state.nics = update_states(&state, &plan);
    add_recorded_state(&state, &mut plan);
    (state.nics["eth0"].clone(), plan)
}

fn tried() -> NicStatus {
    NicStatus {
        mac: "a".to_owned(),
        index: 2,
        first: 1,
        put_back: BTreeSet::from([2]),
        ..NicStatus::default()
    }
}

fn machine(index: Option<u32>) -> Machine {
    let nic = index.map(|index| Nic {
        name: "eth0".to_owned(),
        index,
        mac: "a".to_owned(),
        ..Nic::default()
    });
    Machine {
        nics: nic.into_iter().collect(),
        ..Machine::default()
    }
}

#[test]
fn first_snapshot_is_kept_until_the_interface_is_replaced() {
    let (first, _) = carried(NicState::default(), seen(1, 2));
    assert_eq!((first.first, first.first_cpus, first.index), (1, 2, 2));
    let (later, _) = carried(state(first.clone()), seen(2, 3));
    assert_eq!((later.first, later.first_cpus), (1, 2));
    let mut other = seen(2, 3);
    other.nics[0].mac = "b".to_owned();
    let (other, _) = carried(state(first.clone()), other);
    assert_eq!((other.first, other.first_cpus), (2, 3));
    let mut again = seen(2, 3);
    again.nics[0].index = 9;
    let (again, _) = carried(state(first), again);
    assert_eq!((again.first, again.index), (2, 9), "plugged in again");
}

#[test]
fn absent_interface_keeps_its_state_until_replugged() {
    let mut known = state(tried());
    match_interfaces(&mut known, &machine(None));
    assert!(known.nics.is_empty() && known.away.contains_key("eth0"));
    let mut again = known.clone();
    match_interfaces(&mut again, &machine(Some(2)));
    assert_eq!(again, state(tried()));
    match_interfaces(&mut known, &machine(Some(7)));
    assert!(known.nics.is_empty() && known.away.is_empty());
}

#[test]
fn reverted_number_is_not_retried_in_this_boot() {
    let (still, plan) = carried(state(tried()), seen(1, 2));
    assert_eq!(
        (still.standing, still.put_back.len()),
        (QueueStatus::RolledBack, 1)
    );
    assert_eq!(plan.nics[0].standing, QueueStatus::RolledBack, "also in the plan");
    assert!(plan.notes[0].contains("with 2 queues"), "{:?}", plan.notes);
    let (other, plan) = carried(state(still), seen(1, 3));
    assert_eq!(other.standing, QueueStatus::Differs, "another CPU");
    assert!(plan.notes.is_empty());
    let mut blind = seen(1, 2);
    blind.nics[0].wanted = None;
    let (blind, _) = carried(state(other), blind);
    assert_eq!(blind.standing, QueueStatus::Differs);
    let (again, _) = carried(state(blind), seen(1, 2));
    assert_eq!(
        again.standing,
        QueueStatus::RolledBack,
        "the CPU was removed, and a snapshot failed"
    );
    let (there, _) = carried(state(again), seen(2, 2));
    assert_eq!(
        there.standing,
        QueueStatus::Differs,
        "it is present: as in the plan"
    );
}

#[test]
fn failed_revert_is_reported_in_every_plan() {
    let mut standing = tried();
    standing.ours = Some(2);
    standing.pending = Some(Pending {
        from: 2,
        to: 3,
        broke: Some("the link went".to_owned()),
        still: Some(Still {
            why: "it is gone still".to_owned(),
            unclear: false,
        }),
        ..Pending::default()
    });
    let mut plan = seen(3, 3);
    plan.multiqueue = Multiqueue::Off;
    plan.nics[0].standing = QueueStatus::Excluded;
    let (stands, _) = carried(state(standing), plan);
    assert_eq!((stands.standing, stands.ours), (QueueStatus::RolledBack, Some(2)));
    assert!(
        stands.because.contains("with 2 again it is gone still"),
        "{stands:?}"
    );
}

#[test]
fn off_clears_own_changes_after_restore() {
    let ours = NicStatus {
        mac: "a".to_owned(),
        first: 1,
        ours: Some(2),
        before: Some(1),
        ..NicStatus::default()
    };
    let mut plan = seen(2, 1);
    plan.multiqueue = Multiqueue::Off;
    plan.nics[0].standing = QueueStatus::Excluded;
    let (waiting, _) = carried(state(ours.clone()), plan.clone());
    assert_eq!(waiting.ours, Some(2), "not done yet");
    plan.nics[0].current = Some(1);
    plan.nics[0].wanted = None;
    let (done, _) = carried(state(ours), plan);
    assert_eq!((done.ours, done.before), (None, None));
}

#[test]
fn manual_change_becomes_the_number_to_restore() {
    let mut standing = NicStatus::default();
    standing.set(1, 2);
    standing.set(2, 3);
    assert_eq!((standing.before, standing.ours), (Some(1), Some(3)));
    standing.set(5, 4);
    assert_eq!((standing.before, standing.ours), (Some(5), Some(4)));
}
