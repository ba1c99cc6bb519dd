//! Compares the requested mount options of a mounted disk with the ones in effect, and decides
//! which of them a remount can change.
//!
//! The kernel shows most options in effect, some under another name. So the agent compares only
//! options that the kernel shows unchanged, and of these only options that are requested now or
//! were requested before (by the unit or the fstab line that still exists).

use virtfleet_wire::settings::DiskFilesystem;

use super::{
    super::{plan::DiskStep, seen::Mounted, units},
    Run,
    case::Case,
};

/// Mount flags with their opposites. A remount changes them at once, without touching the
/// filesystem.
const MOUNT_FLAGS: [(&str, &str); 6] = [
    ("nosuid", "suid"),
    ("nodev", "dev"),
    ("noexec", "exec"),
    ("nosymfollow", "symfollow"),
    ("noatime", "relatime"),
    ("nodiratime", "diratime"),
];
/// Access time flags, of which exactly one is always in effect.
const ATIME_FLAGS: [&str; 2] = ["noatime", "relatime"];
/// Options of ext4 that a remount can set and clear while in use, with their opposites.
const EXT4_OPTIONS: [(&str, &str); 1] = [("discard", "nodiscard")];
/// Flags that a remount clears unless it repeats them, because mount(8) sets all flags at once
/// (util-linux before 2.39).
const REPEATED_FLAGS: [&str; 3] = ["sync", "dirsync", "lazytime"];
/// Options that the kernel shows unchanged and that only the next mount sets.
const SHOWN_UNCHANGED: [&str; 14] = [
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

/// Differences between requested and current options.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Options for a remount.
    now: Vec<String>,
    /// Options that only the next mount changes.
    later: Vec<String>,
}

impl<'a> Run<'a> {
    /// Returns the remount step for the options that can be changed, and adds a note about the
    /// others.
    pub(super) fn options(case: &Case<'a>, mount: &Mounted, notes: &mut Vec<String>) -> Option<DiskStep> {
        let before = units::options_of(&case.seen.files, &case.disk.name);
        let found = compare(case.disk.filesystem, &case.disk.options, &before, &mount.options);
        if !found.later.is_empty() {
            notes.push(format!(
                "mount options that take effect at the next mount (unmount the disk and apply again, or reboot): {}",
                found.later.join(", ")
            ));
        }
        (!found.now.is_empty()).then(|| DiskStep::Remount {
            place: case.place(),
            mount_point: mount.mount_point.clone(),
            options: found.now,
        })
    }
}

fn compare(filesystem: DiskFilesystem, asked: &[String], before: &[String], has: &[String]) -> Difference {
    let is = |list: &[String], option: &str| list.iter().any(|other| other == option);
    let ext4 = EXT4_OPTIONS.iter().filter(|_| filesystem == DiskFilesystem::Ext4);
    let changeable: Vec<(&str, &str)> = MOUNT_FLAGS.iter().chain(ext4).copied().collect();
    let mut found = Difference::default();
    for (option, undo) in &changeable {
        // Of several contradicting options, the last one is valid.
        let last = asked.iter().rfind(|other| other == option || other == undo);
        let wants = last.is_some_and(|last| last == option);
        if wants && !is(has, option) {
            found.now.push((*option).to_owned());
        } else if !wants && is(has, option) && (is(before, option) || is(asked, undo)) {
            found.now.push((*undo).to_owned());
        }
    }
    let known = |option: &str| changeable.iter().any(|(one, _)| *one == option);
    for option in SHOWN_UNCHANGED.into_iter().filter(|option| !known(option)) {
        let (wants, in_effect) = (is(asked, option), is(has, option));
        // A finding reports an unexpected read-only mount.
        if wants && !in_effect || !wants && in_effect && is(before, option) {
            let word = if wants { "" } else { "without " };
            found.later.push(format!("{word}{option}"));
        }
    }
    // A remount sets all flags at once, so it repeats those that stay.
    let flags = |option: &&String| {
        MOUNT_FLAGS.iter().any(|(one, _)| one == *option) || REPEATED_FLAGS.contains(&option.as_str())
    };
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
        if !ATIME_FLAGS.iter().any(|one| is(&all, one)) && is(has, "relatime") {
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
    fn missing_options_are_set_and_removed_ones_reverted() {
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
            // A change by another program is kept.
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
            // The result of these is unknown.
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
