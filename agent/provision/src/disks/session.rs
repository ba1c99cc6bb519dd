//! State that a run carries from step to step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use virtfleet_agent_core::disks::{
    Blankness, Content, DeviceId, FormatIntent, Probe, Refusal,
    journal::{AuditRecord, BindRecord, Entry, Evidence, FORMAT, Progress},
};
use virtfleet_agent_host::{JournalStore, Tool, UNDO_DIRECTORY, clock};

use crate::engine::error_chain;

use super::{observed::Observed, provisioner::DiskProvisioner, step_result::StepError, unread};

/// The state of one run: the journal, what the run changed, and whether systemd must read units
/// again.
pub(super) struct Session<'e> {
    pub(super) provisioner: &'e DiskProvisioner<'e>,
    pub(super) observed: Observed,
    pub(super) changed: bool,
    /// True if units were written that systemd has not read.
    pub(super) unread: bool,
    /// True if a disk's steps ended before its line of fstab was written. The planned texts of
    /// later disks contain that line.
    pub(super) fstab_stale: bool,
    /// Mount points of this run. What was observed below them is now hidden.
    pub(super) mounted: Vec<String>,
    /// Mount points of disks that this run failed to mount, with the disks' names.
    pub(super) failed: Vec<(String, String)>,
    /// Stamps ([`virtfleet_agent_host::stamp_of`]) of the files that this run copied to a disk, by
    /// the disk's name, or by path for those of a place.
    pub(super) copied: BTreeMap<String, u64>,
    /// Disks that this run cleared, with the proof that they are blank since.
    pub(super) cleared: BTreeMap<String, Blankness>,
    /// Disks whose container no key opens.
    pub(super) shut: BTreeMap<String, Refusal>,
    /// Disks whose container this run has opened with the recovery key.
    pub(super) recovered: BTreeSet<String>,
    /// Content of disks after this run's steps.
    pub(super) made: Vec<(String, Probe)>,
    /// Errors of steps that belong to no disk.
    pub(super) failures: Vec<String>,
}

