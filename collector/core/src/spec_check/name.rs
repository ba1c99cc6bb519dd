//! Host name of the guest.

use super::{
    check::SpecCheck,
    value::{SpecPath, SpecValue},
};
use crate::{facts::Vmi, guest_hardware::GuestHardware};

/// Compares the first label: a guest may have its full domain name. KubeVirt gives the guest
/// `spec.hostname`, else the VMI's name.
pub(super) fn checks<'a>(vmi: &'a Vmi, guest: &'a GuestHardware, all: &mut Vec<SpecCheck<'a>>) {
    let (path, asked) = match vmi.hostname.as_deref() {
        Some(hostname) => ("spec.hostname", hostname),
        None => ("metadata.name", vmi.key.name.as_str()),
    };
    let asked = first_label(asked);
    all.push(SpecCheck::compare(
        SpecPath::Field(path),
        SpecValue::Text(asked),
        guest.hostname.as_deref().map(SpecValue::Text),
        |seen| matches!(seen, SpecValue::Text(seen) if first_label(seen).eq_ignore_ascii_case(asked)),
        "logs and metrics of the guest have another name than the VM",
    ));
}

fn first_label(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}
