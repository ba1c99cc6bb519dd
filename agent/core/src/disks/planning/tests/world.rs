//! Model of a guest that applies steps: observed state and journal afterwards.

use super::*;
use crate::disks::{
    device::{DevNumber, Use},
    journal::{BindRecord, Entry, Progress},
    plan::{FormatIntent, Place},
    probe::{Content, Probe},
    seen::{Mapping, Mounted},
    wanted::Owner,
};

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) seen: Seen,
    pub(super) journal: Journal,
    /// Content of closed containers by name.
    pub(super) inner: BTreeMap<String, Probe>,
    /// Number of entries in directories of disks with places, by names of disk and directory.
    pub(super) directories: BTreeMap<(String, String), u64>,
}

impl World {
    pub(super) fn plan(&self, wanted: &[Wanted]) -> Plan {
        plan(wanted, &[], &self.seen, &self.journal)
    }

    pub(super) fn apply(&mut self, wanted: &[Wanted], plan: &Plan) {
        self.apply_first(wanted, plan, usize::MAX);
    }

    /// Applies the first steps of each disk.
    pub(super) fn apply_first(&mut self, wanted: &[Wanted], plan: &Plan, count: usize) {
        for step in &plan.common {
            self.file(step);
        }
        for disk in &plan.disks {
            let declared = wanted.iter().find(|declared| declared.name == disk.name).unwrap();
            for step in disk.steps.iter().take(count) {
                if !self.holds(declared, step) {
                    // mount(8) finds no such filesystem. The first failed step ends the disk's
                    // steps.
                    break;
                }
                self.step(declared, disk, step);
            }
        }
    }

    /// Whether the filesystem that a step mounts or fills exists. A container that was closed when
    /// the plan was made may contain another one.
    fn holds(&self, declared: &Wanted, step: &DiskStep) -> bool {
        let (mapping, expected) = match step {
            DiskStep::Mount {
                place: Place::Mapping { mapping },
                uuid,
                ..
            }
            | DiskStep::SwapOn {
                place: Place::Mapping { mapping },
                uuid,
                ..
            } => (mapping, Some(uuid)),
            DiskStep::Seed {
                place: Place::Mapping { mapping },
                ..
            } => (mapping, None),
            _ => return true,
        };
        let kind = declared.filesystem.word();
        match &self.seen.mappings[mapping].probe {
            Probe::HasData(content) if content.kind == kind => content
                .uuid
                .as_ref()
                .is_some_and(|uuid| expected.is_none_or(|expected| uuid == expected)),
            _ => false,
        }
    }

