//! Each rule reports its problem, and no healthy state similar to it.

use virtfleet_wire::settings::{Multiqueue, NicSettings};

use super::{
    super::{complete, findings},
    fixtures::{CPUS, disk, found, found_with, healthy, short, state, with_one_cpu},
};
use crate::{
    nic::state::{Pending, QueueStatus},
    virtio::{
        Bus, Channels, DiskKind, Features, Machine, NicKind, Sharing, WriteCache,
        features::{net, transport},
        status,
    },
};

type Change = fn(&mut Machine);

/// Findings after a change to the healthy machine.
fn after(change: Change) -> Vec<String> {
    let mut machine = healthy();
    change(&mut machine);
    short(&found(&machine))
}

pub(super) fn channels(machine: &mut Machine, current: u32, possible: u32) {
    machine.nics[0].channels = Some(Channels { current, possible });
}

#[test]
fn healthy_guest_has_no_findings() {
    assert_eq!(found(&healthy()), []);
    assert_eq!(found_with(&healthy(), &state()), []);
    assert_eq!(found(&Machine::default()), [], "a guest without any data");
}

#[test]
fn each_problem_has_its_finding() {
    let cases: &[(Change, &str)] = &[
        (|m| channels(m, 1, 1), "virtio-nic-single-queue Warning eth0"),
        (|m| channels(m, 1, 4), "virtio-nic-fewer-queues Warning eth0"),
        (|m| channels(m, 4, 8), "virtio-nic-more-queues Info eth0"),
        (
            |m| m.cpus.present = (0..6).collect(),
            "virtio-cpus-offline Warning cpus",
        ),
        (
            |m| m.devices[0].sharing = Sharing::Shared,
            "virtio-shared-vector Warning virtio1",
        ),
        (
            |m| m.devices[1].sharing = Sharing::Intx,
            "virtio-intx Warning virtio2",
        ),
        (
            |m| {
                for vector in &mut m.devices[0].vectors {
                    vector.effective = vec![2];
                }
            },
            "virtio-interrupts-one-cpu Warning virtio1",
        ),
        (
            |m| {
                for vector in &mut m.devices[1].vectors {
                    vector.effective.clear();
                    vector.landed = vec![(0, 99_000), (1, 10)];
                }
            },
            "virtio-interrupts-one-cpu Warning virtio2",
        ),
        (
            |m| m.devices[0].negotiated = m.devices[0].negotiated.without(net::HOST_TSO4),
            "virtio-features-missing Warning virtio1",
        ),
        (
            |m| m.devices[1].negotiated = m.devices[1].negotiated.without(transport::EVENT_IDX),
            "virtio-features-missing Info virtio2",
        ),
        (
            |m| m.disks[0].write_cache = Some(WriteCache::Through),
            "virtio-disk-write-through Warning vda",
        ),
        (
            |m| m.disks[0].queues.truncate(1),
            "virtio-disk-fewer-queues Warning vda",
        ),
        (
            |m| m.disks[0].queues.truncate(3),
            "virtio-disk-fewer-queues Info vda",
        ),
        (
            |m| m.disks[0].queues.resize(8, crate::virtio::DiskQueue::default()),
            "virtio-disk-more-queues Info vda",
        ),
        (
            |m| m.devices[0].status = Some(15 | status::DEVICE_NEEDS_RESET),
            "virtio-device-needs-reset Critical virtio1",
        ),
        (
            |m| m.devices[2].status = Some(status::FAILED),
            "virtio-device-failed Warning virtio3",
        ),
        (|m| m.devices[1].driver = None, "virtio-no-driver Warning virtio2"),
        (|m| m.devices[2].driver = None, "virtio-no-driver Info virtio3"),
        (
            |m| m.vectors.used = 640,
            "virtio-vectors-near-limit Warning interrupts",
        ),
        (
            |m| m.nics[0].kind = NicKind::Emulated,
            "virtio-nic-emulated Warning eth0",
        ),
        (
            |m| m.disks[0].kind = DiskKind::Emulated,
            "virtio-disk-emulated Warning vda",
        ),
        (|m| m.nics[0].mtu = 1500, "virtio-nic-mtu Warning eth0"),
        (|m| m.nics[0].mtu = 1400, "virtio-nic-mtu Info eth0"),
        (
            |m| m.nics[0].queues[5].counters.timeouts = Some(3),
            "virtio-nic-timeouts Info eth0",
        ),
    ];
    let listed = include_str!("../../../../../../docs/findings.md");
    for (change, expected) in cases {
        assert_eq!(after(*change), [*expected]);
        let id = expected.split(' ').next().unwrap_or_default();
        assert!(
            listed.contains(&format!("`{id}`")),
            "{id} is not in docs/findings.md"
        );
    }
}

