//! An admin's approval of a refused disk.

use virtfleet_agent_core::disks::{DiskPlan, Refusal, journal::Approval};
use virtfleet_agent_host::{JournalError, JournalStore, clock};
use virtfleet_wire::settings::DiskSettings;

use super::{known, observed::PlanDisksError, provisioner::DiskProvisioner};

/// Why an approval was rejected.
#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    /// There is no plan.
    #[error(transparent)]
    DiskProvisioner(#[from] PlanDisksError),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("no declared disk has the name or serial {0:?}; virtfleet-agent plan disks lists them")]
    Unknown(String),
    /// Several declared disks have this serial, for example partitions of one disk.
    #[error(
        "several declared disks have the serial {serial:?}: {}; name one of them: \
         `virtfleet-agent disks approve {first} --evidence HASH`", names.join(", ")
    )]
    Several {
        serial: String,
        /// The name of one of the disks.
        first: String,
        /// Each disk's name, with its device and PARTUUID.
        names: Vec<String>,
    },
    /// The disk has no refusal with this evidence, or no longer.
    #[error("disk {name} has no refusal with that evidence{}", remaining(.evidence))]
    Other {
        name: String,
        /// The evidence of those of its refusals that can be approved.
        evidence: Vec<String>,
    },
    /// Disks are declared by size and order, and the approval would change which one is which.
    #[error(
        "with this device approved, {} would be another one than now, because it is declared by its position; approve the device \
         that comes first on the bus first, or name the disks in the settings by `match.serial`",
        if name == other { format!("disk {name}") } else { format!("disk {other}, not only {name},") }
    )]
    Otherwise {
        name: String,
        /// A declared disk that would match another device.
        other: String,
    },
}

fn remaining(evidence: &[String]) -> String {
    if evidence.is_empty() {
        "; none of its refusals can be approved: virtfleet-agent plan disks says what to do instead"
            .to_owned()
    } else {
        format!(
            "; the disk was written to, or the guest was booted, since that evidence was printed. `virtfleet-agent plan disks` says what is on it; its \
             evidence is {} now",
            evidence.join(", ")
        )
    }
}

/// A declared name with its device, for example `logs (/dev/vda3, PARTUUID …)`.
fn with_device(plan: &DiskPlan) -> String {
    let Some(device) = &plan.device else {
        return plan.name.clone();
    };
    let partition = device.partition.as_ref();
    let uuid = partition.and_then(|partition| partition.uuid.as_deref());
    let uuid = uuid.map_or(String::new(), |uuid| format!(", PARTUUID {uuid}"));
    format!("{} (/dev/{}{uuid})", plan.name, device.name)
}

/// Records the approval of the refusal with that evidence. Returns what was approved, e.g. `disk
/// data: format it once (unknown-data)`. A disk that came later is added to the known disks, so
/// that `match` selects it from now on.
///
/// # Errors
/// See [`ApproveError`].
pub fn approve(
    provisioner: &DiskProvisioner<'_>,
    declared: &[DiskSettings],
    who: &str,
    evidence: &str,
) -> Result<String, ApproveError> {
    let observed = provisioner.plan(declared)?;
    let serial = |name: &str| {
        let wanted = observed.wanted.iter().find(|wanted| wanted.name == name);
        wanted.and_then(|wanted| wanted.serial.clone())
    };
    let named = observed.plan.disks.iter().find(|plan| plan.name == who);
    let of_serial = observed.plan.disks.iter().filter(|plan| {
        let seen = plan.device.as_ref().and_then(|device| device.serial.clone());
        seen.as_deref() == Some(who) || serial(&plan.name).as_deref() == Some(who)
    });
    let plan = match (named, &of_serial.collect::<Vec<_>>()[..]) {
        (Some(plan), _) => plan,
        (None, [plan]) => plan,
        (None, []) => return Err(ApproveError::Unknown(who.to_owned())),
        (None, several) => {
            return Err(ApproveError::Several {
                serial: who.to_owned(),
                first: several[0].name.clone(),
                names: several.iter().map(|plan| with_device(plan)).collect(),
            });
        }
    };
    let open: Vec<&Refusal> = plan
        .refusals
        .iter()
        .filter(|refusal| refusal.kind.may_be_approved() && !refusal.evidence.is_empty())
        .collect();
    let Some(refusal) = open.iter().find(|refusal| refusal.evidence == evidence) else {
        return Err(ApproveError::Other {
            name: plan.name.clone(),
            evidence: open.iter().map(|refusal| refusal.evidence.clone()).collect(),
        });
    };
    let otherwise = |other| ApproveError::Otherwise {
        name: plan.name.clone(),
        other,
    };
    let known = known::approved(&observed, &plan.name, refusal, provisioner.boot_id).map_err(otherwise)?;
    let store = JournalStore::open(provisioner.roots)?;
    let (name, kind) = (&plan.name, refusal.kind.word());
    if let Some(known) = known {
        store.write_known(&known)?;
        return Ok(format!(
            "disk {name}: `match` selects this device from now on ({kind}), and data on it is not approved for formatting"
        ));
    }
    let mut approvals = observed.journal.approvals.clone();
    approvals.retain(|approval| approval.name != plan.name);
    approvals.push(Approval {
        name: plan.name.clone(),
        hash: evidence.to_owned(),
        at_ns: clock().realtime_ns,
        facts: refusal.facts.clone(),
    });
    store.write_approvals(&approvals)?;
    Ok(format!("disk {name}: format it once ({kind})"))
}
