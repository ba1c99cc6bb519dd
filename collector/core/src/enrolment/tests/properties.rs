//! Properties: a contradiction never gets a certificate, and an incarnation never gets two keys.

use std::collections::BTreeMap;

use proptest::prelude::*;
use virtfleet_wire::ids::{Uid, VmKey};

use super::{
    super::{EnrolmentDecision, EnrolmentRecords, EnrolmentState, KeyFingerprint, RecordConflict},
    Case, fingerprint, mac, record, uid,
};
use crate::store::tests::key;

/// A change that makes the honest case contradict what is known.
fn contradictions() -> [fn(&mut Case); 9] {
    [
        |case| case.evidence.smbios_uuid = Some("2".repeat(32).parse().unwrap()),
        |case| case.evidence.macs = vec![mac(7)],
        |case| case.evidence.hostname = Some("other".to_owned()),
        |case| case.challenge = None,
        |case| case.connection_key = fingerprint(8),
        |case| case.names.push("spiffe://d/vmi/ns/b/x".to_owned()),
        |case| case.record = Some(record("vm-1", 9)),
        |case| case.subject.as_mut().unwrap().sharers = vec![key("ns", "b")],
        |case| case.subject = None,
    ]
}

proptest! {
    #[test]
    fn a_contradiction_never_gets_a_certificate(
        wrong in prop::collection::btree_set(0_usize..9, 1..9),
        replace in any::<bool>(),
        owned in any::<bool>(),
        no_evidence in any::<bool>(),
    ) {
        let mut case = Case::honest();
        case.asked_to_replace = replace;
        if owned {
            case.key_owner = Some((key("ns", "b"), uid("vm-9")));
        }
        if no_evidence {
            case.evidence = virtfleet_wire::enrolment::EnrolmentEvidence::default();
        }
        // The change that removes the subject comes last.
        for index in &wrong {
            contradictions()[*index](&mut case);
        }
        let decision = case.decide();
        prop_assert!(!matches!(decision, EnrolmentDecision::Sign(_)), "{wrong:?}: {decision:?}");
    }

    /// Random agents with random keys at random VMs, resets and new incarnations: in each state, at
    /// most one key of an incarnation is recorded, no key is recorded for two VMs, and what is
    /// signed is recorded.
    #[test]
    fn an_incarnation_never_gets_two_keys(
        steps in prop::collection::vec((0_u8..3, 0_u8..4, 0_u8..8), 1..120),
    ) {
        let mut records = EnrolmentRecords::new(4);
        let mut incarnations = [0_u32; 3];
        let mut signed = BTreeMap::<(VmKey, Uid), KeyFingerprint>::new();
        for (vm, key_number, action) in steps {
            let name = key("ns", &format!("vm-{vm}"));
            match action {
                0 => incarnations[usize::from(vm)] += 1,
                1 => {
                    if let Some(mut reset) = records.get(&name).cloned() {
                        let forgotten = (name.clone(), reset.uid.clone());
                        reset.state = EnrolmentState::Reset;
                        records.set(&name, Some(reset));
                        signed.remove(&forgotten);
                    }
                }
                _ => {
                    let incarnation = uid(&format!("uid-{vm}-{}", incarnations[usize::from(vm)]));
                    let mut case = Case::honest();
                    for target in [&mut case.dialled, &mut case.subject.as_mut().unwrap().target] {
                        target.key = name.clone();
                        target.uid = None;
                        target.vm_uid = Some(incarnation.clone());
                    }
                    case.names.clear();
                    case.record = records.get(&name).cloned();
                    let csr_key = fingerprint(key_number);
                    (case.csr_key, case.connection_key) = (csr_key, csr_key);
                    let owner = records.owner_of(csr_key, &name);
                    case.key_owner = owner.map(|(vm, record)| (vm.clone(), record.uid.clone()));
                    if let EnrolmentDecision::Sign(uid) = case.decide() {
                        prop_assert_eq!(&uid, &incarnation);
                        let mut new = record(uid.as_str(), 0);
                        new.key_sha256 = Some(csr_key);
                        records.put(&name, case.record.as_ref(), new).unwrap();
                        let before = signed.insert((name.clone(), uid), csr_key);
                        prop_assert!(before.is_none_or(|before| before == csr_key), "a second key");
                    }
                }
            }
            let mut owners = BTreeMap::new();
            for (vm, record) in records.iter() {
                prop_assert!(owners.insert(record.key_sha256, vm).is_none(), "a key of two VMs");
            }
        }
    }

    #[test]
    fn records_survive_their_stored_form(
        entries in prop::collection::vec((0_u8..40, 0_u8..40, 0_u8..3), 0..60),
    ) {
        let mut records = EnrolmentRecords::new(8);
        for (vm, key_number, state) in entries {
            let name = key("ns", &format!("vm-{vm}"));
            let mut new = record("vm-1", key_number);
            new.state = [EnrolmentState::Enrolled, EnrolmentState::Revoked, EnrolmentState::Reset]
                [usize::from(state)];
            let before = records.get(&name).cloned();
            match records.put(&name, before.as_ref(), new) {
                Ok(()) => {}
                Err(conflict) => prop_assert!(matches!(conflict, RecordConflict::KeyTaken(_))),
            }
        }
        let mut read = EnrolmentRecords::new(8);
        for shard in 0..8 {
            let json = records.shard_json(shard).unwrap();
            read.replace_shard(shard, super::super::read_shard(&json).unwrap());
        }
        prop_assert!(records.iter().eq(read.iter()));
        let enrolled = records.iter().filter(|(_, one)| one.state == EnrolmentState::Enrolled).count();
        prop_assert_eq!((records.enrolled(), read.enrolled()), (enrolled, enrolled));
        for (vm, record) in records.iter() {
            prop_assert_eq!(read.owner_of(record.key_sha256.unwrap(), vm).unwrap().0, vm);
        }
    }
}