#[test]
fn similar_healthy_states_have_no_findings() {
    let cases: &[(&str, Change)] = &[
        ("queues for vCPUs that can be brought online", |m| {
            m.cpus.online = vec![0, 1, 2, 3];
            channels(m, 4, 4);
        }),
        ("a driver that does not tell of channels", |m| {
            m.nics[0].channels = None;
        }),
        ("an interface of hardware", |m| {
            m.nics[0].kind = NicKind::Function;
            channels(m, 1, 1);
        }),
        ("memory-mapped devices have one interrupt", |m| {
            m.devices[0].bus = Bus::Mmio;
            m.devices[0].sharing = Sharing::Intx;
        }),
        ("too few interrupts to tell", |m| {
            for vector in &mut m.devices[0].vectors {
                vector.effective = vec![2];
                vector.landed = vec![(2, 1000)];
            }
        }),
        ("interrupts on two CPUs", |m| {
            for (cpu, vector) in (0..).zip(&mut m.devices[0].vectors) {
                vector.effective = vec![cpu % 2];
                vector.landed = vec![(0, 1_000_000)];
            }
        }),
        ("features before the driver is done", |m| {
            m.devices[0].negotiated = Features::default();
            m.devices[0].status = Some(3);
        }),
        ("a console needs neither", |m| {
            m.devices[3].negotiated = Features::of([32]);
        }),
        ("a disk that is only read", |m| {
            m.disks[0].write_cache = Some(WriteCache::Through);
            m.disks[0].read_only = true;
            m.disks[0].queues.truncate(1);
        }),
        ("a disk of settings", |m| {
            m.disks[0].write_cache = Some(WriteCache::Through);
            m.disks[0].queues.truncate(1);
            m.disks[0].bytes = 1 << 20;
        }),
        ("a CD on SATA", |m| {
            m.disks[0].name = "sr0".into();
            m.disks[0].kind = DiskKind::Emulated;
        }),
        ("NVMe without a cache", |m| {
            m.disks[0].kind = DiskKind::Nvme;
            m.disks[0].write_cache = Some(WriteCache::Through);
            m.disks[0].queues.truncate(1);
        }),
        ("a vector below the limit", |m| m.vectors.used = 639),
        ("no limit that is known", |m| {
            m.vectors.used = 5000;
            m.vectors.limit = None;
        }),
        ("an MTU that was not configured", |m| {
            m.nics[0].mtu = 9000;
            m.nics[0].dhcp_mtu = None;
        }),
        ("no random numbers but the CPUs'", |m| drop(m.devices.remove(2))),
        ("SMT that is switched off", |m| {
            m.cpus.present = (0..8).collect();
            m.cpus.smt = Some("off".into());
        }),
        ("interrupts that came to a CPU that has gone", |m| {
            for vector in &mut m.devices[1].vectors {
                vector.effective.clear();
                vector.landed.push((7, 1 << 40));
            }
        }),
        ("a disk of settings may share, and lack", |m| {
            m.disks[0].bytes = 1 << 20;
            m.devices[1].sharing = Sharing::Shared;
            m.devices[1].negotiated = m.devices[1].negotiated.without(transport::EVENT_IDX);
        }),
        ("a line for a disk that is only read", |m| {
            m.disks[0].read_only = true;
            m.devices[1].sharing = Sharing::Intx;
        }),
        ("status that cannot be read", |m| m.devices[0].status = None),
    ];
    for (what, change) in cases {
        assert_eq!(after(*change), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn one_vcpu_needs_one_queue() {
    let mut machine = with_one_cpu(healthy());
    channels(&mut machine, 1, 1);
    machine.disks[0].queues.truncate(1);
    for vector in &mut machine.devices[0].vectors {
        vector.effective = vec![0];
        vector.landed = vec![(0, 50_000)];
    }
    machine.nics[0].queues[0].counters.packets = Some(1 << 40);
    assert_eq!(found(&machine), []);
    channels(&mut machine, 1, 8);
    machine.disks[0]
        .queues
        .resize(8, crate::virtio::DiskQueue::default());
    assert_eq!(found(&machine), [], "surplus queues do not matter, either");
}

#[test]
fn findings_have_remedy_and_evidence() {
    let mut machine = healthy();
    channels(&mut machine, 1, 1);
    let one = &found(&machine)[0];
    assert!(one.remedy.contains("networkInterfaceMultiqueue: true"), "{one:?}");
    assert_eq!(
        (
            &*one.evidence["queues"],
            &*one.evidence["cpus"],
            &*one.evidence["device"]
        ),
        ("1", "4", "virtio1")
    );
    channels(&mut machine, 2, 4);
    let one = &found(&machine)[0];
    assert_eq!(one.message, "eth0 uses 2 of 4 queues");
    assert_eq!(
        one.remedy,
        "sudo virtfleet-agent apply nic, or set nic.multiqueue: auto"
    );
}

#[test]
fn outdated_and_manually_reduced_queues_are_distinguished() {
    let mut machine = healthy();
    channels(&mut machine, 2, 4);
    let mut state = state();
    let set = |state: &mut crate::nic::state::NicState, first, first_cpus, ours| {
        let one = state.nics.get_mut("eth0").unwrap();
        (one.first, one.first_cpus, one.ours) = (first, first_cpus, ours);
    };
    let left = ["virtio-nic-queues-left-behind Warning eth0"];
    let fewer = ["virtio-nic-fewer-queues Warning eth0"];
    for (first, cpus, ours, expected, what) in [
        (2, 2, None, left, "as the kernel set it up for two vCPUs"),
        (1, 1, Some(2), left, "as the agent set it for two vCPUs"),
        (2, 4, None, fewer, "already so when there were four"),
        (4, 4, None, fewer, "taken away since"),
    ] {
        set(&mut state, first, cpus, ours);
        assert_eq!(short(&found_with(&machine, &state)), expected, "{what}");
    }
    set(&mut state, 2, 2, None);
    state.nics.get_mut("eth0").unwrap().mac = "another".into();
    assert_eq!(
        short(&found_with(&machine, &state)),
        fewer,
        "the state of another interface"
    );
}

#[test]
fn excluded_interfaces_have_no_queue_findings() {
    let mut machine = healthy();
    channels(&mut machine, 1, 4);
    let of = |settings: NicSettings| short(&findings(&machine, None, &settings));
    let settings = |exclude: &str, multiqueue| NicSettings {
        exclude: exclude.into(),
        multiqueue,
        ..NicSettings::default()
    };
    assert_eq!(of(settings("^eth0$", Multiqueue::Auto)), Vec::<String>::new());
    assert_eq!(of(settings("", Multiqueue::Off)), Vec::<String>::new());
    assert_eq!(of(settings("^eth1$", Multiqueue::Auto)).len(), 1);
    assert_eq!(of(settings("(", Multiqueue::Auto)).len(), 1, "an invalid pattern");
    let mut state = state();
    let standing = |state: &mut crate::nic::state::NicState, standing| {
        state.nics.get_mut("eth0").unwrap().standing = standing;
    };
    standing(&mut state, QueueStatus::Excluded);
    assert_eq!(found_with(&machine, &state), []);
    standing(&mut state, QueueStatus::Manual);
    assert_eq!(
        short(&found_with(&machine, &state)),
        ["virtio-nic-fewer-queues Info eth0"]
    );
}

#[test]
fn reverted_and_refused_changes_are_reported() {
    let mut machine = healthy();
    channels(&mut machine, 1, 4);
    let mut state = state();
    let one = state.nics.get_mut("eth0").unwrap();
    one.standing = QueueStatus::RolledBack;
    one.because = "no carrier for 10 s".into();
    state.refusals = vec!["eth1: busy".into(), "eth2: busy".into()];
    state.error = Some("no ethtool".into());
    let all = found_with(&machine, &state);
    assert_eq!(
        short(&all),
        [
            "virtio-nic-rolled-back Warning eth0",
            "virtio-nic-pass-failed Warning *",
            "virtio-nic-refused Warning *"
        ]
    );
    assert_eq!(all[0].evidence["because"], "no carrier for 10 s");
    assert_eq!(all[2].message, "eth1: busy; and 1 more");
}

#[test]
fn broken_link_is_critical() {
    let mut machine = healthy();
    channels(&mut machine, 2, 4);
    let mut state = state();
    let one = state.nics.get_mut("eth0").unwrap();
    one.standing = QueueStatus::RolledBack;
    one.because = "with 2 queues no carrier; with 1 again busy".into();
    one.pending = Some(Pending {
        from: 1,
        to: 2,
        broke: Some("no carrier".into()),
        ..Pending::default()
    });
    let all = found_with(&machine, &state);
    assert_eq!(short(&all), ["virtio-nic-rolled-back Critical eth0"]);
    assert_eq!(all[0].reason, "NotPutBack");
    assert!(all[0].message.ends_with("with 1 again busy"), "{all:?}");
    assert!(!all[0].message.contains("has 2 queues again"), "{all:?}");
    assert!(all[0].remedy.starts_with("ip -d link show eth0"), "{all:?}");
}

#[test]
fn remedy_for_refused_queues_is_another_command() {
    let mut machine = healthy();
    channels(&mut machine, 2, 4);
    let mut state = state();
    let one = state.nics.get_mut("eth0").unwrap();
    one.first_cpus = 2;
    one.standing = QueueStatus::Differs;
    one.because = "the driver refuses 4 queues".into();
    one.refused = [4].into();
    let all = found_with(&machine, &state);
    assert_eq!(short(&all), ["virtio-nic-fewer-queues Warning eth0"]);
    assert_eq!(all[0].reason, "Refused");
    assert!(all[0].remedy.contains("XDP"), "{all:?}");
    state.nics.get_mut("eth0").unwrap().refused = [3].into();
    let other = found_with(&machine, &state);
    assert_eq!(other[0].reason, "FewerQueues");
}

#[test]
fn refused_and_not_offered_features_are_distinguished() {
    let mut machine = healthy();
    let device = &mut machine.devices[0];
    device.negotiated = device.negotiated.without(net::CSUM).without(transport::EVENT_IDX);
    let unknown = found(&machine).remove(0);
    assert_eq!(unknown.reason, "FeaturesMissing");
    assert_eq!(unknown.evidence["missing"], "EVENT_IDX CSUM");
    assert!(
        unknown.remedy.starts_with("sudo virtfleet-agent virtio"),
        "{unknown:?}"
    );
    let mut state = state();
    let offered = machine.devices[0].negotiated.with(net::CSUM);
    state.offered.insert("virtio1".into(), offered);
    complete(&mut machine, &state);
    let known = found(&machine).remove(0);
    assert_eq!(known.reason, "FeaturesRefused");
    assert_eq!(
        (&*known.evidence["refused"], &*known.evidence["notOffered"]),
        ("CSUM", "EVENT_IDX")
    );
    assert!(known.remedy.contains("parameters"), "{known:?}");
    machine.devices[0].offered = Some(machine.devices[0].negotiated);
    let absent = found(&machine).remove(0);
    assert!(
        absent.remedy.starts_with("the hypervisor does not offer"),
        "{absent:?}"
    );
}

#[test]
fn data_of_root_completes_the_machine() {
    let mut machine = healthy();
    let mut state = state();
    state.dhcp_mtu.insert("eth0".into(), 9000);
    complete(&mut machine, &state);
    assert_eq!(machine.nics[0].dhcp_mtu, Some(1450), "existing data is kept");
    machine.nics[0].dhcp_mtu = None;
    machine.nics[0].mac = "another".into();
    complete(&mut machine, &state);
    assert_eq!(machine.nics[0].dhcp_mtu, None, "another interface with this name");
    machine.nics[0].mac = "02:00:00:00:00:01".into();
    complete(&mut machine, &state);
    assert_eq!(machine.nics[0].dhcp_mtu, Some(9000));
}

#[test]
fn disks_of_one_controller_share_a_finding() {
    let mut machine = healthy();
    for name in ["sda", "sdb"] {
        let mut one = disk(name, "virtio5");
        one.kind = DiskKind::VirtioScsi;
        one.queues.truncate(1);
        machine.disks.push(one);
    }
    let all = found(&machine);
    assert_eq!(short(&all), ["virtio-disk-fewer-queues Warning sda"]);
    assert_eq!(
        all[0].message,
        format!("sda, sdb has 1 queue for {CPUS} vCPUs: all vCPUs share one request queue")
    );
}
