//! Files below `/etc` that mount a disk at the next boot.

use super::{
    super::{
        plan::{DiskStep, Refusal, RefusalKind},
        units::{FSTAB, Placing, bind_path, disk_of},
    },
    Run,
    case::Case,
};

impl<'a> Run<'a> {
    /// Adds the steps that write and remove files. The agent never overwrites a file that is not
    /// its own. `held` are places that are not mounted now: the agent neither writes nor removes
    /// their units.
    pub(super) fn files(
        &mut self,
        case: &Case<'a>,
        uuid: &str,
        held: &[&str],
        steps: &mut Vec<DiskStep>,
    ) -> Result<(), Refusal> {
        let first = *self.named.entry(uuid.to_owned()).or_insert(&case.disk.name);
        if first != case.disk.name {
            return Err(case.duplicate_uuid(uuid, &format!("the disk {first}")));
        }
        let mapping = case.disk.encryption.is_some().then(|| case.mapping_name());
        let placing = Placing {
            wanted: case.disk,
            uuid,
            mapping: mapping.as_deref(),
        };
        if !self.seen.systemd {
            let text = placing.fstab(&self.fstab, held);
            if text != self.fstab {
                self.fstab.clone_from(&text);
                steps.push(DiskStep::WriteFile {
                    path: FSTAB.to_owned(),
                    text,
                });
            }
            return Ok(());
        }
        let files = placing.files();
        let obsolete = self.seen.files.iter().filter(|(path, text)| {
            disk_of(text) == Some(case.disk.name.as_str()) && files.iter().all(|(wanted, _)| wanted != *path)
        });
        steps.extend(obsolete.map(|(path, _)| DiskStep::RemoveFile { path: path.clone() }));
        let binds = case.disk.binds.iter();
        let held: Vec<String> = binds
            .filter(|bind| held.contains(&bind.path.as_str()))
            .map(bind_path)
            .collect();
        for (path, text) in files.into_iter().filter(|(path, _)| !held.contains(path)) {
            match self.seen.files.get(&path) {
                Some(there) if *there == text => {}
                Some(there) if disk_of(there).is_none() => {
                    return Err(case.refuse(
                        RefusalKind::MountPointTaken,
                        format!("{path} exists and was not written by the agent"),
                        "remove that unit, or change mountPoint",
                        vec![("file", path)],
                    ));
                }
                _ => steps.push(DiskStep::WriteFile { path, text }),
            }
        }
        Ok(())
    }
}
