//! Reasons not to format or mount a named partition: its type, its attributes, or a partition table
//! that differs from the kernel's.

use super::{
    super::plan::{Refusal, RefusalKind},
    case::Case,
};

/// Reason not to use a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Objection {
    why: String,
    remedy: String,
}

/// Returns the first reason not to use the device; `None` for a whole disk.
pub(super) fn objection(case: &Case<'_>) -> Option<Objection> {
    let partition = case.id().partition.as_ref()?;
    let (disk, index) = (&partition.disk, partition.index);
    let fault = case.device.fault.clone().map(|fault| Objection {
        why: fault,
        remedy: format!(
            "compare `sfdisk --dump /dev/{disk}` with /sys/class/block/{}; let the kernel read the table again \
             (`partx --update /dev/{disk}`, or a reboot), then plan again",
            case.id().name
        ),
    });
    fault.or_else(|| {
        partition.objection(case.disk).map(|why| Objection {
            why,
            remedy: format!(
                "correct `match` if it names the wrong partition. If it is the right one and nothing else uses it, \
                 set its type manually, e.g. `sfdisk --part-type /dev/{disk} {index} linux`; the agent does not change \
                 partition tables"
            ),
        })
    })
}

impl Objection {
    /// Refusal of a partition that is not mounted yet.
    pub(super) fn refusal(self, case: &Case<'_>) -> Refusal {
        case.refuse(
            RefusalKind::NotEligible,
            format!("{} is not used: {}", case.device.node(), self.why),
            self.remedy,
            vec![("why", self.why)],
        )
    }

    /// Note about a partition that is mounted already.
    pub(super) fn note(self) -> String {
        format!("{}; {}", self.why, self.remedy)
    }
}
