//! The finding about what a guest lacks of its VM's specification.

use virtfleet_wire::finding::{Finding, Severity};

use super::{check::SpecWeight, checks};
use crate::{
    facts::Vmi,
    findings::{self, SPEC_NOT_IN_EFFECT, escaped},
    guest_hardware::GuestHardware,
    spec_view::SpecResult,
};

/// Maximum fields that the evidence names.
const MAX_FIELDS: usize = 8;
/// Maximum bytes of the first difference, and of the named fields.
const MAX_TEXT_BYTES: usize = 512;

/// The finding about differences that make the VM `Degraded`; none if there are only others.
pub(crate) fn finding(vmi: &Vmi, guest: &GuestHardware) -> Option<Finding> {
    let spec = vmi.spec.as_deref()?;
    let mut lacking = checks(vmi, spec, guest);
    lacking.retain(|one| one.result == SpecResult::Differs && one.weight == SpecWeight::Matters);
    let first = escaped(lacking.first()?.sentence(), MAX_TEXT_BYTES);
    let key = &vmi.key;
    let message = match lacking.len() - 1 {
        0 => format!("{key}: {first}"),
        more => format!("{key}: {first} ({more} more)"),
    };
    let fields = lacking.iter().take(MAX_FIELDS).map(|one| one.path.to_string());
    let fields = escaped(fields.collect::<Vec<_>>().join(", "), MAX_TEXT_BYTES);
    let found = findings::vm(
        SPEC_NOT_IN_EFFECT,
        Severity::Warning,
        key,
        "SpecNotInEffect",
        message,
    );
    Some(found.with("fields", fields).remedy(format!(
        "virtfleetctl vm {key} --spec lists each field; if the VM was changed while it ran: virtctl -n {} restart {}",
        key.namespace, key.name
    )))
}
