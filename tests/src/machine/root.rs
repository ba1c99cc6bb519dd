//! Root filesystems that machines boot from.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{guest::Suite, process::Launch};

/// An unpacked root filesystem. Machines read it and never write to it.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// The guests' Debian, unpacked into the cache when it is not there yet. An error says how to make it.
    pub fn debian(suite: Suite) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/machine-root.sh");
        let path = Launch::new(script)
            .args(["--cached", suite.name()])
            .text(Duration::from_mins(3))
            .with_context(|| format!("no root filesystem of {}; `make setup` makes it", suite.name()))?;
        Self::at(path.trim())
    }

    /// One that somebody else has made.
    pub fn at(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let init = folder.join("usr/lib/systemd/systemd");
        ensure!(
            init.is_file(),
            "{} is missing: no root with systemd",
            init.display()
        );
        Ok(Self(folder))
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}