impl<'e> Session<'e> {
    pub(super) fn new(provisioner: &'e DiskProvisioner<'e>, observed: Observed) -> Self {
        Self {
            provisioner,
            observed,
            changed: false,
            unread: provisioner.systemd && unread::is_marked(provisioner.roots),
            fstab_stale: false,
            mounted: Vec::new(),
            failed: Vec::new(),
            copied: BTreeMap::new(),
            cleared: BTreeMap::new(),
            shut: BTreeMap::new(),
            recovered: BTreeSet::new(),
            made: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// A fail point between two effects.
    pub(super) fn at(&self, disk: &str, point: &str) {
        self.provisioner.fail_points.at(&format!("{disk} {point}"));
    }

    /// The journal. Without it nothing destructive is done.
    pub(super) fn store(&self) -> Result<&JournalStore, StepError> {
        match &self.observed.store {
            Ok(Some(store)) => Ok(store),
            Ok(None) => Err(StepError::new("there is no journal")),
            Err(reason) => Err(StepError::new(format!("the journal cannot be used: {reason}"))),
        }
    }

    pub(super) fn entry(&self, disk: &str) -> Option<&Entry> {
        self.observed
            .journal
            .entries
            .iter()
            .find(|entry| entry.name == disk)
    }

    /// Writes an entry to the journal and keeps it in the session.
    pub(super) fn write(&mut self, entry: Entry) -> Result<(), StepError> {
        self.store()?.write_entry(&entry)?;
        let entries = &mut self.observed.journal.entries;
        entries.retain(|other| other.name != entry.name);
        entries.push(entry);
        Ok(())
    }

    /// Keeps the first and the last MiB of a disk whose erasure an admin has approved. If that
    /// fails, the run logs it and continues.
    pub(super) fn keep_for_undo(&self, intent: &FormatIntent) {
        let judged = matches!(&intent.evidence, Evidence::Approved { digest: Some(_), .. });
        if judged {
            self.keep_ends(&intent.name, &intent.device);
        }
    }

    /// Keeps the first and the last MiB of a disk that is about to be erased, where that is
    /// possible.
    pub(super) fn keep_ends(&self, name: &str, device: &DeviceId) {
        let folder = self.provisioner.roots.root(UNDO_DIRECTORY);
        let at = clock().realtime_ns / 1_000_000_000;
        let disks = self.provisioner.disks();
        match disks.keep_for_undo(&folder, name, device, at) {
            Ok(files) => {
                let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                tracing::info!(disk = name, files = files.join(", "), "kept for undo");
            }
            Err(error) => {
                tracing::warn!(disk = name, %error, "its first and last MiB are not kept for undo");
            }
        }
    }

    /// Restores the entry that a disk had before, or removes the entry if it had none.
    pub(super) fn restore(&mut self, disk: &str, before: Option<Entry>) -> Result<(), StepError> {
        if let Some(entry) = before {
            return self.write(entry);
        }
        self.store()?.remove_entry(disk)?;
        self.observed.journal.entries.retain(|entry| entry.name != disk);
        Ok(())
    }

    /// Sets the progress of an entry.
    pub(super) fn progress(&mut self, disk: &str, progress: Progress) -> Result<(), StepError> {
        let mut entry = self.known_entry(disk)?;
        entry.progress = progress;
        self.write(entry)
    }

    /// The journal's record of a directory of a disk with places.
    pub(super) fn bind_record(&self, disk: &str, directory: &str) -> Option<&BindRecord> {
        let mut records = self.entry(disk)?.binds.iter();
        records.find(|record| record.directory == directory)
    }

    /// Writes the record of a directory, and replaces an earlier one.
    pub(super) fn record_bind(&mut self, disk: &str, record: BindRecord) -> Result<(), StepError> {
        if self.bind_record(disk, &record.directory) == Some(&record) {
            return Ok(());
        }
        let mut entry = self.known_entry(disk)?;
        entry.binds.retain(|other| other.directory != record.directory);
        entry.binds.push(record);
        self.write(entry)
    }

    /// Removes the record of a directory.
    pub(super) fn forget_bind(&mut self, disk: &str, directory: &str) -> Result<(), StepError> {
        let mut entry = self.known_entry(disk)?;
        entry.binds.retain(|other| other.directory != directory);
        self.write(entry)
    }

    fn known_entry(&self, disk: &str) -> Result<Entry, StepError> {
        let entry = self.entry(disk).cloned();
        entry.ok_or_else(|| StepError::new("the journal has no entry of it; make a new plan"))
    }

    /// The journal entry of an intent that is about to be carried out.
    pub(super) fn intended(
        &self,
        intent: &FormatIntent,
        uuid: &str,
        luks_uuid: Option<String>,
        filesystem: &str,
    ) -> Entry {
        Entry {
            format: FORMAT,
            name: intent.name.clone(),
            key: intent.key.clone(),
            progress: Progress::Intended,
            device: intent.device.clone(),
            boot_id: self.provisioner.boot_id.to_owned(),
            filesystem: filesystem.to_owned(),
            uuid: uuid.to_owned(),
            luks_uuid,
            evidence: intent.evidence.clone(),
            at_ns: clock().realtime_ns,
            arguments: intent.arguments.clone(),
            others_wrote: false,
            binds: Vec::new(),
        }
    }

    /// Writes an audit record for a step, before it (`about-to`) or after it.
    pub(super) fn audit(
        &self,
        moment: &str,
        step: &str,
        intent: &FormatIntent,
        content: Option<&Content>,
        error: Option<&StepError>,
    ) -> Result<(), StepError> {
        let record = AuditRecord {
            at_ns: clock().realtime_ns,
            boot_id: self.provisioner.boot_id.to_owned(),
            name: intent.name.clone(),
            moment: moment.to_owned(),
            step: step.to_owned(),
            device: intent.device.clone(),
            evidence: Some(intent.evidence.clone()),
            content: content.cloned(),
            uuid: Some(intent.uuid.clone()),
            tool: self.tool(intent),
            error: error.map(|error| error.0.clone()),
        };
        Ok(self.store()?.audit(&record)?)
    }

    /// The tool's command line and version.
    fn tool(&self, intent: &FormatIntent) -> String {
        let program = match intent.filesystem.as_str() {
            "swap" => "mkswap".to_owned(),
            "luks2" => "cryptsetup".to_owned(),
            filesystem => format!("mkfs.{filesystem}"),
        };
        // The e2fsprogs tools support only `-V`, and print to standard error.
        let version = Tool::new(&program).arg("-V").deadline(Duration::from_secs(5));
        let version = self
            .provisioner
            .commands
            .run(&version)
            .map(|done| done.stdout + &done.stderr);
        let version = version.unwrap_or_default();
        let version = version.lines().map(str::trim).find(|line| !line.is_empty());
        let arguments = intent.arguments.join(" ");
        format!(
            "{program} {arguments} /dev/{} ({})",
            intent.device.name,
            version.unwrap_or("version unknown")
        )
    }

    /// Removes an approval from the journal: it can be used only once.
    pub(super) fn use_approval(&mut self, intent: &FormatIntent) -> Result<(), StepError> {
        let Evidence::Approved { hash, .. } = &intent.evidence else {
            return Ok(());
        };
        let mut approvals = self.observed.journal.approvals.clone();
        approvals.retain(|approval| approval.name != intent.name || approval.hash != *hash);
        self.store()?.write_approvals(&approvals)?;
        self.observed.journal.approvals = approvals;
        Ok(())
    }

    /// Checks that the device is the one that the plan was made for.
    pub(super) fn same(&self, id: &DeviceId) -> Result<(), StepError> {
        let device = self.provisioner.disks().current(id)?;
        if device.is_some_and(|device| {
            let now = &device.id;
            (&now.name, now.number, now.diskseq, &now.serial) == (&id.name, id.number, id.diskseq, &id.serial)
                && now.place() == id.place()
        }) {
            Ok(())
        } else {
            Err(StepError::new(format!("/dev/{} is another device now", id.name)))
        }
    }

    /// Makes systemd read the units that were written.
    pub(super) fn reload(&mut self) {
        if self.unread && self.provisioner.systemd {
            self.failures
                .extend(unread::reload(self.provisioner).err().map(error_chain));
        }
        self.unread = false;
    }

    /// Starts a unit and waits for it.
    pub(super) fn start(&mut self, unit: &str) -> Result<(), StepError> {
        self.reload();
        let tool = Tool::new("systemctl")
            .args(["start", "--", unit])
            .deadline(Duration::from_mins(15));
        self.provisioner.commands.check(&tool)?;
        Ok(())
    }
}
