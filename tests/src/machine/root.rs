//! Root filesystems of machines.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{guest::Suite, process::Launch};

/// An unpacked root filesystem, read-only for machines.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// The guests' Debian, unpacked into the cache if necessary. The error says how to build it.
    pub fn debian(suite: Suite) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/machine-root.sh");
        let path = Launch::new(script)
            .args(["--cached", suite.name()])
            .text(Duration::from_mins(3))
            .with_context(|| format!("no root filesystem of {}; `make setup` makes it", suite.name()))?;
        Self::at(path.trim())
    }

    /// A root filesystem that other code has created.
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
