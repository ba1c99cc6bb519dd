//! Loop devices over sparse files, for tests as root. They never outlive their test, even if it is
//! killed.

use std::{
    env,
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};
use virtfleet_agent_core::disks::{
    Blankness, Device, FormatIntent, Key, Probe, Wanted, journal::Evidence, mkfs,
};
use virtfleet_agent_host::{
    Roots, SystemCommands,
    disks::{Disks, Kinds},
};
use virtfleet_wire::settings::{DiskContent, DiskFilesystem, ProofKind, SeedFrom};

use crate::{process::Launch, skip, swap};

/// Timeout of a tool on a busy machine.
const DEADLINE: Duration = Duration::from_mins(2);

/// Requires root and loop devices; for [`skip::need`].
pub fn needs() -> Result<()> {
    skip::root()?;
    anyhow::ensure!(
        Path::new("/dev/loop-control").exists(),
        "there is no /dev/loop-control"
    );
    skip::program("losetup").map(drop)
}

/// Lock for attaching: one test at a time attaches, until this value is dropped. Two losetup(8)
/// processes that find the same free device both open it, and a concurrent probe would see another
/// program with the device open for writing.
fn turn() -> Result<Flock<File>> {
    let path = env::temp_dir().join("virtfleet-loops.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("open {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .with_context(|| format!("lock {}", path.display()))
}

/// A loop device.
///
/// It is marked for autoclear right after its creation, and this value holds it open: the kernel
/// detaches it when this value is dropped, and when the test is killed.
#[derive(Debug)]
pub struct Loop {
    node: PathBuf,
    held: File,
}

impl Loop {
    /// Attaches a file.
    pub fn attach(image: &Path) -> Result<Self> {
        Self::attach_with(image, &[])
    }

    /// Attaches a file with further arguments of losetup(8).
    pub fn attach_with(image: &Path, arguments: &[&str]) -> Result<Self> {
        let _turn = turn()?;
        let node = Launch::new("losetup")
            .args(["--find", "--show"])
            .args(arguments)
            .arg(image)
            .text(DEADLINE)?;
        Self::hold(PathBuf::from(node.trim()))
    }

    fn hold(node: PathBuf) -> Result<Self> {
        let held = OpenOptions::new().read(true).open(&node);
        // Detaching a device that is open only marks it for autoclear.
        let marked = Launch::new("losetup").arg("--detach").arg(&node).text(DEADLINE);
        let held = held.with_context(|| format!("open {}", node.display()))?;
        marked?;
        Ok(Self { node, held })
    }

    /// Attaches a file to a free node.
    pub fn attach_at(node: &Path, image: &Path) -> Result<Self> {
        let _turn = turn()?;
        Launch::new("losetup").arg(node).arg(image).text(DEADLINE)?;
        Self::hold(node.to_owned())
    }

    /// Creates a sparse file of that many bytes in the folder and attaches it.
    pub fn blank(folder: &Path, name: &str, bytes: u64) -> Result<Self> {
        let path = folder.join(name);
        File::create(&path)?.set_len(bytes)?;
        Self::attach(&path)
    }

    /// The node, e.g. `/dev/loop0`.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// The kernel's name, e.g. `loop0`.
    pub fn name(&self) -> String {
        let name = self.node.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The device as the agent sees it.
    pub fn device(&self) -> Result<Device> {
        let roots = Roots::default();
        let devices = disks(&roots).devices()?;
        let name = self.name();
        devices
            .into_iter()
            .find(|device| device.id.name == name)
            .with_context(|| format!("{name} is not among the disks"))
    }

    /// Writes bytes through to the device.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let file = OpenOptions::new().write(true).open(&self.node)?;
        file.write_all_at(bytes, offset)
            .and_then(|()| file.sync_all())
            .with_context(|| format!("write to {} at {offset}", self.node.display()))
    }

    /// Reads bytes of the device.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.held.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

impl Drop for Loop {
    /// Turns off swap on the device. Swap would keep the device attached, and does not end with a
    /// namespace.
    fn drop(&mut self) {
        if let Err(error) = swap::end(&self.node) {
            eprintln!("{}: {error:#}", self.node.display());
        }
    }
}

/// The agent's view of this machine's disks, including loop devices.
pub fn disks(roots: &Roots) -> Disks<'_> {
    Disks {
        roots,
        commands: &SystemCommands,
        kinds: Kinds::WithLoop,
    }
}

/// A UUID for a filesystem. Another one each time: `mkfs.btrfs` refuses the UUID of any other block
/// device of the machine, also that of a test that runs at the same time.
pub fn uuid() -> String {
    format!("6ba7b811-9dad-51d1-80b4-{:012x}", fastrand::u64(..) >> 16)
}

/// The intent to create that filesystem on the device, with this blankness as the evidence.
pub fn intent(device: &Device, filesystem: DiskFilesystem, blank: &Blankness, uuid: &str) -> FormatIntent {
    let (_, arguments) = mkfs::arguments(&wanted(filesystem), uuid);
    FormatIntent {
        name: "data".to_owned(),
        key: Key::Serial("data".to_owned()),
        device: device.id.clone(),
        evidence: Evidence::Blank(blank.clone()),
        filesystem: filesystem.word().to_owned(),
        uuid: uuid.to_owned(),
        arguments,
    }
}

/// A declared disk with that filesystem and otherwise default settings.
fn wanted(filesystem: DiskFilesystem) -> Wanted {
    Wanted {
        name: "data".to_owned(),
        serial: Some("data".to_owned()),
        volume: None,
        path: None,
        size: None,
        order: None,
        part_uuid: None,
        part_label: None,
        filesystem,
        mount_point: None,
        binds: Vec::new(),
        options: Vec::new(),
        owner: None,
        seed_from: SeedFrom::None,
        grow: false,
        ephemeral: false,
        required: false,
        shared: false,
        proof: ProofKind::Sampled,
        proof_seconds: 20,
        approve_above: 1 << 40,
        new: false,
        label: None,
        reserved_percent: None,
        mkfs_options: Vec::new(),
        discard: false,
        encryption: None,
        content: DiskContent::Blank,
    }
}

/// Probes the device; fails unless it is proven blank.
pub fn blankness(device: &Device, proof: ProofKind) -> Result<Blankness> {
    let roots = Roots::default();
    match disks(&roots).probe(device, proof, &mut |_, _| {}) {
        Probe::Blank(blank) => Ok(blank),
        other => anyhow::bail!("{} is not blank: {other:?}", device.node()),
    }
}
