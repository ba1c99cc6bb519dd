//! Snapshots: a guest is booted once for each VM shape, and tests resume from its memory in half a
//! second.
//!
//! A snapshot is stored next to its image, so a changed image has none. Its name contains a hash of
//! everything that it depends on: the kind, QEMU's version, the VM's shape and, for a booted guest,
//! the seed's text. This text is also stored in the snapshot and compared.

use std::{
    collections::hash_map::DefaultHasher,
    fmt, fs,
    hash::{Hash as _, Hasher as _},
    io::{self, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    accel::{Accel, qemu_version},
    content,
    image::Image,
    layout,
    running::{BOOT, Guest},
    say,
    vm::Vm,
};
use crate::wait::eventually;

/// Maximum number of snapshots of an image; the most recently used are kept. Each takes about 250
/// MB.
const MAX_SNAPSHOTS: usize = 12;
/// Console output that means that cloud-init has failed.
const FAILURES: &[&str] = &["FAILED.*[Cc]loud-init", "Kernel panic"];

/// Start point of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the firmware, as in a boot without snapshots. The start waits for nothing.
    Cold,
    /// Booted, and cloud-init has finished with the VM's own seed. The guest agent answers.
    Booted,
    /// In the first boot, just before cloud-init's first stage, which runs as soon as the start
    /// returns.
    BeforeCloudInit,
}

/// A preparation of a booted guest that is made once and from which tests resume.
pub struct Prepared<'a> {
    /// Name of the prepared guest, for messages.
    pub name: &'a str,
    /// A text that changes whenever the steps would have another result.
    pub inputs: String,
    /// The preparation. It must leave no disk plugged in.
    pub steps: &'a dyn Fn(&Guest) -> Result<()>,
}

/// A snapshot from which no guest could be resumed; its name.
#[derive(Debug)]
pub(super) struct NotRestored(String);

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the snapshot {} does not restore and was removed", self.0)
    }
}

/// An existing snapshot.
#[derive(Debug, Clone)]
pub struct Golden {
    folder: PathBuf,
}

/// The snapshots of an image, most recently used first.
pub fn goldens(image: &Image) -> Result<Vec<Golden>> {
    let folder = image.goldens();
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut found: Vec<Golden> = entries
        .flatten()
        .map(|entry| Golden { folder: entry.path() })
        .filter(|golden| golden.folder.join("shape").exists())
        .collect();
    found.sort_by_key(|golden| std::cmp::Reverse(golden.used()));
    Ok(found)
}

