//! Scope and expiry of approvals.

use super::{plain::*, *};
use crate::disks::{
    WriteCounters, WriteMark,
    journal::{Approval, Evidence, Journal},
    probe::{Content, Probe},
};

/// Write counters of a boot; the seventh number in `stat` is the written sectors.
fn mark(boot: &str, written: u64) -> WriteMark {
    WriteMark {
        boot_id: boot.into(),
        diskseq: Some(2),
        counters: WriteCounters::parse(&format!("1 2 3 4 5 6 {written} 8 9 10 11")),
    }
}

/// Unknown data.
fn bytes(whole: bool, writes: WriteMark) -> Probe {
    Probe::HasData(Content {
        digest: "d1".into(),
        first_byte: Some(7),
        whole,
        writes,
        ..Content::default()
    })
}

fn with_approval(probe: Probe, approval: Approval) -> DiskPlan {
    let disk = disk();
    let seen = seen(std::slice::from_ref(&disk), vec![vdb()], vec![("data", probe)]);
    let journal = Journal {
        approvals: vec![approval],
        ..journal(vec![])
    };
    one(&disk, &seen, &journal)
}

/// Approval of the resulting refusal.
fn approval(probe: Probe) -> Approval {
    let plan = planned(&disk(), probe, vec![]);
    let refusal = &plan.refusals[0];
    assert_ne!(refusal.evidence, "", "{refusal:?}");
    Approval {
        name: "data".into(),
        hash: refusal.evidence.clone(),
        facts: refusal.facts.clone(),
        ..Approval::default()
    }
}

#[test]
fn approval_of_partly_read_disk_is_voided_by_writes_and_reboot() {
    let then = mark("boot-2", 7);
    let given = approval(bytes(false, then.clone()));
    let plan = with_approval(bytes(false, then), given.clone());
    assert_eq!(words(&plan), MAKE, "{plan:?}");
    let detached = WriteMark {
        diskseq: Some(3),
        ..mark("boot-2", 7)
    };
    for (now, word) in [
        (mark("boot-2", 8), "sectorsWritten was 7 and is 8"),
        (mark("boot-3", 7), "bootId was boot-2 and is boot-3"),
        (detached, "diskseq was 2 and is 3"),
    ] {
        let plan = with_approval(bytes(false, now), given.clone());
        assert_eq!(words(&plan), NONE);
        let message = &plan.refusals[0].message;
        assert!(
            message.contains("to another state of the disk") && message.contains(word),
            "{message}"
        );
    }
}

#[test]
fn approval_of_fully_read_disk_depends_only_on_content() {
    let given = approval(bytes(true, mark("boot-2", 7)));
    for now in [mark("boot-3", 9), WriteMark::default()] {
        let plan = with_approval(bytes(true, now), given.clone());
        assert_eq!(words(&plan), MAKE, "{plan:?}");
    }
    let Probe::HasData(content) = bytes(true, WriteMark::default()) else {
        panic!("data");
    };
    let other = Probe::HasData(Content {
        digest: "d2".into(),
        ..content
    });
    let plan = with_approval(other, given);
    assert_eq!(words(&plan), NONE);
    assert!(
        plan.refusals[0].message.contains("digest was d1 and is d2"),
        "{plan:?}"
    );
}

#[test]
fn partly_read_disk_without_counters_cannot_be_approved() {
    let plan = planned(&disk(), bytes(false, WriteMark::default()), vec![]);
    let refusal = &plan.refusals[0];
    assert_eq!(refusal.evidence, "");
    assert!(refusal.remedy.contains("proof: full"), "{}", refusal.remedy);
    // An empty hash does not approve it either.
    let empty = Approval {
        name: "data".into(),
        ..Approval::default()
    };
    assert_eq!(
        words(&with_approval(bytes(false, WriteMark::default()), empty)),
        NONE
    );
}

#[test]
fn approval_evidence_is_passed_to_the_second_probe() {
    let then = mark("boot-2", 7);
    let plan = with_approval(bytes(false, then.clone()), approval(bytes(false, then.clone())));
    let evidence = plan.steps.iter().find_map(|step| match step {
        DiskStep::Format(intent) => Some(intent.evidence.clone()),
        _ => None,
    });
    let Some(Evidence::Approved { digest, writes, .. }) = evidence else {
        panic!("{plan:?}")
    };
    assert_eq!((digest.as_deref(), writes), (Some("d1"), then));
}