    fn file(&mut self, step: &DiskStep) {
        match step {
            DiskStep::WriteFile { path, text } => drop(self.seen.files.insert(path.clone(), text.clone())),
            DiskStep::RemoveFile { path } => assert!(self.seen.files.remove(path).is_some()),
            _ => {}
        }
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each step")]
    fn step(&mut self, declared: &Wanted, plan: &DiskPlan, step: &DiskStep) {
        let name = &declared.name;
        let device = plan.device.clone().unwrap();
        match step {
            DiskStep::ClearUnfinished(intent) => {
                assert_eq!(intent.device, device);
                self.seen.probes.insert(name.clone(), nothing(declared));
            }
            DiskStep::EraseClone(intent) => {
                assert_eq!(intent.device, device);
                self.seen.clones.remove(name);
                self.seen.probes.insert(name.clone(), nothing(declared));
            }
            DiskStep::Format(intent) => {
                self.entry(intent, Progress::Formatted, None);
                self.seen
                    .probes
                    .insert(name.clone(), made(&intent.filesystem, &intent.uuid));
                self.seen.uuids.insert(intent.uuid.clone(), vec![device]);
            }
            DiskStep::Encrypt { intent, .. } => {
                self.entry(intent, Progress::Encrypted, Some(intent.uuid.clone()));
                self.seen
                    .probes
                    .insert(name.clone(), made("crypto_LUKS", &intent.uuid));
                self.inner.insert(name.clone(), data("", None));
            }
            DiskStep::Open {
                mapping, luks_uuid, ..
            } => {
                let minor = u32::try_from(self.seen.mappings.len()).unwrap();
                let size = device.size - (16 << 20);
                let inner = self.inner.get(name).cloned().unwrap_or_else(|| data("", None));
                let mapped = Mapping {
                    number: DevNumber { major: 254, minor },
                    luks_uuid: luks_uuid.clone(),
                    size,
                    could_be: size,
                    probe: inner,
                };
                assert!(self.seen.mappings.insert(mapping.clone(), mapped).is_none());
                self.used(&device.name, Use::Holder(format!("dm-{minor}")));
            }
            DiskStep::FormatMapped { mapping, intent } => {
                let entry = self
                    .journal
                    .entries
                    .iter()
                    .find(|entry| entry.name == *name)
                    .unwrap();
                let header = entry.luks_uuid.clone();
                let mapped = self.seen.mappings.get_mut(mapping).unwrap();
                assert_eq!(Some(&mapped.luks_uuid), header.as_ref());
                mapped.probe = made(&intent.filesystem, &intent.uuid);
                self.entry(intent, Progress::Formatted, header);
            }
            DiskStep::Seed { .. } => self.advance(declared, plan, Progress::Seeded),
            DiskStep::WriteFile { .. } | DiskStep::RemoveFile { .. } => self.file(step),
            DiskStep::MakeMountPoint { path } => self.seen.mount_points.get_mut(path).unwrap().exists = true,
            DiskStep::Mount {
                place,
                mount_point,
                options,
                filesystem,
                uuid,
            } => {
                self.advance(declared, plan, Progress::Used);
                self.mount(declared, place, mount_point, filesystem, uuid, options);
                self.used(&device.name, Use::Mounted(mount_point.clone()));
            }
            DiskStep::MakeDirectory {
                mount_point,
                directory,
                path,
                copy,
                ..
            } => {
                assert!(
                    self.seen
                        .mounts
                        .iter()
                        .any(|mount| mount.mount_point == *mount_point)
                );
                let there = self.seen.mount_points[path].entries;
                assert!(self.seen.mount_points[path].exists);
                let known = (name.clone(), directory.clone());
                // A directory with files is not changed.
                if self.directories.get(&known).is_none_or(|entries| *entries == 0) {
                    self.directories.insert(known, if *copy { there } else { 0 });
                }
            }
            DiskStep::Bind {
                place,
                mount_point,
                directory,
                path,
            } => {
                self.record(name, directory, path);
                self.bind(declared, self.number(place), mount_point, directory, path);
                self.used(&device.name, Use::Mounted(path.clone()));
            }
            DiskStep::RecordBind { directory, path } => self.record(name, directory, path),
            DiskStep::SwapOn { place, .. } => {
                self.advance(declared, plan, Progress::Used);
                let number = self.number(place);
                assert!(self.seen.swaps.insert(number));
                self.used(&device.name, Use::Swap);
            }
            DiskStep::RecordUse { uuid, .. } => self.remember(plan, uuid),
            DiskStep::Remount {
                mount_point, options, ..
            } => {
                let mount = self
                    .seen
                    .mounts
                    .iter_mut()
                    .rfind(|mount| mount.mount_point == *mount_point)
                    .unwrap();
                mount.options.clone_from(options);
            }
            DiskStep::GrowMapping { mapping, .. } => {
                let mapped = self.seen.mappings.get_mut(mapping).unwrap();
                mapped.size = mapped.could_be;
            }
            DiskStep::Grow {
                mount_point,
                from,
                to,
                ..
            } => {
                let mount = self
                    .seen
                    .mounts
                    .iter_mut()
                    .rfind(|mount| mount.mount_point == *mount_point)
                    .unwrap();
                assert_eq!(mount.filesystem_bytes, Some(*from));
                assert!(from < to);
                mount.filesystem_bytes = Some(*to);
            }
            DiskStep::Own { mount_point, owner } => {
                let mount = self
                    .seen
                    .mounts
                    .iter_mut()
                    .rfind(|mount| mount.mount_point == *mount_point)
                    .unwrap();
                let has = mount.owner.get_or_insert_default();
                has.mode = owner.mode.or(has.mode);
                has.user = owner.user.as_ref().map(|_| "0".to_owned()).or(has.user.take());
                has.group = owner.group.as_ref().map(|_| "0".to_owned()).or(has.group.take());
            }
        }
    }

    fn mount(
        &mut self,
        declared: &Wanted,
        place: &Place,
        at: &str,
        filesystem: &str,
        uuid: &str,
        options: &[String],
    ) {
        let number = self.number(place);
        let probe = match place {
            Place::Mapping { mapping } => &self.seen.mappings[mapping].probe,
            Place::Disk(_) => &self.seen.probes[&declared.name],
        };
        let Probe::HasData(content) = probe else {
            panic!("{probe:?} is mounted")
        };
        assert_eq!(content.kind, filesystem);
        assert_eq!(content.uuid.as_deref(), Some(uuid));
        let size = match place {
            Place::Disk(device) => device.size,
            Place::Mapping { mapping } => self.seen.mappings[mapping].size,
        };
        let mount = Mounted {
            mount_point: at.to_owned(),
            number,
            root: "/".into(),
            filesystem: filesystem.into(),
            options: options.to_vec(),
            // No kernel mounts a filesystem that is larger than its device.
            filesystem_bytes: Some(content.filesystem_bytes.map_or(size, |bytes| bytes.min(size))),
            owner: Some(Owner {
                user: Some("0".into()),
                group: Some("0".into()),
                mode: Some(0o755),
            }),
        };
        assert!(self.seen.mount_points[at].exists, "{at}");
        assert!(
            !self.seen.mounts.iter().any(|mount| mount.mount_point == at),
            "{at} is taken"
        );
        self.seen.mounts.push(mount);
    }

    /// Result of `mount --bind`.
    pub(super) fn bind(
        &mut self,
        declared: &Wanted,
        number: DevNumber,
        whole: &str,
        directory: &str,
        path: &str,
    ) {
        let mounts = &self.seen.mounts;
        let whole = mounts.iter().rfind(|mount| mount.mount_point == whole).unwrap();
        assert_eq!(whole.number, number);
        assert!(
            self.directories
                .contains_key(&(declared.name.clone(), directory.to_owned()))
        );
        assert!(self.seen.mount_points[path].exists, "{path}");
        assert!(
            !mounts.iter().any(|mount| mount.mount_point == path),
            "{path} is taken"
        );
        let bind = declared.binds.iter().find(|bind| bind.path == path).unwrap();
        let owner = bind.owner.clone().unwrap_or_default();
        let mount = Mounted {
            mount_point: path.to_owned(),
            root: format!("/{directory}"),
            filesystem_bytes: None,
            owner: Some(Owner {
                user: Some("0".into()),
                group: Some("0".into()),
                mode: Some(owner.mode.unwrap_or(0o755)),
            }),
            ..whole.clone()
        };
        self.seen.mounts.push(mount);
    }

    fn record(&mut self, name: &str, directory: &str, path: &str) {
        let mut entries = self.journal.entries.iter_mut();
        let entry = entries.find(|entry| entry.name == name).unwrap();
        assert_eq!(entry.progress, Progress::Used);
        entry.binds.retain(|record| record.directory != directory);
        entry.binds.push(BindRecord {
            directory: directory.to_owned(),
            path: path.to_owned(),
            used: true,
            copied: None,
        });
    }

    fn number(&self, place: &Place) -> DevNumber {
        match place {
            Place::Disk(device) => device.number,
            Place::Mapping { mapping } => self.seen.mappings[mapping].number,
        }
    }

    fn used(&mut self, name: &str, used: Use) {
        let device = self
            .seen
            .devices
            .iter_mut()
            .find(|device| device.id.name == name)
            .unwrap();
        device.uses.push(used);
    }

    /// Journal before and after a format, which uses up an approval.
    fn entry(&mut self, intent: &FormatIntent, progress: Progress, luks_uuid: Option<String>) {
        self.journal
            .approvals
            .retain(|approval| approval.name != intent.name);
        self.journal.entries.retain(|entry| entry.name != intent.name);
        self.journal.entries.push(Entry {
            key: intent.key.clone(),
            progress,
            device: intent.device.clone(),
            boot_id: self.seen.boot_id.clone(),
            filesystem: intent.filesystem.clone(),
            uuid: intent.uuid.clone(),
            luks_uuid,
            evidence: intent.evidence.clone(),
            ..entry(&intent.name, &device(0, None), progress)
        });
    }

    /// Journal entry for a disk that another program mounted.
    fn remember(&mut self, plan: &DiskPlan, uuid: &str) {
        let entries = &mut self.journal.entries;
        let before = entries.iter().position(|entry| entry.name == plan.name);
        let before = before.map(|at| entries.remove(at));
        let device = plan.device.clone().unwrap();
        entries.push(Entry {
            uuid: uuid.to_owned(),
            progress: Progress::Used,
            device,
            ..before.unwrap_or_else(|| entry(&plan.name, &super::device(0, None), Progress::Used))
        });
    }

    /// Journal entry for a disk that is used unchanged, seeded, or mounted.
    fn advance(&mut self, declared: &Wanted, plan: &DiskPlan, progress: Progress) {
        let seen = &self.seen;
        let inner = seen
            .mappings
            .get(&format!("virtfleet-{}", declared.name))
            .filter(|_| declared.encryption.is_some());
        let probe = inner.map_or_else(|| &seen.probes[&declared.name], |mapping| &mapping.probe);
        let Probe::HasData(Content { uuid: Some(uuid), .. }) = probe else {
            panic!("{probe:?} is taken")
        };
        let before = self
            .journal
            .entries
            .iter()
            .find(|entry| entry.name == declared.name);
        let binds = before
            .filter(|before| before.uuid == *uuid)
            .map(|before| before.binds.clone());
        let taken = Entry {
            binds: binds.unwrap_or_default(),
            key: plan.key.clone().unwrap(),
            progress,
            device: plan.device.clone().unwrap(),
            uuid: uuid.clone(),
            luks_uuid: inner.map(|mapping| mapping.luks_uuid.clone()),
            ..entry(&declared.name, &device(0, None), progress)
        };
        self.journal.entries.retain(|entry| entry.name != declared.name);
        self.journal.entries.push(taken);
    }
}

fn made(kind: &str, uuid: &str) -> Probe {
    Probe::HasData(Content {
        complete: Some(true),
        ..content(kind, Some(uuid))
    })
}

fn nothing(declared: &Wanted) -> Probe {
    Probe::Blank(crate::disks::Blankness {
        proof: declared.proof,
        regions: 1,
        bytes: 1,
        ..crate::disks::Blankness::default()
    })
}
