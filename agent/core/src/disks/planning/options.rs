//! Mount options of a disk that is mounted: what of those that are asked for is not in effect, and what of that can be changed while it is in use.
//!
//! The kernel shows the options that it heeds, but not all, and some by another name. So only such are compared as are shown as they are given, and only
//! those that are asked for now or were before (as the unit or the line of fstab has them that is there still).

use virtfleet_wire::settings::DiskFilesystem;

use super::{
    super::{plan::Step, seen::Mounted, units},
    Run,
    case::Case,
};

/// Flags of the mount itself, with what takes each back. A remount changes them at once and touches no filesystem.
const FLAGS: [(&str, &str); 6] = [
    ("nosuid", "suid"),
    ("nodev", "dev"),
    ("noexec", "exec"),
    ("nosymfollow", "symfollow"),
    ("noatime", "relatime"),
    ("nodiratime", "diratime"),
];
/// Flags of the mount of which one is always in effect.
const ATIMES: [&str; 2] = ["noatime", "relatime"];
/// Of ext4's own, those that a remount sets and takes back while it is in use, with what takes them back.
const EXT4: [(&str, &str); 1] = [("discard", "nodiscard")];
/// What a remount takes back when it is not given again, where mount(8) sets all flags at once (util-linux before 2.39).
const KEPT: [&str; 3] = ["sync", "dirsync", "lazytime"];
/// What a filesystem shows as it was given, and what only the next mount sets.
const SHOWN: [&str; 14] = [
    "ro",
    "sync",
    "dirsync",
    "lazytime",
    "discard",
    "discard=async",
    "autodefrag",
    "largeio",
    "wsync",
    "prjquota",
    "usrquota",
    "grpquota",
    "data=journal",
    "data=writeback",
];

/// What differs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// What a remount is given.
    now: Vec<String>,
    /// What the next mount changes.
    later: Vec<String>,
}

impl<'a> Run<'a> {
    /// The step that changes what can be changed, and a note of the rest.
    pub(super) fn options(case: &Case<'a>, mount: &Mounted, notes: &mut Vec<String>) -> Option<Step> {
        let before = units::options_of(&case.seen.files, &case.disk.name);
        let found = compare(case.disk.filesystem, &case.disk.options, &before, &mount.options);
        if !found.later.is_empty() {
            notes.push(format!(
                "mount options that the next mount changes (unmount it and apply again, or reboot): {}",
                found.later.join(", ")
            ));
        }
        (!found.now.is_empty()).then(|| Step::Remount {
            place: case.place(),
            mount_point: mount.mount_point.clone(),
            options: found.now,
        })
    }
}

fn compare(filesystem: DiskFilesystem, asked: &[String], before: &[String], has: &[String]) -> Difference {
    let is = |list: &[String], option: &str| list.iter().any(|other| other == option);
    let ext4 = EXT4.iter().filter(|_| filesystem == DiskFilesystem::Ext4);
    let changeable: Vec<(&str, &str)> = FLAGS.iter().chain(ext4).copied().collect();
    let mut found = Difference::default();
    for (option, undo) in &changeable {
        // The last of several that contradict each other holds.
        let last = asked.iter().rfind(|other| other == option || other == undo);
        let wants = last.is_some_and(|last| last == option);
        if wants && !is(has, option) {
            found.now.push((*option).to_owned());
        } else if !wants && is(has, option) && (is(before, option) || is(asked, undo)) {
            found.now.push((*undo).to_owned());
        }
    }
    let known = |option: &str| changeable.iter().any(|(one, _)| *one == option);
    for option in SHOWN.into_iter().filter(|option| !known(option)) {
        let (wants, in_effect) = (is(asked, option), is(has, option));
        // That it is read-only without having been asked to be is told elsewhere.
        if wants && !in_effect || !wants && in_effect && is(before, option) {
            let word = if wants { "" } else { "without " };
            found.later.push(format!("{word}{option}"));
        }
    }
    // A change of one flag sets all of them anew, so those that stay are given, too.
    let flags =
        |option: &&String| FLAGS.iter().any(|(one, _)| one == *option) || KEPT.contains(&option.as_str());
    if !found.now.is_empty() {
        let undone = |option: &str| {
            let pair = changeable.iter().find(|(one, _)| *one == option);
            pair.is_some_and(|(_, undo)| is(&found.now, undo))
        };
        let mut all: Vec<String> = has
            .iter()
            .filter(flags)
            .filter(|option| !undone(option) && !is(&found.now, option))
            .cloned()
            .collect();
        all.append(&mut found.now);
        if !ATIMES.iter().any(|one| is(&all, one)) && is(has, "relatime") {
            all.push("relatime".to_owned());
        }
        all.dedup();
        found.now = all;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split(',')
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn what_is_asked_for_and_not_in_effect_is_set_and_what_was_asked_for_before_is_taken_back() {
        for (kind, asked, before, has, now, later) in [
            ("ext4", "", "", "rw,relatime,rw", "", ""),
            ("ext4", "noatime", "", "rw,relatime,rw", "noatime", ""),
            ("ext4", "noatime", "", "rw,nodev,relatime,rw", "nodev,noatime", ""),
            ("ext4", "noatime", "noatime", "rw,noatime,rw", "", ""),
            (
                "ext4",
                "",
                "noatime",
                "rw,nosuid,noatime,rw",
                "nosuid,relatime",
                "",
            ),
            // Somebody else's change is theirs.
            ("ext4", "", "", "rw,nosuid,noatime,rw", "", ""),
            ("ext4", "discard", "", "rw,relatime,rw", "discard,relatime", ""),
            (
                "ext4",
                "",
                "discard",
                "rw,relatime,rw,discard",
                "nodiscard,relatime",
                "",
            ),
            ("xfs", "discard", "", "rw,relatime,rw", "", "discard"),
            (
                "xfs",
                "",
                "prjquota",
                "rw,relatime,rw,prjquota",
                "",
                "without prjquota",
            ),
            ("xfs", "ro", "", "rw,relatime,rw", "", "ro"),
            ("ext4", "noexec,exec", "", "rw,relatime,rw", "", ""),
            (
                "ext4",
                "noexec,exec",
                "",
                "rw,noexec,relatime,rw",
                "exec,relatime",
                "",
            ),
            (
                "ext4",
                "discard,sync",
                "sync",
                "rw,relatime,rw,sync",
                "sync,discard,relatime",
                "",
            ),
            // Nobody can say what became of these.
            ("ext4", "commit=30,x", "data=ordered", "rw,relatime,rw", "", ""),
        ] {
            let filesystem = if kind == "ext4" {
                DiskFilesystem::Ext4
            } else {
                DiskFilesystem::Xfs
            };
            let found = compare(filesystem, &list(asked), &list(before), &list(has));
            let expected = Difference {
                now: list(now),
                later: list(later),
            };
            assert_eq!(found, expected, "{kind} {asked:?} {before:?} {has:?}");
        }
    }
}
