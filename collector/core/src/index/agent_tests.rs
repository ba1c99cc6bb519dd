//! Findings about agents that should answer but do not: one id per failure class.

use virtfleet_wire::finding::Severity;

use super::{
    tests::{answer, apply, small},
    *,
};
use crate::{
    facts::{Fact, Phase, Vmi},
    store::tests::{key, launcher, vmi},
};

fn fail(index: &mut FleetIndex, vm: &VmKey, class: FailureClass, now: &str) {
    index.set_time(now.to_owned(), 0);
    let mut pull = answer(vm, |_| {});
    pull.outcome = Err(Failure::new(class, format_args!("cannot {}", class.as_str())));
    index.record_pull(pull);
}

fn of_agent(index: &FleetIndex, vm: &VmKey) -> Vec<Finding> {
    let mut found = index.findings(vm);
    found.retain(|finding| finding.id.starts_with("agent-"));
    found
}

#[test]
fn three_failed_pulls_are_a_finding_until_the_agent_answers() {
    let (mut index, vm) = (small(), key("ns", "w0"));
    for now in ["t1", "t2"] {
        fail(&mut index, &vm, FailureClass::Connect, now);
        assert_eq!(of_agent(&index, &vm), []);
    }
    fail(&mut index, &vm, FailureClass::Timeout, "t3");
    let found = of_agent(&index, &vm);
    let [one] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (one.id.as_str(), one.severity, one.since.as_str()),
        (findings::AGENT_TIMEOUT, Severity::Warning, "t1"),
        "since the first failed pull, under the last class"
    );
    assert_eq!(one.message, "the agent of ns/w0 does not answer: cannot timeout");
    let evidence =
        ["class", "error", "failedPulls", "answeredBefore"].map(|name| one.evidence[name].as_str());
    assert_eq!(evidence, ["timeout", "cannot timeout", "3", "no"]);
    assert!(one.remedy.contains("scrape.timeout"), "{}", one.remedy);
    let view = &index.snapshot().vms[&vm];
    assert_eq!((view.findings, view.severities.warning), (1, 1));
    index.record_pull(answer(&vm, |_| {}));
    assert_eq!(of_agent(&index, &vm), []);
    fail(&mut index, &vm, FailureClass::Timeout, "t4");
    assert_eq!(of_agent(&index, &vm), [], "the count restarts");
}

#[test]
fn every_class_has_an_id_and_a_remedy() {
    for &class in FailureClass::ALL {
        let (mut index, vm) = (small(), key("ns", "w0"));
        for now in ["t1", "t2", "t3"] {
            fail(&mut index, &vm, class, now);
        }
        let [one] = of_agent(&index, &vm).try_into().unwrap();
        assert_eq!(one.id, format!("agent-{}", class.as_str().replace('_', "-")));
        // Where agents enrol, there is no scrape.tls.
        assert!(class != FailureClass::Tls || one.remedy.contains("virtfleetctl ca status"));
        let words = one.reason.split_inclusive(char::is_uppercase).count();
        assert!(
            words > 2 && !one.remedy.is_empty() && !one.remedy.contains('{'),
            "{one:?}"
        );
    }
}

#[test]
fn the_certificate_of_another_vm_is_critical_at_once() {
    let (mut index, vm) = (small(), key("ns", "w0"));
    fail(&mut index, &vm, FailureClass::WrongVm, "t1");
    let [one] = of_agent(&index, &vm).try_into().unwrap();
    assert_eq!(
        (one.id.as_str(), one.severity),
        (findings::AGENT_WRONG_VM, Severity::Critical)
    );
    assert_eq!(index.snapshot().vms[&vm].severities.critical, 1);
}

#[test]
fn slow_answers_are_a_finding_until_a_fast_answer_or_a_failure() {
    let (mut index, vm) = (small(), key("ns", "w0"));
    let take = |index: &mut FleetIndex, slow: bool, now: &str| {
        index.set_time(now.to_owned(), 0);
        let mut pull = answer(&vm, |_| {});
        pull.outcome.as_mut().unwrap().slow = slow;
        index.record_pull(pull);
        of_agent(index, &vm)
    };
    for now in ["t1", "t2"] {
        assert_eq!(take(&mut index, true, now), []);
    }
    let [one] = take(&mut index, true, "t3").try_into().unwrap();
    assert_eq!(
        (one.id.as_str(), one.severity, one.since.as_str()),
        (findings::AGENT_SLOW, Severity::Info, "t1")
    );
    fail(&mut index, &vm, FailureClass::Timeout, "t4");
    assert_eq!(of_agent(&index, &vm), []);
    assert_eq!(
        take(&mut index, true, "t5").len(),
        1,
        "a failure does not reset the count"
    );
    assert_eq!(take(&mut index, false, "t6"), []);
    assert_eq!(take(&mut index, true, "t7"), []);
}

