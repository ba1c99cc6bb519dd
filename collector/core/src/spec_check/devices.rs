//! Entropy device, balloon, TPM.

use super::{
    check::SpecCheck,
    value::{SpecPath, SpecValue},
};
use crate::{guest_hardware::GuestHardware, vmi_spec::VmiSpec};

pub(super) fn checks(spec: &VmiSpec, guest: &GuestHardware, all: &mut Vec<SpecCheck<'_>>) {
    let mut compare = |path, asked: bool, seen: Option<bool>, why| {
        let path = SpecPath::Field(path);
        let is_asked = |seen| seen == SpecValue::Flag(asked);
        all.push(SpecCheck::compare(
            path,
            SpecValue::Flag(asked),
            seen.map(SpecValue::Flag),
            is_asked,
            why,
        ));
    };
    if spec.rng {
        compare(
            "spec.domain.devices.rng",
            true,
            guest.virtio.map(|devices| devices.has_rng),
            "programs may wait for random numbers at boot",
        );
    }
    if let Some(balloon) = spec.balloon {
        compare(
            "spec.domain.devices.autoattachMemBalloon",
            balloon,
            guest.virtio.map(|devices| devices.has_balloon),
            "without balloon KubeVirt has no memory statistics of the guest",
        );
    }
    if spec.tpm {
        compare(
            "spec.domain.devices.tpm",
            true,
            guest.has_tpm,
            "keys that are bound to a TPM, e.g. of encrypted disks, cannot be used",
        );
    }
}
