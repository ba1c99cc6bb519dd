mod approvals;
mod arbitrary;
mod binds;
mod clones;
mod files;
mod judged;
mod later_serial;
mod luks;
mod own;
mod parts;
mod place;
mod plain;
mod properties;
mod world;

use super::{
    super::{fixtures::*, plan::DiskPlan},
    *,
};

/// Plans one disk.
fn one(disk: &Wanted, seen: &Seen, journal: &Journal) -> DiskPlan {
    plan(std::slice::from_ref(disk), &[], seen, journal)
        .disks
        .remove(0)
}

fn words(plan: &DiskPlan) -> Vec<&'static str> {
    // Other tests cover the files for the next boot.
    let steps = plan.steps.iter().map(DiskStep::word);
    steps.filter(|word| *word != "write-file").collect()
}

/// Kind of the only refusal; `None` without a refusal.
fn refusal(plan: &DiskPlan) -> Option<RefusalKind> {
    assert!(plan.refusals.len() <= 1, "{:?}", plan.refusals);
    let refusal = plan.refusals.first()?;
    assert!(!refusal.message.is_empty() && !refusal.remedy.is_empty());
    Some(refusal.kind)
}