#[test]
fn series_that_only_the_collector_exports_are_a_finding() {
    let (mut index, vm) = (small(), key("ns", "w0"));
    let mut pull = answer(&vm, |_| {});
    pull.outcome.as_mut().unwrap().metrics.reserved_samples = 2;
    index.record_pull(pull);
    let [one] = of_agent(&index, &vm).try_into().unwrap();
    assert_eq!(
        (one.id.as_str(), one.severity),
        (findings::AGENT_RESERVED_SERIES, Severity::Warning)
    );
    assert!(one.message.contains("has 2 samples"), "{}", one.message);
    index.record_pull(answer(&vm, |_| {}));
    assert_eq!(of_agent(&index, &vm), []);
}

#[test]
fn a_vm_that_does_not_run_has_no_agent_that_should_answer() {
    let change = |change: fn(&mut Vmi)| {
        let (mut index, vm) = (small(), key("ns", "w0"));
        for now in ["t1", "t2", "t3"] {
            fail(&mut index, &vm, FailureClass::Connect, now);
        }
        let mut changed = vmi("ns", "w0");
        change(&mut changed);
        apply(&mut index, [Fact::Vmi(Box::new(changed))]);
        of_agent(&index, &vm).len()
    };
    assert_eq!(change(|_| {}), 1);
    assert_eq!(change(|vmi| vmi.paused = true), 0);
    assert_eq!(change(|vmi| vmi.deleting = true), 0);
    assert_eq!(change(|vmi| vmi.phase = Phase::Failed), 0);
    assert_eq!(change(|vmi| vmi.uid = Some("other".parse().unwrap())), 0);
}

#[test]
fn no_agent_is_silent_where_no_agent_is_pulled() {
    let mut index = FleetIndex::new(DialRules::default().without_pulls());
    apply(&mut index, [Fact::Vmi(Box::new(vmi("ns", "a")))]);
    let view = &index.snapshot().vms[&key("ns", "a")];
    assert_eq!(view.agent.status, crate::view::AgentStatus::Disabled);
    assert!(view.agent.address.is_some(), "/sd lists it");
}

#[test]
fn a_vm_of_no_user_cluster_may_have_no_agent() {
    let mut index = FleetIndex::new(DialRules::default());
    apply(&mut index, [Fact::Vmi(Box::new(vmi("ns", "stray")))]);
    let vm = key("ns", "stray");
    let thrice = |index: &mut FleetIndex, class| {
        for now in ["t1", "t2", "t3"] {
            fail(index, &vm, class, now);
        }
        of_agent(index, &vm).len()
    };
    assert_eq!(thrice(&mut index, FailureClass::Connect), 0, "never expected");
    assert_eq!(
        thrice(&mut index, FailureClass::Malformed),
        1,
        "an agent is there"
    );
    index.record_pull(answer(&vm, |_| {}));
    assert_eq!(
        thrice(&mut index, FailureClass::Connect),
        1,
        "it has answered before"
    );
}

/// Whether the health of `w0` says that its pod is gone.
fn is_launcher_gone(index: &FleetIndex) -> bool {
    let detail = index.detail(&key("ns", "w0")).unwrap();
    detail.conditions.iter().any(|one| one.reason == "LauncherGone")
}

#[test]
fn a_pod_is_gone_only_where_pods_are_known() {
    let pod = |vm| Fact::LauncherPod(launcher("ns", vm, &["10.0.0.1"]));
    let start = |is_live: bool, facts: Vec<Fact>| {
        let mut index = FleetIndex::default();
        if is_live {
            index.set_cluster_statuses(BTreeMap::new());
        }
        index.apply(InventoryEvent::Init);
        apply(&mut index, [Fact::Vmi(Box::new(vmi("ns", "w0")))]);
        apply(&mut index, facts);
        assert!(
            !is_launcher_gone(&index) || !is_live,
            "the pods have not been listed yet"
        );
        index.apply(InventoryEvent::Synced);
        is_launcher_gone(&index)
    };
    // A live cluster: every pod has been listed, and that is shown at once.
    assert!(start(true, vec![]) && start(true, vec![pod("w1")]));
    assert!(!start(true, vec![pod("w0")]));
    // A folder may have no manifests of pods, or those of one namespace.
    assert!(!start(false, vec![]) && start(false, vec![pod("w1")]));
    assert!(!start(false, vec![pod("w1"), pod("w0")]));
}
