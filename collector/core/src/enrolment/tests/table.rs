//! One case for each rule.

use super::{
    super::{EnrolmentDecision, EnrolmentReason, EnrolmentState, VmProof, identity_uid},
    Case, UUID, fingerprint, mac, record, target, uid,
};
use virtfleet_wire::{enrolment::EnrolmentEvidence, ids::MacAddr};

use crate::{
    expected::ExpectedIdentity,
    store::tests::key,
    way::{AgentWay, RelayWay},
};
use EnrolmentDecision::{Refuse, ReplaceKey, Sign};
use EnrolmentReason::{
    AddressShared, HostnameDiffers, KeyNotOfConnection, KeyOfAnotherVm, MacDiffers, NamesDiffer, NoUid,
    NonceDiffers, NotDialled, NotProved, Revoked, SecondKey, UuidDiffers,
};

/// A named change of the honest case, and what is decided then.
type Row = (&'static str, fn(&mut Case), EnrolmentDecision);

fn check(rows: Vec<Row>) {
    for (what, change, expected) in rows {
        let mut case = Case::honest();
        change(&mut case);
        assert_eq!(case.decide(), expected, "{what}");
    }
}

#[test]
fn an_honest_vm_gets_a_certificate() {
    check(vec![
        ("first key", |_| {}, Sign(uid("vm-1"))),
        (
            "without VirtualMachine",
            |case| {
                case.dialled.vm_uid = None;
                case.subject.as_mut().unwrap().target.vm_uid = None;
            },
            Sign(uid("vmi-1")),
        ),
        (
            "renewal with the recorded key",
            |case| {
                case.record = Some(record("vm-1", 1));
                case.key_owner = Some((key("ns", "a"), uid("vm-1")));
            },
            Sign(uid("vm-1")),
        ),
        (
            "recorded under the UID of the VMI before the VirtualMachine was known",
            |case| {
                case.record = Some(record("vmi-1", 1));
                case.key_owner = Some((key("ns", "a"), uid("vmi-1")));
            },
            Sign(uid("vmi-1")),
        ),
        (
            "another key after a reset",
            |case| {
                let mut old = record("vm-1", 9);
                old.state = EnrolmentState::Reset;
                case.record = Some(old);
            },
            Sign(uid("vm-1")),
        ),
        (
            "another key of a VM that was created again",
            |case| case.record = Some(record("vm-0", 9)),
            Sign(uid("vm-1")),
        ),
        (
            "a new VM of the name of a revoked one",
            |case| {
                let mut old = record("vm-0", 9);
                old.state = EnrolmentState::Revoked;
                case.record = Some(old);
            },
            Sign(uid("vm-1")),
        ),
        (
            "no names in the CSR",
            |case| case.names.clear(),
            Sign(uid("vm-1")),
        ),
        (
            "no evidence at all, and the recorded key",
            |case| {
                case.evidence = EnrolmentEvidence::default();
                case.record = Some(record("vm-1", 1));
                case.key_owner = Some((key("ns", "a"), uid("vm-1")));
            },
            Sign(uid("vm-1")),
        ),
        (
            "a kernel without a host name yet",
            |case| case.evidence.hostname = Some("(none)".to_owned()),
            Sign(uid("vm-1")),
        ),
        (
            "a placeholder as SMBIOS UUID, and all MAC addresses",
            |case| {
                case.evidence.smbios_uuid = Some("0".repeat(32).parse().unwrap());
                case.evidence.macs = vec![mac(1), mac(2)];
            },
            Sign(uid("vm-1")),
        ),
        (
            "a UUID that another VM has, too, and the MAC addresses that it has not",
            |case| {
                case.others_like = vec![other(&[mac(3)])];
                case.evidence.macs = vec![mac(1), mac(2)];
            },
            Sign(uid("vm-1")),
        ),
        (
            "a VMI whose MAC addresses only the guest agent reports",
            |case| case.subject.as_mut().unwrap().expected.macs.clear(),
            Sign(uid("vm-1")),
        ),
    ]);
}

#[test]
fn what_contradicts_the_vmi_is_refused() {
    check(vec![
        (
            "SMBIOS UUID",
            |case| case.evidence.smbios_uuid = Some("1".repeat(32).parse().unwrap()),
            Refuse(UuidDiffers),
        ),
        (
            "MAC",
            |case| case.evidence.macs = vec![mac(9)],
            Refuse(MacDiffers),
        ),
        (
            "host name",
            |case| case.evidence.hostname = Some("b".to_owned()),
            Refuse(HostnameDiffers),
        ),
    ]);
}

/// What the guest of another VM with the UUID must show.
fn other(macs: &[MacAddr]) -> ExpectedIdentity {
    ExpectedIdentity {
        uuid: Some(UUID.parse().unwrap()),
        hostname: "b".to_owned(),
        macs: macs.iter().copied().collect(),
    }
}

#[test]
fn the_first_key_needs_positive_evidence() {
    check(vec![
        (
            "no evidence at all",
            |case| case.evidence = EnrolmentEvidence::default(),
            Refuse(NotProved),
        ),
        (
            "a host name, which every guest chooses, and some MAC addresses",
            |case| case.evidence.smbios_uuid = None,
            Refuse(NotProved),
        ),
        (
            "a UUID that another VM has, too, and not all MAC addresses",
            |case| case.others_like = vec![other(&[mac(3)])],
            Refuse(NotProved),
        ),
        (
            "UUID and MAC addresses of another VM, too",
            |case| {
                case.others_like = vec![other(&[mac(1)])];
                case.evidence.macs = vec![mac(1), mac(2)];
            },
            Refuse(NotProved),
        ),
        (
            "the UUID of another VM, where the VMI of this one has none",
            |case| {
                case.subject.as_mut().unwrap().expected.uuid = None;
                case.others_like = vec![other(&[mac(3)])];
                case.evidence.macs = vec![mac(1), mac(2)];
            },
            Refuse(NotProved),
        ),
        (
            "no UUID, and the MAC addresses of another VM, too",
            |case| {
                case.evidence.smbios_uuid = None;
                case.evidence.macs = vec![mac(1), mac(2)];
                case.others_like = vec![other(&[mac(1)])];
            },
            Refuse(NotProved),
        ),
        (
            "a VMI without UUID, and all MAC addresses",
            |case| {
                case.subject.as_mut().unwrap().expected.uuid = None;
                case.evidence.macs = vec![mac(1), mac(2)];
            },
            Sign(uid("vm-1")),
        ),
    ]);
}

#[test]
fn an_address_that_others_can_use_needs_what_only_root_reads() {
    let relay = AgentWay::Relay(RelayWay {
        cluster: "c".parse().unwrap(),
        address: "relay:1".parse().unwrap(),
        allow: [].into(),
        pull_interval: None,
    });
    let push = AgentWay::Push {
        peer: "10.0.0.1:9".parse().unwrap(),
    };
    let hashed = "5d307ca9-b3ef-528c-8861-06e72d69f223";
    for way in [relay, push] {
        let decide = |change: fn(&mut Case)| {
            let mut case = Case::honest();
            case.evidence.macs = vec![mac(1), mac(2)];
            case.dialled.way = way.clone();
            case.subject.as_mut().unwrap().target.way = way.clone();
            change(&mut case);
            case.decide()
        };
        assert_eq!(decide(|_| {}), Sign(uid("vm-1")), "the UUID");
        let only_macs = decide(|case| case.evidence.smbios_uuid = None);
        assert_eq!(
            only_macs,
            Refuse(NotProved),
            "every process reads the MAC addresses"
        );
        let hash = |case: &mut Case| {
            case.evidence.smbios_uuid = hashed.parse().ok();
            case.subject.as_mut().unwrap().expected.uuid = hashed.parse().ok();
        };
        let mut case = Case::honest();
        hash(&mut case);
        assert_eq!(case.decide(), Sign(uid("vm-1")), "a dialled port is root's");
        case.dialled.way = way.clone();
        case.subject.as_mut().unwrap().target.way = way.clone();
        assert_eq!(
            case.decide(),
            Refuse(NotProved),
            "everyone can compute it from the name"
        );
        case.proof = VmProof::Shown;
        assert_eq!(case.decide(), Sign(uid("vm-1")), "a node proof or join token");
    }
}

#[test]
fn a_csr_that_is_not_for_this_exchange_is_refused() {
    check(vec![
        ("no nonce", |case| case.challenge = None, Refuse(NonceDiffers)),
        (
            "an old nonce",
            |case| case.challenge = Some("07".repeat(31) + "08"),
            Refuse(NonceDiffers),
        ),
        (
            "the key of another connection",
            |case| case.connection_key = fingerprint(2),
            Refuse(KeyNotOfConnection),
        ),
        (
            "another VM's name",
            |case| case.names.push("spiffe://d/vmi/ns/b/vm-2".to_owned()),
            Refuse(NamesDiffer),
        ),
        (
            "the collector's name",
            |case| case.names = vec!["spiffe://d/collector".to_owned()],
            Refuse(NamesDiffer),
        ),
    ]);
}

#[test]
fn a_vm_that_is_gone_replaced_or_ambiguous_is_refused() {
    check(vec![
        ("deleted", |case| case.subject = None, Refuse(NotDialled)),
        (
            "created again since it was dialled",
            |case| case.subject.as_mut().unwrap().target.vm_uid = Some(uid("vm-2")),
            Refuse(NotDialled),
        ),
        (
            "has another address now",
            |case| case.subject.as_mut().unwrap().target.address = "10.0.0.2:10911".parse().unwrap(),
            Refuse(NotDialled),
        ),
        (
            "no UID",
            |case| {
                for target in [&mut case.dialled, &mut case.subject.as_mut().unwrap().target] {
                    (target.uid, target.vm_uid) = (None, None);
                }
            },
            Refuse(NoUid),
        ),
        (
            "two VMs at one address",
            |case| case.subject.as_mut().unwrap().sharers = vec![key("ns", "b")],
            Refuse(AddressShared),
        ),
    ]);
}

#[test]
fn one_key_belongs_to_one_incarnation() {
    check(vec![
        (
            "a second key",
            |case| case.record = Some(record("vm-1", 9)),
            Refuse(SecondKey),
        ),
        (
            "a second key after a restart of the VM",
            |case| case.record = Some(record("vmi-1", 9)),
            Refuse(SecondKey),
        ),
        (
            "the key of another VM",
            |case| case.key_owner = Some((key("ns", "b"), uid("vm-9"))),
            Refuse(KeyOfAnotherVm),
        ),
        (
            "the key of an earlier incarnation",
            |case| {
                case.record = Some(record("vm-0", 1));
                case.key_owner = Some((key("ns", "a"), uid("vm-0")));
            },
            ReplaceKey,
        ),
        (
            "the key of an earlier incarnation, and no evidence",
            |case| {
                case.record = Some(record("vm-0", 1));
                case.key_owner = Some((key("ns", "a"), uid("vm-0")));
                case.evidence = EnrolmentEvidence::default();
            },
            Refuse(NotProved),
        ),
        (
            "still the key of an earlier incarnation",
            |case| {
                case.key_owner = Some((key("ns", "a"), uid("vm-0")));
                case.asked_to_replace = true;
            },
            Refuse(KeyOfAnotherVm),
        ),
        (
            "revoked",
            |case| {
                let mut revoked = record("vm-1", 1);
                revoked.state = EnrolmentState::Revoked;
                case.record = Some(revoked);
            },
            Refuse(Revoked),
        ),
    ]);
}

#[test]
fn nothing_is_sent_to_a_vm_that_cannot_get_a_certificate() {
    let mut case = Case::honest();
    let mut revoked = record("vm-1", 1);
    revoked.state = EnrolmentState::Revoked;
    case.record = Some(revoked);
    let uid = |case: &Case| identity_uid(&target(), case.subject.as_ref(), case.record.as_ref());
    assert_eq!(uid(&case), Err(Revoked));
    case.record = None;
    assert_eq!(uid(&case).unwrap().as_str(), "vm-1");
    case.subject = None;
    assert_eq!(uid(&case), Err(NotDialled));
}
