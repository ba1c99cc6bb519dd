//! Validation of the settings of disks, beyond what their types check.

mod binds;
mod one;
mod options;
mod paths;
mod places;

use virtfleet_wire::settings::{DiskContent, DiskFilesystem, DiskOwner, DiskSettings, ProofKind, SeedFrom};

use one::One;

use super::{
    binds::{PRIVATE_MODE, mount_point},
    mkfs, partition, size,
    wanted::{Encryption, KeySource, Owner, Wanted, WantedProblem},
};

/// Maximum length of a disk name.
const MAX_NAME_CHARS: usize = 40;
/// Default time for reading a disk, in seconds.
pub(super) const DEFAULT_PROOF_SECONDS: u32 = 20;
/// Maximum time for reading a disk, in seconds: the unit at boot has a timeout of five minutes, and
/// formatting follows reading.
const MAX_PROOF_SECONDS: u32 = 180;
/// Default size in bytes above which a blank disk that was read only in part needs an approval.
pub(super) const DEFAULT_APPROVE_ABOVE: u64 = 1 << 40;
/// Value of `key` for the guest's TPM.
const TPM2: &str = "tpm2";

/// Returns the valid disks, and all problems of the others. A disk on which others are mounted
/// comes before those; otherwise the order is that of the settings.
pub fn check(settings: &[DiskSettings]) -> (Vec<Wanted>, Vec<WantedProblem>) {
    let mut problems = Vec::new();
    let mut wanted = Vec::new();
    for (index, disk) in settings.iter().enumerate() {
        let mut one = One::new(index, disk);
        let checked = one.check();
        if settings.iter().filter(|other| other.name == disk.name).count() > 1 {
            one.refuse("name", format!("{:?} names more than one disk", disk.name));
        }
        if one.problems.is_empty() {
            wanted.push(checked);
        }
        problems.append(&mut one.problems);
    }
    places::check_together(settings, &mut wanted, &mut problems);
    (wanted, problems)
}

