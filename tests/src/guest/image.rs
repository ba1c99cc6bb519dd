//! The images that `tests/guests/image.sh` builds, and the cache of images and snapshots.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::vm::Suite;
use crate::process::Launch;

/// A root image with its kernel and initrd.
#[derive(Debug, Clone)]
pub struct Image {
    folder: PathBuf,
}

impl Image {
    /// The image of this checkout. The error says how to build it.
    pub fn find(suite: Suite) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/image.sh");
        let path = Launch::new(script)
            .args(["--path", suite.name()])
            .text(Duration::from_mins(1))
            .with_context(|| format!("no image of {}; `make setup` makes it", suite.name()))?;
        let folder = PathBuf::from(path.trim());
        Ok(Self { folder })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
    /// A value from the image's description: `KERNEL`, `CLOUD_INIT`, `KEY`.
    pub fn fact(&self, key: &str) -> Result<String> {
        let path = self.file("facts");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .map(str::to_owned)
            .with_context(|| format!("{} has no {key}", path.display()))
    }
    /// The folder of all images.
    pub(super) fn cache(&self) -> Result<&Path> {
        self.folder
            .parent()
            .context("an image at the top of a filesystem")
    }
    /// The folder of its snapshots.
    pub fn goldens(&self) -> PathBuf {
        self.folder.join("golden")
    }
}
