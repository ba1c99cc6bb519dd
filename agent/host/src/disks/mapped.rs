//! Creates the filesystem in a LUKS container.
//!
//! Zeros on the disk read as noise through the container, so blankness is proven on the disk below:
//! a zero sector was never written through the container, and any other sector must be from the
//! interrupted run of the agent's own tool. The container's header has the journaled UUID, the
//! container is on the intended disk only, no process uses it, and blkid(8) finds nothing in it or
//! the begun, incomplete filesystem.

use virtfleet_agent_core::disks::{DeviceId, Doubt, FormatIntent, Left, journal::Entry, regions};
use virtfleet_wire::settings::ProofKind;

use super::{
    ClaimError, Disks, FormatError, OpenContainer,
    claim::{refused, unknown},
    ioctl,
    reader::{Held, Limits, Order, Reader},
    remains::BegunRun,
    tools::{blkid, check, mkfs},
    unfinished::not_ours,
};

/// A container in which a filesystem may be created, locked and held exclusively.
#[derive(Debug)]
pub struct FreshContainer {
    held: Held,
    id: DeviceId,
    /// The container, and the arguments of the run that may have left data in it.
    run: (Vec<String>, OpenContainer),
}

impl Disks<'_> {
    /// Probes an open container. The journal's progress must be exactly `Encrypted`.
    ///
    /// # Errors
    /// The container is not the journaled one, is in use, or contains other data.
    pub fn claim_container(
        &self,
        mapping: &str,
        luks_uuid: &str,
        intent: &FormatIntent,
        entry: &Entry,
    ) -> Result<FreshContainer, ClaimError> {
        let disk = &intent.device;
        let limits = Limits::default();
        let refuse = |reason: String| refused(disk, format!("in its container {mapping}: {reason}"), None);
        let container = self
            .containers(mapping)
            .into_iter()
            .find(|container| container.mapping == mapping);
        let container = container.ok_or_else(|| refuse("it is closed".to_owned()))?;
        if !container.luks_uuid.eq_ignore_ascii_case(luks_uuid) || container.below != [disk.name.as_str()] {
            let below = container.below.join(", ");
            return Err(refuse(format!(
                "its header is {}, on {below}",
                container.luks_uuid
            )));
        }
        let below = self.current(disk)?;
        if below.is_none_or(|below| below.id != *disk) {
            return Err(refuse("the disk below it is now a different one".to_owned()));
        }
        let id = self.container_id(&container);
        let path = self.node(&id);
        let probe = || {
            let order = Order {
                path: path.clone(),
                id: id.clone(),
                roots: self.roots.clone(),
                exclusive: true,
            };
            let parts = regions::regions(id.size, ProofKind::Sampled);
            let reader = Reader::start(order, parts, limits)?;
            let (held, bytes) = reader.wait(limits.all, &mut |_| {})?;
            Ok((held, bytes.digest, blkid::probe(self.commands, &path)?))
        };
        let (mut held, before, known) = probe().map_err(unknown(disk))?;
        if let Some(known) = known {
            let uuid = known.uuid.as_deref().unwrap_or_default();
            if known.kinds != [intent.filesystem.as_str()] || !uuid.eq_ignore_ascii_case(&intent.uuid) {
                return Err(refuse(format!("it contains {}", known.kinds.join(" and "))));
            }
            // The checker may need exclusive access.
            drop(held.exclusive.take());
            match check::is_intact(self.commands, &intent.filesystem, &path) {
                Ok(false) => {}
                Ok(true) => return Err(refuse(format!("its {} is complete", intent.filesystem))),
                Err(error) => return Err(refuse(error.to_string())),
            }
            drop(held);
            let (again, after, _) = probe().map_err(unknown(disk))?;
            if before != after {
                return Err(refuse("it changed during the check".to_owned()));
            }
            held = again;
        }
        // All content must be from the interrupted run of the agent's own tool.
        let run = BegunRun::of(entry, &intent.arguments);
        let (held, left) = self
            .judged(held, &id, run, ProofKind::Sampled, Some(&container))
            .map_err(unknown(disk))?;
        if left != Left::Tool {
            return Err(refuse(not_ours(&left)));
        }
        let run = (run.arguments.to_vec(), container);
        Ok(FreshContainer { held, id, run })
    }

    /// Creates the filesystem and verifies its kind and UUID.
    ///
    /// # Errors
    /// The device changed, the tool failed, or the result is not the intended one.
    pub fn format_container(
        &self,
        container: FreshContainer,
        intent: &FormatIntent,
    ) -> Result<(), FormatError> {
        let FreshContainer { held, id, run } = container;
        let path = self.node(&id);
        let Some(program) = mkfs::program(&intent.filesystem) else {
            return Err(FormatError::Kind {
                name: intent.name.clone(),
                kind: intent.filesystem.clone(),
            });
        };
        let changed = |doubt: Doubt| FormatError::Changed {
            path: path.clone(),
            reason: doubt.reason,
        };
        let (arguments, container) = &run;
        let begun = BegunRun {
            filesystem: &intent.filesystem,
            uuid: &intent.uuid,
            arguments,
        };
        let mut held = self
            .clear_judged(held, &id, begun, ProofKind::Sampled, Some(container))
            .map_err(changed)?;
        drop(held.exclusive.take());
        self.check_identity(&held, &id).map_err(changed)?;
        mkfs::run(self.commands, program, &intent.arguments, &path, held.locked()).map_err(|source| {
            FormatError::Tool {
                path: path.clone(),
                source: Box::new(source),
                untouched: false,
            }
        })?;
        let verify = |reason: String| FormatError::Verify {
            path: path.clone(),
            reason,
        };
        held.lock
            .sync_all()
            .map_err(|error| verify(format!("cannot flush it to the device: {error}")))?;
        self.verify(&path, intent, &id).map_err(verify)
    }
}

impl Disks<'_> {
    /// The open container as a device.
    pub(super) fn container_id(&self, container: &OpenContainer) -> DeviceId {
        DeviceId {
            diskseq: ioctl_diskseq(self, &container.name),
            name: container.name.clone(),
            number: container.number,
            size: container.size,
            serial: None,
            partition: None,
        }
    }
}

/// Sequence number of a device that is not open yet.
fn ioctl_diskseq(disks: &Disks<'_>, name: &str) -> Option<u64> {
    let file = std::fs::File::open(disks.roots.root("/dev").join(name)).ok()?;
    ioctl::diskseq(&file).ok().flatten()
}