impl Golden {
    /// Its name: kind and hash.
    pub fn name(&self) -> String {
        self.folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
    /// When a guest was last started from it.
    pub fn used(&self) -> SystemTime {
        fs::metadata(self.folder.join("used"))
            .and_then(|about| about.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }
    /// Its size on the disk, in bytes.
    pub fn size(&self) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        files
            .filter_map(|file| file.metadata().ok())
            .map(|about| about.blocks() * 512)
            .sum()
    }
    /// Removes it, if no other process has done so.
    pub fn remove(self) -> Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.folder.display()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.folder.join("root.qcow2")
    }
    pub(super) fn seed(&self) -> PathBuf {
        self.folder.join("seed.img")
    }
    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }
    fn touch(&self) -> Result<()> {
        let path = self.folder.join("used");
        fs::write(&path, "").with_context(|| format!("write {}", path.display()))
    }

    /// The snapshot for `vm`; `None` if it does not exist.
    pub(super) fn find(
        image: &Image,
        vm: &Vm,
        accel: Accel,
        start: Start,
    ) -> Result<(PathBuf, String, Option<Self>)> {
        let kind = if start == Start::Booted {
            "booted"
        } else {
            "before-cloud-init"
        };
        Self::named(image, kind, key(vm, accel, start)?)
    }

    /// The snapshot of a guest that was restored from this one and `prepared`; `None` if it does
    /// not exist. Its root disk is a layer over this one's, so it is valid only with the snapshot
    /// from which it was made.
    pub(super) fn find_prepared(
        &self,
        image: &Image,
        prepared: &Prepared,
    ) -> Result<(PathBuf, String, Option<Self>)> {
        self.touch()?;
        let state = self.state();
        let about = fs::metadata(&state).with_context(|| format!("look at {}", state.display()))?;
        let made = about.modified().context("when a snapshot was made")?;
        let text = format!(
            "{}\n{made:?}\n{}\n{}\n",
            self.name(),
            prepared.name,
            prepared.inputs
        );
        Self::named(image, "prepared", text)
    }

    fn named(image: &Image, kind: &str, text: String) -> Result<(PathBuf, String, Option<Self>)> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let folder = image.goldens().join(format!("{kind}-{:016x}", hasher.finish()));
        let same = fs::read_to_string(folder.join("shape")).is_ok_and(|there| there == text);
        let golden = same.then(|| Self {
            folder: folder.clone(),
        });
        if let Some(golden) = &golden {
            golden.touch()?;
        }
        Ok((folder, text, golden))
    }

    /// Takes a guest that was started cold, with root disk and seed in `new`, to the start point
    /// and creates the snapshot.
    pub(super) fn make(
        image: &Image,
        guest: &Guest,
        start: Start,
        new: &Path,
        place: (PathBuf, String),
    ) -> Result<Self> {
        let begun = Instant::now();
        if start == Start::BeforeCloudInit {
            guest.wait_console("TESTHOLD", FAILURES, BOOT)?;
        } else {
            if guest.vm().seed.is_some() {
                guest.wait_console("finished at", FAILURES, BOOT)?;
            }
            guest.wait_agent(BOOT)?;
            let state = guest.sh("systemctl is-system-running --wait; sync")?.stdout;
            ensure!(
                state.trim() == "running",
                "the guest to be kept is {}: {}",
                state.trim(),
                guest.sh("systemctl --failed --no-legend")?.stdout
            );
        }
        Self::keep(image, guest, new, place, begun)
    }

    /// As [`Golden::make`], for a guest restored from this snapshot: prepares it first.
    pub(super) fn make_prepared(
        &self,
        image: &Image,
        guest: &Guest,
        prepared: &Prepared,
        new: &Path,
        place: (PathBuf, String),
    ) -> Result<Self> {
        let begun = Instant::now();
        self.restore(guest, Start::Booted)?;
        (prepared.steps)(guest).with_context(|| format!("prepare a guest: {}", prepared.name))?;
        guest.run("sync")?;
        Self::keep(image, guest, new, place, begun)
    }

    fn keep(
        image: &Image,
        guest: &Guest,
        new: &Path,
        (folder, text): (PathBuf, String),
        begun: Instant,
    ) -> Result<Self> {
        guest.state().qmp()?.save(&new.join("state"))?;
        guest.cut_power();
        fs::write(new.join("shape"), text)?;
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
        }
        fs::rename(new, &folder).with_context(|| format!("rename {}", new.display()))?;
        let golden = Self { folder };
        golden.touch()?;
        say(&format!(
            "{} is there after {:.1} s",
            golden.name(),
            begun.elapsed().as_secs_f64()
        ));
        for old in goldens(image)?.into_iter().skip(MAX_SNAPSHOTS) {
            say(&format!(
                "removing {}, which was not used for longest",
                old.name()
            ));
            old.remove()?;
        }
        Ok(golden)
    }

    /// Resumes `guest`, whose root disk is a layer over the snapshot's, from the snapshot.
    ///
    /// # Errors
    ///
    /// [`NotRestored`], after the snapshot is removed, so that the next start makes it again.
    pub(super) fn restore(&self, guest: &Guest, start: Start) -> Result<()> {
        let Err(error) = self.resume(guest, start) else {
            return Ok(());
        };
        self.clone().remove()?;
        Err(error.context(NotRestored(self.name())))
    }

    fn resume(&self, guest: &Guest, start: Start) -> Result<()> {
        guest.launch(guest.vm(), true, true)?;
        let restored = guest.state().qmp()?.restore(&self.state());
        restored.map_err(|error| error.context(guest.tail()))?;
        let parts = std::mem::take(&mut guest.state().parts);
        if start == Start::BeforeCloudInit {
            for part in &parts {
                guest.plug_disk_part(part)?;
            }
            let hold = guest.places().file("hold.sock");
            let mut line =
                UnixStream::connect(&hold).with_context(|| format!("connect to {}", hold.display()))?;
            // Repeated, because input that arrives before the guest has opened the line is lost.
            return eventually(Duration::from_mins(1), "TESTGO on the console", || {
                line.write_all(b"go\n").context("let the boot go on")?;
                ensure!(guest.console().contains("TESTGO"), "not yet");
                Ok(())
            })
            .with_context(|| guest.tail());
        }
        guest.wait_agent(Duration::from_mins(1))?;
        guest.set_clock()?;
        for part in &parts {
            guest.plug_disk_part(part)?;
        }
        if !parts.is_empty() {
            guest.run("udevadm settle")?;
        }
        Ok(())
    }
}

/// Everything that a snapshot depends on, except its image.
fn key(vm: &Vm, accel: Accel, start: Start) -> Result<String> {
    let seed = match (&vm.seed, start) {
        (None, _) => "no seed".to_owned(),
        (Some(seed), Start::Booted) => format!("{seed:?}"),
        // The seed's content is read later; its source and format are detected before the snapshot.
        (Some(seed), _) => format!("{:?} {:?}", seed.source, seed.format),
    };
    Ok(format!(
        "{start:?}\n{}\n{}\n{seed}\n",
        qemu_version()?,
        layout::shape(vm, accel)
    ))
}

/// Creates an empty folder for a new snapshot.
fn fresh(new: &Path) -> Result<()> {
    if new.exists() {
        fs::remove_dir_all(new).with_context(|| format!("remove {}", new.display()))?;
    }
    fs::create_dir_all(new).with_context(|| format!("create {}", new.display()))
}

/// Creates the files of a new snapshot based on another one: a root disk layer, and a copy of its
/// seed.
pub(super) fn prepare_over(base: &Golden, vm: &Vm, new: &Path) -> Result<()> {
    fresh(new)?;
    content::overlay(&new.join("root.qcow2"), &base.root(), "qcow2")?;
    if vm.seed.is_some() {
        fs::copy(base.seed(), new.join("seed.img")).context("copy the seed")?;
    }
    Ok(())
}

/// Creates the files of a new snapshot: a root disk layer over the image's, and the seed.
pub(super) fn prepare(image: &Image, vm: &Vm, new: &Path) -> Result<()> {
    fresh(new)?;
    content::overlay(&new.join("root.qcow2"), &image.file("root.img"), "raw")?;
    match &vm.seed {
        Some(seed) => content::seed(seed, &new.join("seed.img"), new),
        None => Ok(()),
    }
}
