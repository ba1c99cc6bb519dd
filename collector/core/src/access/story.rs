//! A VM's story without what it says about VMs and user clusters that the caller may not see.

use super::VisibleFleet;
use crate::{
    findings::{AGENT_WRONG_VM, GUEST_PREFIX},
    story::{StoryView, TimelineEntry},
    view::VmView,
};

/// Beginnings of the ids of findings that are about the VM alone. Others may name hidden VMs or
/// user clusters, and that they appear may tell something about these.
const OWN_FINDINGS: [&str; 5] = [GUEST_PREFIX, "agent-", "claim-", "identity-", "migration-"];

/// The story of a VM; none for a hidden one.
pub fn tenant_story(fleet: &VisibleFleet<'_>, vm: &VmView, story: StoryView) -> Option<StoryView> {
    if !fleet.scope.has_vm(vm) {
        return None;
    }
    if fleet.scope.is_all() {
        return Some(story);
    }
    Some(StoryView {
        timeline: tenant_timeline(story.timeline),
        ..story
    })
}

/// The entries of a visible VM.
pub(super) fn tenant_timeline(timeline: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    timeline.into_iter().filter_map(tenant_entry).collect()
}

fn tenant_entry(mut entry: TimelineEntry) -> Option<TimelineEntry> {
    let Some(finding) = entry.finding.as_deref() else {
        return Some(entry);
    };
    if !OWN_FINDINGS.iter().any(|prefix| finding.starts_with(prefix)) {
        return None;
    }
    if finding == AGENT_WRONG_VM {
        // Its message has the identity of the other VM.
        AGENT_WRONG_VM.clone_into(&mut entry.text);
    }
    Some(entry)
}