#[test]
fn a_record_is_replaced_only_if_it_is_the_expected_one() {
    let mut records = EnrolmentRecords::new(4);
    let (a, b) = (key("ns", "a"), key("ns", "b"));
    records.put(&a, None, record("vm-1", 1)).unwrap();
    assert_eq!(
        records.put(&a, None, record("vm-1", 2)),
        Err(RecordConflict::Changed)
    );
    assert_eq!(
        records.put(&b, None, record("vm-2", 1)),
        Err(RecordConflict::KeyTaken(a.clone()))
    );
    let before = records.get(&a).cloned();
    records.put(&a, before.as_ref(), record("vm-1", 2)).unwrap();
    assert_eq!(
        records.owner_of(fingerprint(1), &b),
        None,
        "the old key is not known any more"
    );
    assert_eq!((records.len(), records.enrolled()), (1, 1));
}

#[test]
fn records_of_vms_that_are_gone_are_removable_once_expired() {
    let mut records = EnrolmentRecords::new(4);
    for (name, not_after) in [("old", 10), ("valid", 1000), ("there", 10)] {
        let mut new = record("vm-1", u8::try_from(name.len()).unwrap());
        new.not_after = not_after;
        records.set(&key("ns", name), Some(new));
    }
    let gone = |vm: &VmKey| vm.name.as_str() != "there";
    assert_eq!(records.removable(100, false, gone), [key("ns", "old")]);
    assert_eq!(records.removable(100, true, gone).len(), 2);
}

#[test]
fn a_broken_document_is_refused_as_a_whole() {
    use super::super::read_shard;
    let good = r#"{"version":1,"records":{"ns/a":{"uid":"u","keySha256":"K","serial":"4a","notAfter":1,"enrolledAt":1}}}"#
        .replace('K', &"0a".repeat(32));
    assert_eq!(
        read_shard(&good).unwrap()[&key("ns", "a")].state,
        EnrolmentState::Enrolled
    );
    for (from, to, problem) in [
        ("ns/a", "nsa", "not <namespace>/<name>"),
        ("ns/a", "NS/a", "not a valid namespace"),
        ("0a0a", "0a", "fingerprint"),
        ("4a", "4g", "serial"),
        ("\"version\":1", "\"version\":2", "version 2"),
        ("{\"uid\"", "{\"extra\":1,\"uid\"", ""),
    ] {
        let broken = good.replacen(from, to, 1);
        match read_shard(&broken) {
            Err(error) => assert!(error.contains(problem), "{error}"),
            // Fields of a later version in a record are ignored.
            Ok(_) => assert!(from.starts_with('{')),
        }
    }
    read_shard("").unwrap_err();
}
