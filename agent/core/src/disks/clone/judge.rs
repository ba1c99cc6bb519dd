//! Compares a disk with the root disk, field by field.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::{
    super::{probe::Region, writes::WriteMark},
    CheckedPartition, CloneProof, Deviation, FirstBoot, NotProven,
    ext4::{self, Superblock, Volume},
    fat,
    gpt::{self, Entry, Gpt},
    source::{Source, first_difference, first_foreign, number, read},
};

/// Logical block sizes of both disks, and the root disk's kernel name.
#[derive(Debug, Clone, Copy)]
pub struct Sector<'a> {
    /// Logical block size of the clone in bytes.
    pub clone: u32,
    /// Logical block size of the root disk in bytes.
    pub root: u32,
    /// Kernel name of the root disk.
    pub root_name: &'a str,
}

/// Compares everything up to the end of the image. The caller must prove that the rest of the disk
/// is zero, and sets [`CloneProof::behind`] and [`CloneProof::behind_read`].
///
/// # Errors
///
/// A disk cannot be read, or differs from an untouched clone: with every difference.
pub fn judge(
    clone: &mut dyn Source,
    root: &mut dyn Source,
    sector: Sector<'_>,
    first_boot: &FirstBoot,
) -> Result<CloneProof, NotProven> {
    let mut run = Judgement {
        clone,
        root,
        first_boot,
        found: Vec::new(),
        digest: Sha256::new(),
    };
    let proof = run.compare(sector).map_err(NotProven::Unreadable)?;
    let proof = proof.filter(|_| run.found.is_empty());
    proof.ok_or(NotProven::Deviates(run.found))
}

struct Judgement<'a> {
    clone: &'a mut dyn Source,
    root: &'a mut dyn Source,
    first_boot: &'a FirstBoot,
    found: Vec<Deviation>,
    digest: Sha256,
}

