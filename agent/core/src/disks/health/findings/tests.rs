use super::*;
use crate::disks::health::DiskSample;

fn disk(look: DiskSample, space_full_in_s: Option<f64>, inodes_full_in_s: Option<f64>) -> DiskState {
    DiskState {
        name: "data".into(),
        device: "vdb".into(),
        filesystem: "ext4".into(),
        mount_point: "/srv/data".into(),
        health: Some(Health {
            look,
            points: Vec::new(),
            space_full_in_s,
            inodes_full_in_s,
        }),
        ..DiskState::default()
    }
}

fn used(percent: u64) -> Usage {
    Usage {
        used: percent * 10,
        available: (100 - percent) * 10,
    }
}

/// Id and severity of each finding.
fn found(disk: &DiskState) -> Vec<(String, Severity)> {
    let found = findings(disk);
    assert!(found.iter().all(|finding| !finding.remedy.is_empty()));
    found
        .into_iter()
        .map(|finding| (finding.id, finding.severity))
        .collect()
}

#[test]
fn healthy_disk_has_no_findings() {
    assert_eq!(findings(&DiskState::default()), []);
    let look = DiskSample {
        answer: StatfsResult::Yes,
        space: Some(used(95)),
        inodes: Some(used(10)),
        errors: [("error".to_owned(), 0), ("warning".to_owned(), 7)].into(),
        io_errors: Some(9),
        ..DiskSample::default()
    };
    assert_eq!(found(&disk(look, None, None)), []);
}

#[test]
fn usage_findings_depend_on_percentage_and_trend() {
    use Severity::{Critical, Warning};
    for (percent, hours, severity) in [
        (60, Some(30.0), None),
        (60, Some(24.0), Some(Warning)),
        (60, Some(4.1), Some(Warning)),
        (60, Some(4.0), Some(Critical)),
        (96, None, Some(Critical)),
        (96, Some(23.0), Some(Critical)),
        (100, Some(0.0), Some(Critical)),
        // A node that pulls its images.
        (30, Some(2.0), None),
    ] {
        let seconds = hours.map(|hours| hours * 3600.0);
        let of = |id: &str| severity.map(|severity| (id.to_owned(), severity));
        let look = DiskSample {
            space: Some(used(percent)),
            ..DiskSample::default()
        };
        let space = found(&disk(look, seconds, None));
        assert_eq!(space, Vec::from_iter(of("disk-space")), "{percent} {hours:?}");
        let look = DiskSample {
            inodes: Some(used(percent)),
            ..DiskSample::default()
        };
        let inodes = found(&disk(look, None, seconds));
        assert_eq!(inodes, Vec::from_iter(of("disk-inodes")), "{percent} {hours:?}");
    }
    let look = DiskSample {
        space: Some(used(60)),
        ..DiskSample::default()
    };
    let said = findings(&disk(look, Some(7200.0), None)).remove(0);
    assert_eq!(
        said.message,
        "/srv/data is 60.0 % full: 600 of 1000 bytes are used, and full in 2.0 hours at the rate of the last hours"
    );
    assert_eq!(
        (said.reason.as_str(), said.evidence["fullInHours"].as_str()),
        ("SpaceFillsUp", "2.0")
    );
}

#[test]
fn full_swap_is_a_warning_without_trend() {
    let swap = |percent, seconds| {
        let look = DiskSample {
            space: Some(used(percent)),
            ..DiskSample::default()
        };
        let mut disk = disk(look, seconds, None);
        disk.mount_point.clear();
        found(&disk)
    };
    assert_eq!(swap(80, Some(60.0)), []);
    assert_eq!(
        swap(99, Some(60.0)),
        [("disk-space".to_owned(), Severity::Warning)]
    );
}

#[test]
fn errors_and_hangs_are_reported() {
    for (answer, expected) in [
        (StatfsResult::Silent, Some("Hangs")),
        (StatfsResult::Error("Input/output error".into()), Some("Fails")),
        (StatfsResult::Unknown, None),
    ] {
        let look = DiskSample {
            answer,
            ..DiskSample::default()
        };
        let said = findings(&disk(look, None, None));
        assert_eq!(said.first().map(|finding| finding.reason.as_str()), expected);
    }
    let look = DiskSample {
        errors: [("error".to_owned(), 3), ("warning".to_owned(), 1)].into(),
        last_error_s: Some(1_700_000_000),
        last_error_in: Some("ext4_lookup".into()),
        block: "dm-0".into(),
        ..DiskSample::default()
    };
    let said = findings(&disk(look, None, None)).remove(0);
    assert_eq!(
        (said.id.as_str(), said.severity),
        ("disk-filesystem-errors", Severity::Warning)
    );
    assert!(
        said.message.contains("3 errors") && said.remedy.contains("e2fsck -f /dev/dm-0"),
        "{said:?}"
    );
    assert_eq!(said.evidence["lastErrorIn"], "ext4_lookup");
}

#[test]
fn rejected_writes_are_critical() {
    let look = DiskSample {
        read_only: Some(true),
        write_error: Some("Read-only file system".into()),
        errors: [("error".to_owned(), 1)].into(),
        ..DiskSample::default()
    };
    let said = findings(&disk(look, None, None));
    let ids: Vec<_> = said
        .iter()
        .map(|finding| (finding.id.as_str(), finding.severity))
        .collect();
    assert_eq!(
        ids,
        [
            ("disk-read-only", Severity::Critical),
            ("disk-filesystem-errors", Severity::Warning)
        ]
    );
    assert_eq!(
        (said[0].reason.as_str(), said[0].evidence["error"].as_str()),
        ("WritesRejected", "Read-only file system")
    );
    assert!(
        said[0].message.starts_with("/srv/data rejects writes"),
        "{}",
        said[0].message
    );
    // The plan reports what the mount options say.
    let look = DiskSample {
        read_only: Some(true),
        ..DiskSample::default()
    };
    assert_eq!(found(&disk(look, None, None)), []);
}

#[test]
fn device_errors_count_within_the_window() {
    let with = |from: (u64, u64), to: (u64, u64)| {
        let point = |(errors, timeouts): (u64, u64)| Point {
            io_errors: Some(errors),
            io_timeouts: Some(timeouts),
            ..Point::default()
        };
        let mut disk = disk(DiskSample::default(), None, None);
        if let Some(health) = &mut disk.health {
            health.points = vec![Point::default(), point(from), point(to), Point::default()];
        }
        found(&disk)
    };
    let id = || "disk-io-errors".to_owned();
    assert_eq!(with((9, 0), (9, 0)), []);
    assert_eq!(with((9, 0), (11, 0)), [(id(), Severity::Info)]);
    assert_eq!(with((9, 1), (9, 2)), [(id(), Severity::Warning)]);
    // Attached again.
    assert_eq!(with((9, 1), (1, 0)), []);
}
