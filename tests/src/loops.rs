//! Loop devices over sparse files, for tests as root. None outlives its test, whatever happens to it.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use virtfleet_agent::host::{
    Roots, SystemCommands,
    disks::{Disks, Kinds},
};
use virtfleet_agent_core::disks::Device;

use crate::{process::Launch, skip};

/// How long a tool may take on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(120);

/// Root and loop devices, for [`skip::need`].
pub fn needs() -> Result<()> {
    skip::root()?;
    anyhow::ensure!(
        Path::new("/dev/loop-control").exists(),
        "there is no /dev/loop-control"
    );
    skip::program("losetup").map(drop)
}

/// A loop device.
///
/// It is set to go with its last user right after it was made, and this one holds it open: the kernel takes it away when this is dropped,
/// and when the test is killed.
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

    /// Attaches a file with more arguments of losetup(8).
    pub fn attach_with(image: &Path, arguments: &[&str]) -> Result<Self> {
        let node = Launch::new("losetup")
            .args(["--find", "--show"])
            .args(arguments)
            .arg(image)
            .text(DEADLINE)?;
        let node = PathBuf::from(node.trim());
        let held = OpenOptions::new().read(true).open(&node);
        // Detaching what is open only marks it.
        let marked = Launch::new("losetup").arg("--detach").arg(&node).text(DEADLINE);
        let held = held.with_context(|| format!("open {}", node.display()))?;
        marked?;
        Ok(Self { node, held })
    }

    /// A new sparse file of that many bytes in the folder, attached.
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

    /// What the agent sees of it.
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

    /// Bytes of the device.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.held.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Bytes that its file takes on the disk below.
    pub fn allocated(image: &Path) -> Result<u64> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(fs::metadata(image)?.blocks() * 512)
    }
}

/// The agent's eyes on this machine, with loop devices as disks.
pub fn disks(roots: &Roots) -> Disks<'_> {
    Disks {
        roots,
        commands: &SystemCommands,
        kinds: Kinds::WithLoop,
    }
}
