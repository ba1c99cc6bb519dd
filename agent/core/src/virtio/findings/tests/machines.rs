//! Large machines: few findings, most severe first.

use virtfleet_wire::finding::Severity;

use super::{
    super::{MAX_FINDINGS, ranges},
    fixtures::{disk, found, healthy, nic, short},
};
use crate::virtio::{Channels, status};

#[test]
fn many_of_one_kind_are_summed_up() {
    let mut machine = healthy();
    machine.nics = (0..64)
        .map(|number| {
            let mut one = nic(&format!("eth{number}"), &format!("virtio{}", 100 + number));
            one.channels = Some(Channels {
                current: 1,
                possible: 1,
            });
            one
        })
        .collect();
    machine.devices[0].status = Some(status::DEVICE_NEEDS_RESET);
    let all = found(&machine);
    assert_eq!(all.len(), 1 + 8 + 1, "{:?}", short(&all));
    assert_eq!(all[0].severity, Severity::Critical);
    let sum = all.last().unwrap();
    assert_eq!(sum.subject.name, "(more)");
    assert_eq!(sum.evidence["more"], "56");
    assert!(
        sum.message.starts_with("also affected: 56 more: eth8, eth9,"),
        "{}",
        sum.message
    );
    assert!(sum.remedy.contains("networkInterfaceMultiqueue"));
}

#[test]
fn nine_findings_are_reported_individually() {
    let mut machine = healthy();
    machine.disks = (0..9)
        .map(|number| {
            let mut one = disk(&format!("vd{number}"), "virtio2");
            one.queues.truncate(1);
            one
        })
        .collect();
    let all = found(&machine);
    assert_eq!(all.len(), 9);
    assert!(all.iter().all(|one| one.subject.name != "(more)"));
    assert!(all.len() <= MAX_FINDINGS);
}

#[test]
fn cpus_are_listed_as_linux_does() {
    assert_eq!(ranges(&[]), "none");
    assert_eq!(ranges(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
    assert_eq!(ranges(&[u32::MAX, 0]), "4294967295,0");
}
