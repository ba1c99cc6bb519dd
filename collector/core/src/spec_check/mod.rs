//! Compares what a VMI asks for with what its guest sees. Pure, and without allocation per value,
//! because the verdict of every VM needs it.
//!
//! A value that the report does not have is [`SpecResult::NotSeen`], never a difference.
//! `docs/health.md` lists the checks.

mod check;
mod cpu;
mod devices;
mod disks;
mod dns;
mod finding;
mod interfaces;
mod memory;
mod name;
mod unseen;
mod value;

pub(crate) use check::{SpecCheck, SpecWeight};
pub(crate) use finding::finding;

use crate::{
    facts::Vmi,
    guest_hardware::GuestHardware,
    spec_view::{SpecCheckView, SpecResult},
    vmi_spec::VmiSpec,
};

/// Maximum number of checks that are shown of one VM.
const MAX_SHOWN_CHECKS: usize = 256;

/// All checks of a VM, in a fixed order; without a report everything is
/// [`SpecResult::NotSeen`].
pub(crate) fn checks<'a>(vmi: &'a Vmi, spec: &'a VmiSpec, guest: &'a GuestHardware) -> Vec<SpecCheck<'a>> {
    let mut all = Vec::with_capacity(16);
    cpu::checks(vmi, &spec.cpu, guest, &mut all);
    memory::checks(vmi, spec, guest, &mut all);
    disks::checks(spec, guest, &mut all);
    interfaces::checks(vmi, spec, guest, &mut all);
    devices::checks(spec, guest, &mut all);
    dns::checks(spec, guest, &mut all);
    name::checks(vmi, guest, &mut all);
    unseen::checks(spec, &mut all);
    all
}

/// The result of all checks.
#[derive(Debug)]
pub(crate) enum SpecSummary<'a> {
    /// The first difference that matters, else the first difference.
    Differs(SpecCheck<'a>),
    /// vCPUs and memory were compared, and nothing differs.
    Agrees { compared: usize, not_seen: usize },
    /// vCPUs or memory were not compared.
    Incomplete,
}

pub(crate) fn summary(checks: Vec<SpecCheck<'_>>) -> SpecSummary<'_> {
    let of = |result: SpecResult| checks.iter().filter(move |one| one.result == result).count();
    let (compared, not_seen) = (of(SpecResult::Agrees), of(SpecResult::NotSeen));
    let is_complete = checks
        .iter()
        .filter(|one| one.is_required)
        .all(|one| one.result == SpecResult::Agrees);
    let differing = checks.into_iter().filter(|one| one.result == SpecResult::Differs);
    match differing.min_by_key(|one| one.weight) {
        Some(first) => SpecSummary::Differs(first),
        None if is_complete => SpecSummary::Agrees { compared, not_seen },
        None => SpecSummary::Incomplete,
    }
}

/// All checks of a VM for people and programs: differences first.
pub(crate) fn views(vmi: &Vmi, guest: Option<&GuestHardware>) -> Vec<SpecCheckView> {
    let Some(spec) = vmi.spec.as_deref() else {
        return Vec::new();
    };
    let nothing = GuestHardware::default();
    let mut all = checks(vmi, spec, guest.unwrap_or(&nothing));
    all.sort_by_key(|one| (one.result, one.weight));
    all.iter().take(MAX_SHOWN_CHECKS).map(SpecCheck::view).collect()
}

#[cfg(test)]
mod tests;
