//! What keeps a named partition from being formatted or mounted: its type, its attributes, or a table that the kernel
//! does not agree with.

use super::{
    super::plan::{Refusal, RefusalKind},
    case::Case,
};

/// Why a partition is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Objection {
    why: String,
    remedy: String,
}

/// The first reason that keeps the device from being used; none for a whole disk.
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
                "correct `match` when it names the wrong partition. When it is the right one and nothing else uses it, \
                 set its type by hand, e.g. `sfdisk --part-type /dev/{disk} {index} linux`; the agent changes no \
                 partition table"
            ),
        })
    })
}

impl Objection {
    /// The refusal of a partition that is not in its place yet.
    pub(super) fn refusal(self, case: &Case<'_>) -> Refusal {
        case.refuse(
            RefusalKind::NotEligible,
            format!("{} is not used: {}", case.device.node(), self.why),
            self.remedy,
            vec![("why", self.why)],
        )
    }

    /// What is said of a partition that is mounted already.
    pub(super) fn note(self) -> String {
        format!("{}; {}", self.why, self.remedy)
    }
}