impl Judgement<'_> {
    fn deviates(
        &mut self,
        place: impl Into<String>,
        field: &str,
        here: impl ToString,
        root: impl ToString,
        why: &str,
    ) {
        self.found.push(Deviation {
            place: place.into(),
            field: field.to_owned(),
            here: here.to_string(),
            root: root.to_string(),
            why: why.to_owned(),
        });
    }

    fn compare(&mut self, sector: Sector<'_>) -> Result<Option<CloneProof>, String> {
        const PLACE: &str = "partition table";
        if sector.clone != sector.root || ![512, 4096].contains(&sector.clone) {
            self.deviates(
                PLACE,
                "logical block size",
                sector.clone,
                sector.root,
                "a clone has the block size of the root disk",
            );
            return Ok(None);
        }
        let block = u64::from(sector.clone);
        let root = match gpt::parse(self.root, block, block)? {
            Ok(root) => root,
            Err(reason) => {
                self.deviates(
                    "partition table of the root disk",
                    "GPT",
                    reason,
                    "",
                    "without it a clone cannot be compared",
                );
                return Ok(None);
            }
        };
        let Some((here, backup)) = self.tables(block)? else {
            return Ok(None);
        };
        self.protective_mbr()?;
        self.same_layout(&here, &root);
        if !self.found.is_empty() {
            return Ok(None);
        }
        let image_bytes = backup.header + block;
        for part in [
            Region {
                offset: 0,
                length: here.array + here.array_length,
            },
            Region {
                offset: backup.array,
                length: image_bytes - backup.array,
            },
        ] {
            let bytes = read(self.clone, part.offset, part.length)?;
            self.digest.update(part.offset.to_le_bytes());
            self.digest.update(bytes);
        }
        self.digest.update(self.clone.size().to_le_bytes());
        self.compare_gaps(&here, &backup, block, image_bytes)?;
        let mut partitions = Vec::new();
        for entry in &here.entries {
            let other = root.entries.iter().find(|other| other.number == entry.number);
            let because = match other {
                Some(other) => self.partition(entry, other)?,
                None => None,
            };
            if let Some(because) = because {
                partitions.push(CheckedPartition {
                    number: entry.number,
                    start: entry.start,
                    length: entry.length,
                    because,
                });
            }
        }
        let mut digest = String::new();
        for byte in std::mem::take(&mut self.digest).finalize() {
            write!(digest, "{byte:02x}").ok();
        }
        Ok(Some(CloneProof {
            root: sector.root_name.to_owned(),
            image_bytes,
            disk_guid: gpt::guid(&here.disk_guid),
            partitions,
            first_boot: self.first_boot.clone(),
            digest,
            behind_read: 0,
            behind: self.clone.size().saturating_sub(image_bytes),
            largest_unread: self.clone.size().saturating_sub(image_bytes),
            writes: WriteMark::default(),
        }))
    }

    /// Both copies of the clone's table, if they agree.
    fn tables(&mut self, block: u64) -> Result<Option<(Gpt, Gpt)>, String> {
        const WHY: &str = "an image has both copies of its table, and they agree";
        let here = match gpt::parse(self.clone, block, block)? {
            Ok(here) => here,
            Err(reason) => {
                self.deviates(
                    "partition table",
                    "GPT",
                    reason,
                    "",
                    "only disks with a GPT can be compared",
                );
                return Ok(None);
            }
        };
        let backup = match gpt::parse(self.clone, block, here.other)? {
            Ok(backup) => backup,
            Err(reason) => {
                self.deviates("backup partition table", "GPT", reason, "", WHY);
                return Ok(None);
            }
        };
        let agree = backup.other == here.header
            && backup.disk_guid == here.disk_guid
            && backup.entries == here.entries
            && backup.array_crc == here.array_crc
            && here.array + here.array_length <= backup.array
            && backup.array + backup.array_length <= backup.header;
        if !agree {
            self.deviates(
                "backup partition table",
                "GPT",
                "differs from the first copy",
                "",
                WHY,
            );
            return Ok(None);
        }
        Ok(Some((here, backup)))
    }

    /// Checks the protective MBR (UEFI 2.10, 5.2.3). The boot code, 446 bytes with the disk
    /// signature, must equal the root disk's.
    fn protective_mbr(&mut self) -> Result<(), String> {
        const PLACE: &str = "master boot record";
        let here = read(self.clone, 0, 512)?;
        let there = read(self.root, 0, 512)?;
        let protective = here[446] == 0 || here[446] == 0x80;
        if !protective
            || here[450] != 0xee
            || number::<4>(&here, 454) != 1
            || here[462..510].iter().any(|byte| *byte != 0)
            || here[510..] != [0x55, 0xaa]
        {
            self.deviates(
                PLACE,
                "partition entries",
                "not one protective entry",
                "",
                "a hybrid table has partitions that the GPT does not have",
            );
        }
        let first = here[..446]
            .iter()
            .zip(&there)
            .position(|(here, there)| here != there);
        if let Some(at) = first
            && here[..446].iter().any(|byte| *byte != 0)
        {
            self.deviates(
                PLACE,
                &format!("byte {at}"),
                format!("{:#04x}", here[at]),
                format!("{:#04x}", there[at]),
                "the boot code is not the root disk's",
            );
        }
        Ok(())
    }

    /// Compares disk GUID and partitions.
    fn same_layout(&mut self, here: &Gpt, root: &Gpt) {
        if here.disk_guid != root.disk_guid {
            self.deviates(
                "partition table",
                "disk GUID",
                gpt::guid(&here.disk_guid),
                gpt::guid(&root.disk_guid),
                "it is not a clone of the root disk's image",
            );
        }
        let last = here.entries.iter().map(|entry| entry.start).max();
        for entry in &here.entries {
            let place = format!("partition {}", entry.number);
            let Some(other) = root.entries.iter().find(|other| other.number == entry.number) else {
                self.deviates(
                    place,
                    "partition",
                    "there",
                    "missing",
                    "the image does not have it",
                );
                continue;
            };
            let grown = last == Some(entry.start) && other.length >= entry.length;
            let guid = |entry: &Entry| gpt::guid(&entry.guid);
            let kind = |entry: &Entry| gpt::guid(&entry.type_guid);
            for (equal, field, here, there) in [
                (entry.guid == other.guid, "GUID", guid(entry), guid(other)),
                (
                    entry.type_guid == other.type_guid,
                    "type",
                    kind(entry),
                    kind(other),
                ),
                (
                    entry.start == other.start,
                    "start",
                    entry.start.to_string(),
                    other.start.to_string(),
                ),
                (
                    entry.length == other.length || grown,
                    "size",
                    entry.length.to_string(),
                    other.length.to_string(),
                ),
                (
                    entry.name == other.name,
                    "name",
                    gpt::name(&entry.name),
                    gpt::name(&other.name),
                ),
            ] {
                if !equal {
                    self.deviates(place.clone(), field, here, there, "the image has the root disk's");
                }
            }
        }
        for other in &root.entries {
            if !here.entries.iter().any(|entry| entry.number == other.number) {
                let place = format!("partition {}", other.number);
                self.deviates(
                    place,
                    "partition",
                    "missing",
                    "there",
                    "the image has the root disk's",
                );
            }
        }
        if here.entries.is_empty() {
            self.deviates(
                "partition table",
                "partitions",
                "none",
                "",
                "an OS image has partitions",
            );
        }
    }

    /// Checks the bytes between the tables and the partitions, up to the end of the image.
    fn compare_gaps(&mut self, here: &Gpt, backup: &Gpt, block: u64, image: u64) -> Result<(), String> {
        let mut taken = vec![
            (0, 2 * block),
            (here.array, here.array + here.array_length),
            (backup.array, backup.array + backup.array_length),
            (backup.header, image),
        ];
        taken.extend(here.entries.iter().map(|entry| (entry.start, entry.end())));
        taken.sort_unstable();
        // From the end of the master boot record, if blocks are larger than 512 bytes.
        let mut gaps = vec![(512, block)];
        let mut end = 0;
        for (start, stop) in taken {
            gaps.push((end, start));
            end = end.max(stop);
        }
        for (start, stop) in gaps {
            if start >= stop {
                continue;
            }
            let region = Region {
                offset: start,
                length: stop - start,
            };
            if let Some((at, here, there)) = first_foreign(self.clone, self.root, region)? {
                self.deviates(
                    "outside the partitions",
                    &format!("byte {at}"),
                    format!("{here:#04x}"),
                    format!("{there:#04x}"),
                    "it is neither zero nor what the root disk has there",
                );
            }
        }
        Ok(())
    }

    /// Returns why the partition is untouched; `None` if that is not proven.
    fn partition(&mut self, entry: &Entry, other: &Entry) -> Result<Option<String>, String> {
        let here = volume(self.clone, entry).superblock()?;
        let there = volume(self.root, other).superblock()?;
        match (here, there) {
            (Some(Ok(here)), Some(Ok(there))) => {
                self.digest.update(&here.raw);
                if here.raw == there.raw {
                    // Neither clone nor root disk is mounted.
                    return self.identical(entry);
                }
                self.ext4(entry, other, &here, &there)
            }
            (Some(Err(reason)), _) => {
                let place = format!("partition {}", entry.number);
                self.deviates(place, "ext4", reason, "", "it cannot be judged");
                Ok(None)
            }
            _ => self.identical(entry),
        }
    }

    fn ext4(
        &mut self,
        entry: &Entry,
        other: &Entry,
        here: &Superblock,
        there: &Superblock,
    ) -> Result<Option<String>, String> {
        let place = format!("partition {} (ext4)", entry.number);
        let deviations = ext4::compare(here, there, self.first_boot.at);
        if !deviations.is_empty() {
            for one in deviations {
                self.deviates(place.clone(), one.field, one.here, one.root, one.why);
            }
            return Ok(None);
        }
        let rest = Region {
            offset: entry.start + here.bytes(),
            length: entry.length - here.bytes(),
        };
        if let Some((at, here, there)) = first_foreign(self.clone, self.root, rest)? {
            self.deviates(
                place,
                &format!("byte {at}, after the filesystem"),
                format!("{here:#04x}"),
                format!("{there:#04x}"),
                "it is neither zero nor what the root disk has there",
            );
            return Ok(None);
        }
        let inodes = ext4::inodes(
            &mut volume(self.clone, entry),
            here,
            &mut volume(self.root, other),
            there,
            self.first_boot.at,
        )?;
        if let Some((inode, changed)) = inodes.late {
            self.deviates(
                place,
                &format!("time of change of inode {inode}"),
                changed,
                format!("first boot {}", self.first_boot.at),
                "a file was changed after this VM's first boot",
            );
            return Ok(None);
        }
        let counts = format!(
            "mounted {} times, on the root disk {}; last write {} s before the first boot",
            here.mounts,
            there.mounts,
            self.first_boot.at - here.last_write
        );
        match inodes.shared_inode {
            _ if here.last_mount == 0 => Ok(Some(format!("ext4, never mounted since it was made; {counts}"))),
            Some((inode, _)) => Ok(Some(format!(
                "ext4, last mounted while the image was built: inode {inode} was changed after that and is the same on the root \
                 disk; {counts}"
            ))),
            None => {
                self.deviates(
                    place,
                    "last mount",
                    here.last_mount,
                    there.last_mount,
                    "no file that was changed since that mount is the same on the root disk, so it may have been mounted after it \
                     was cloned",
                );
                Ok(None)
            }
        }
    }

    /// Accepts a partition that is equal to the root disk's: it contains nothing that could be
    /// lost.
    fn identical(&mut self, entry: &Entry) -> Result<Option<String>, String> {
        let region = Region {
            offset: entry.start,
            length: entry.length,
        };
        let boot = read(self.clone, entry.start, entry.length.min(512))?;
        // Linux sets the "dirty" bit here while the root disk's EFI system partition is mounted
        // (`fs/fat/inode.c`, fat_set_state).
        let there = read(self.root, entry.start, entry.length.min(512))?;
        let dirty = fat::state_byte(&boot)
            .filter(|at| boot[*at] & 1 == 0 && there[*at] == boot[*at] | 1)
            .map(|at| entry.start + at as u64);
        let Some((at, here, there)) = first_difference(self.clone, self.root, region, dirty.as_slice())?
        else {
            return Ok(Some("every byte is as on the root disk".to_owned()));
        };
        self.deviates(
            format!("partition {}", entry.number),
            &format!("byte {at}"),
            format!("{here:#04x}"),
            format!("{there:#04x}"),
            "it is not ext4, so only a copy of the root disk's partition is accepted, and it differs",
        );
        Ok(None)
    }
}

fn volume<'a>(source: &'a mut dyn Source, entry: &Entry) -> Volume<'a> {
    Volume {
        source,
        start: entry.start,
        length: entry.length,
    }
}
