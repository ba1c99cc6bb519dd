//! Disks that are mounted below others.

use super::*;

fn at(name: &str, path: &str) -> DiskSettings {
    DiskSettings {
        mount_point: Some(path.into()),
        ..disk(name)
    }
}

fn names(settings: &[DiskSettings]) -> Vec<String> {
    check(settings).0.into_iter().map(|disk| disk.name).collect()
}

#[test]
fn disks_below_others_are_ordered_after_them() {
    let settings = [
        at("c", "/d/x/y"),
        at("b", "/d/x"),
        at("n", "/data"),
        at("a", "/d"),
        at("z", "/e"),
    ];
    assert_eq!(names(&settings), ["n", "a", "z", "b", "c"]);
    let swap = DiskSettings {
        filesystem: DiskFilesystem::Swap,
        mount_point: None,
        ..disk("s")
    };
    assert_eq!(names(&[swap, at("b", "/x")]), ["s", "b"]);
}

#[test]
fn duplicate_mount_points_are_refused() {
    let (wanted, problems) = check(&[at("a", "/x"), at("b", "/x"), at("c", "/y")]);
    assert_eq!((wanted.len(), problems.len()), (1, 2));
}

#[test]
fn disks_below_a_refused_disk_are_refused() {
    let broken = DiskSettings {
        required: true,
        reserved_percent: Some(99),
        ..at("a", "/x")
    };
    let (wanted, problems) = check(&[at("c", "/x/y/z"), at("b", "/x/y"), broken, at("d", "/xy")]);
    assert_eq!(
        wanted.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(),
        ["d"]
    );
    let mut refused: Vec<_> = problems
        .iter()
        .map(|problem| (problem.disk.as_str(), problem.required))
        .collect();
    refused.sort_unstable();
    assert_eq!(refused, [("a", true), ("b", false), ("c", false)]);
}
