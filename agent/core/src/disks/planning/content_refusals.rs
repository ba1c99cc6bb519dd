//! Refusals because of a disk's content.

use super::{
    super::{
        journal::{Entry, Progress},
        plan::{Refusal, RefusalKind},
        probe::{Content, Left},
    },
    case::Case,
};

pub(super) fn unreadable(case: &Case<'_>, reason: &str, passing: bool) -> Refusal {
    let remedy = if passing {
        "the next run probes it again: `systemctl start virtfleet-reconcile.service`"
    } else {
        "read the kernel log (`dmesg`) and check the volume; the agent changes nothing while the disk is unreadable"
    };
    let message = format!("cannot determine the content of {}: {reason}", case.device.node());
    case.refuse(
        RefusalKind::Unreadable,
        message,
        remedy,
        vec![("reason", reason.to_owned())],
    )
}

/// Journal entry of this disk under a former name, if the agent made it.
pub(super) fn former<'a>(case: &Case<'a>) -> Option<&'a Entry> {
    let mut entries = case.journal.entries.iter();
    entries.find(|entry| entry.key == case.key && entry.progress > Progress::Intended)
}

/// Refusal: the disk has a filesystem with the agent's UUID and content that its `mkfs` did not
/// write.
pub(super) fn mixed_content(case: &Case<'_>, place: &str, content: &Content, uuid: String) -> Refusal {
    let mut facts = vec![("uuid", uuid)];
    match &content.left {
        Some(Left::Foreign { at }) => facts.push(("foreignByte", at.to_string())),
        Some(Left::User { trace }) => facts.push(("used", trace.clone())),
        Some(Left::Tool) | None => {}
    }
    let refusal = case.refuse(
        RefusalKind::Unfinished,
        format!(
            "{place} holds a filesystem of a mkfs that was started and not recorded as finished, and {}",
            describe_foreign_content(content)
        ),
                "copy the data that you need; then remove the filesystem manually (`wipefs --all`, and write zeros over the \
                 rest); an approval does not remove it",
        facts,
    );
    refusal.beyond_approval()
}

/// Refusal: it is unknown whether the filesystem is complete, or something mounted it since. The
/// agent does not clear it.
pub(super) fn undetermined(case: &Case<'_>, place: &str, uuid: String) -> Refusal {
    let refusal = case.refuse(
        RefusalKind::Unfinished,
        format!(
                        "{place} holds the result of a mkfs that the agent started, and it is unknown whether it is complete: its checker \
                         gave no answer, or it was mounted since"
        ),
                "check it (`e2fsck -n`, `xfs_repair -n`, `btrfs check`); known content cannot be approved, so remove it manually \
                 (`wipefs`)",
        vec![("uuid", uuid)],
    );
    refusal.beyond_approval()
}

/// Describes the content that is not from the agent's `mkfs`.
pub(super) fn describe_foreign_content(content: &Content) -> String {
    match &content.left {
        Some(Left::Foreign { at }) => {
            format!("that tool does not write the byte at {at}: something else wrote to the disk")
        }
        Some(Left::User { trace }) => format!("the filesystem was used since: {trace}"),
        Some(Left::Tool) | None => "it is not proven that this tool wrote all of the content".to_owned(),
    }
}