impl One<'_> {
    /// Returns the checked disk. The result is valid only if no problem was found.
    fn check(&mut self) -> Wanted {
        let disk = self.disk;
        self.name();
        let size = self.matching();
        let approve_above = self.proof();
        self.shape();
        self.label();
        if let Some(message) = mkfs::objection(disk.filesystem, &disk.mkfs_options) {
            self.refuse("mkfsOptions", message);
        }
        for message in options::objections(disk.filesystem, &disk.options) {
            self.refuse("options", message);
        }
        if let Some(message) = disk.mount_point.as_deref().and_then(places::objection) {
            self.refuse("mountPoint", message);
        }
        let encryption = self.encryption();
        let binds = self.binds();
        let private = Owner {
            mode: Some(PRIVATE_MODE),
            ..Owner::default()
        };
        let owner = disk.owner.as_ref().map(|owner| self.owner("owner", owner));
        let owner = owner.or_else(|| (!binds.is_empty()).then_some(private));
        Wanted {
            name: disk.name.clone(),
            serial: disk.matching.serial.clone(),
            volume: disk.matching.volume.clone(),
            path: disk.matching.path.clone(),
            size,
            order: disk.matching.order,
            part_uuid: disk
                .matching
                .part_uuid
                .as_ref()
                .map(|uuid| uuid.to_ascii_lowercase()),
            part_label: disk.matching.part_label.clone(),
            filesystem: disk.filesystem,
            mount_point: mount_point(disk),
            binds,
            options: disk.options.clone(),
            owner,
            seed_from: disk.seed_from,
            grow: disk.grow,
            ephemeral: disk.ephemeral,
            required: disk.required,
            shared: disk.shared,
            content: disk.content,
            proof: disk.proof,
            proof_seconds: disk.proof_seconds.unwrap_or(DEFAULT_PROOF_SECONDS),
            approve_above,
            new: disk.new,
            label: disk.label.clone(),
            reserved_percent: disk.reserved_percent,
            mkfs_options: disk.mkfs_options.clone(),
            discard: disk.discard,
            encryption,
        }
    }

    fn name(&mut self) {
        let name = &self.disk.name;
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.bytes().all(known) || name.starts_with('-')
        {
            self.refuse(
                "name",
                format!("{name:?} is not a valid name: use 1 to {MAX_NAME_CHARS} lower-case letters, digits and -, not - first"),
            );
        }
    }

    /// Returns the size in bytes.
    fn matching(&mut self) -> Option<u64> {
        let matching = &self.disk.matching;
        let identities = [
            ("serial", &matching.serial),
            ("volume", &matching.volume),
            ("path", &matching.path),
        ];
        for (key, value) in identities {
            if value
                .as_deref()
                .is_some_and(|value| value.trim() != value || value.is_empty())
            {
                self.refuse(
                    &format!("match.{key}"),
                    "empty, or with spaces around it, so no disk can match; remove it or set it",
                );
            }
        }
        if matching.path.as_deref().is_some_and(|path| path.contains('/')) {
            self.refuse(
                "match.path",
                "must be only the name, as `ls /dev/disk/by-path` shows it, without the directory",
            );
        }
        self.partition();
        let partition = matching.part_uuid.is_some() || matching.part_label.is_some();
        let identity = partition || identities.iter().any(|(_, value)| value.is_some());
        if !identity && matching.size.is_none() && matching.order.is_none() {
            self.refuse(
                "match",
                "empty, so any disk would match; name the disk by serial, volume or path, or a partition by partUuid or partLabel",
            );
        } else if (!identity || matching.order.is_some()) && !matching.allow_positional {
            self.refuse(
                "match",
                                "size and order do not tell a disk from one that replaces it; set serial, volume or path, or set \
                                 allowPositional: true if the platform provides none of them",
            );
        }
        if matching.order == Some(0) {
            self.refuse("match.order", "starts at 1");
        }
        if matching.order.is_some() && matching.size.is_none() {
            self.refuse(
                "match.order",
                "needs size: among disks of all sizes, each added or removed disk would shift the order",
            );
        }
        let text = matching.size.as_deref()?;
        let bytes = size::parse(text).filter(|bytes| *bytes > 0);
        if bytes.is_none() {
            self.refuse(
                "match.size",
                format!("{text:?} is not a size; use e.g. 100Gi, 100G or a number of bytes"),
            );
        } else if self.disk.grow && identity && matching.order.is_none() {
            self.refuse(
                "match.size",
                "with serial, volume or path a disk that has grown would no longer match; remove size or grow",
            );
        }
        bytes
    }

    /// Returns the size above which an approval is needed.
    fn proof(&mut self) -> u64 {
        let disk = self.disk;
        if let Some(seconds) = disk.proof_seconds {
            if !(1..=MAX_PROOF_SECONDS).contains(&seconds) {
                self.refuse(
                    "proofSeconds",
                    format!(
                        "{seconds} is not between 1 and {MAX_PROOF_SECONDS}: the boot waits for it. `proof: full` reads the whole disk"
                    ),
                );
            } else if disk.proof != ProofKind::Timed {
                self.refuse(
                    "proofSeconds",
                    "only `proof: timed` has a time limit; remove one of them",
                );
            }
        }
        let Some(text) = disk.approve_above.as_deref() else {
            return DEFAULT_APPROVE_ABOVE;
        };
        size::parse(text).unwrap_or_else(|| {
            self.refuse(
                "approveAbove",
                format!("{text:?} is not a size; use e.g. 1Ti, 500G or a number of bytes"),
            );
            DEFAULT_APPROVE_ABOVE
        })
    }

    /// Checks the keys that name a partition.
    fn partition(&mut self) {
        let matching = &self.disk.matching;
        let label = matching.part_label.as_deref();
        let uuid = matching.part_uuid.as_deref();
        if let Some(message) = uuid.and_then(partition::uuid_objection) {
            self.refuse("match.partUuid", message);
        }
        if let Some(message) = label.and_then(partition::label_objection) {
            self.refuse("match.partLabel", message);
        }
        if (uuid.is_some() || label.is_some()) && matching.order.is_some() {
            self.refuse(
                "match.order",
                "counts whole disks; remove it if partUuid or partLabel is set",
            );
        }
    }

    /// Checks combinations of settings.
    fn shape(&mut self) {
        let disk = self.disk;
        let swap = disk.filesystem == DiskFilesystem::Swap;
        let shared_by_places = !disk.places.is_empty();
        let unmounted = disk.mount_point.is_none() && !shared_by_places;
        let seeds = disk.seed_from == SeedFrom::Existing;
        let clone = disk.content == DiskContent::ImageClone;
        for (wrong, key, message) in [
            (
                swap && disk.mount_point.is_some(),
                "mountPoint",
                "swap is not mounted",
            ),
            (swap && shared_by_places, "places", "swap is not mounted"),
            (
                shared_by_places && disk.mount_point.is_some(),
                "mountPoint",
                "cannot be combined with places: the filesystem is mounted either as a whole at mountPoint, or in directories \
                 at its places; remove one of them",
            ),
            (
                shared_by_places && disk.owner.is_some(),
                "owner",
                "with places only root has access to the root directory of the filesystem; set places[].owner instead",
            ),
            (
                unmounted && disk.owner.is_some(),
                "owner",
                "needs mountPoint: without it there is no directory to set the owner of",
            ),
            (
                unmounted && seeds,
                "seedFrom",
                "needs mountPoint: without it there is nothing to copy",
            ),
            (
                unmounted && !swap && !disk.options.is_empty(),
                "options",
                "need mountPoint",
            ),
            (swap && disk.grow, "grow", "swap cannot grow"),
            (swap && disk.shared, "shared", "swap cannot be shared between VMs"),
            (
                disk.ephemeral && disk.shared,
                "shared",
                "a disk that is new at each start of this VM cannot be shared with another",
            ),
            (
                clone && disk.shared,
                "content",
                "image-clone erases the disk, and the agent erases no disk that another VM may use; set shared: false, or \
                 remove content",
            ),
            (
                clone && disk.ephemeral,
                "content",
                "image-clone is for a volume that is cloned once; an emptyDisk (ephemeral: true) is blank at each start, so \
                 remove content",
            ),
            (
                clone && (disk.matching.part_uuid.is_some() || disk.matching.part_label.is_some()),
                "content",
                "image-clone erases a whole disk and cannot erase a partition; remove match.partUuid and match.partLabel, or \
                 content",
            ),
            (
                disk.encryption.is_some() && disk.shared,
                "shared",
                "only one VM at a time can open a LUKS2 container",
            ),
        ] {
            if wrong {
                self.refuse(key, message);
            }
        }
        match disk.reserved_percent {
            Some(_) if disk.filesystem != DiskFilesystem::Ext4 => {
                self.refuse("reservedPercent", "only ext4 reserves blocks for root");
            }
            Some(percent) if percent > 50 => {
                self.refuse("reservedPercent", format!("{percent} is more than 50"));
            }
            _ => {}
        }
    }

    fn label(&mut self) {
        let Some(label) = &self.disk.label else { return };
        let most = mkfs::label_bytes(self.disk.filesystem);
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':' | b'+');
        if label.is_empty() || label.starts_with('-') || !label.bytes().all(known) {
            self.refuse(
                "label",
                format!("{label:?} is not a valid label: use letters, digits and . _ : + -, not - first"),
            );
        } else if label.len() > most {
            let kind = self.disk.filesystem.word();
            self.refuse(
                "label",
                format!("{label:?} has {} bytes; {kind} allows {most}", label.len()),
            );
        }
    }

    /// Checks an owner; `at` is its key.
    fn owner(&mut self, at: &str, owner: &DiskOwner) -> Owner {
        for (key, value) in [("user", &owner.user), ("group", &owner.group)] {
            let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
            let wrong = |name: &str| name.is_empty() || name.starts_with('-') || !name.bytes().all(known);
            if value.as_deref().is_some_and(wrong) {
                self.refuse(&format!("{at}.{key}"), "neither a name nor a number");
            }
        }
        let mode = owner.mode.as_deref().map(|text| {
            let octal = text.bytes().all(|b| (b'0'..=b'7').contains(&b));
            u32::from_str_radix(text, 8)
                .ok()
                .filter(|mode| octal && *mode <= 0o7777)
        });
        if mode == Some(None) {
            self.refuse(&format!("{at}.mode"), "not an octal mode such as \"0711\"");
        }
        Owner {
            user: owner.user.clone(),
            group: owner.group.clone(),
            mode: mode.flatten(),
        }
    }

    fn encryption(&mut self) -> Option<Encryption> {
        let luks = &self.disk.encryption.as_ref()?.luks2;
        let key = if luks.key == TPM2 {
            KeySource::Tpm2
        } else {
            KeySource::File(luks.key.clone())
        };
        if let KeySource::File(path) = &key
            && !places::is_normal(path)
        {
            self.refuse(
                "encryption.luks2.key",
                "neither tpm2 nor the absolute path of a file",
            );
        }
        match luks.recovery_key.as_deref() {
            None if key == KeySource::Tpm2 => self.refuse(
                "encryption.luks2.recoveryKey",
                "required with tpm2: the key is lost if the TPM is lost or reset",
            ),
            Some(path) if !places::is_normal(path) => {
                self.refuse("encryption.luks2.recoveryKey", "not the absolute path of a file");
            }
            Some(path) if path == luks.key => {
                self.refuse(
                    "encryption.luks2.recoveryKey",
                    "the same file as key, so it cannot recover the disk",
                );
            }
            _ => {}
        }
        Some(Encryption {
            key,
            recovery: luks.recovery_key.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
