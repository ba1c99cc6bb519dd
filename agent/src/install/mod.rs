//! `virtfleet-agent install`: the binary installs itself, its units and the files they need into
//! this guest or an image. It may be killed at any point and run any number of times.
//!
//! ```text
//! guest (texts) + current files ─ plan ─▶ Plan ─ apply ─▶ Outcome (changes, failed starts)
//! ```

mod apply;
mod plan;
mod remove;

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use virtfleet_agent_host::{CommandError, WriteError, image, is_directory};

pub use apply::apply;
pub use plan::{Plan, plan};
pub use remove::remove;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The binary is installed into its directory `bin`.
    pub prefix: PathBuf,
    /// Root directory of an image. `/` is this guest. With any other root no unit is loaded or
    /// started.
    pub root: PathBuf,
    /// True if units are started. Only for this guest.
    pub start: bool,
}

impl Options {
    /// True for the running guest, false for an image.
    fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }
    /// A path of the guest as a path for this process. In an image its directory is resolved as the
    /// image's own system would. The last component is not followed.
    fn at(&self, path: impl AsRef<Path>) -> Result<PathBuf, InstallError> {
        let path = path.as_ref();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return self.folder(path);
        };
        Ok(self.folder(folder)?.join(name))
    }
    /// The same for a directory, whose last component is followed.
    fn folder(&self, path: &Path) -> Result<PathBuf, InstallError> {
        if self.is_live() {
            return Ok(path.to_owned());
        }
        let shown = self.root.join(path.strip_prefix("/").unwrap_or(path));
        image::folder(&self.root, path).map_err(io_error("find in the image", &shown))
    }
    /// The text of a small file; empty if it is missing or not text.
    fn small_text(&self, path: &str) -> String {
        image::small_text(&self.root, Path::new(path))
    }
    /// The binary's path in the guest.
    fn agent(&self) -> String {
        self.prefix.join("bin/virtfleet-agent").display().to_string()
    }
    /// True if systemd runs here and units may be started.
    fn has_systemd(&self) -> bool {
        self.is_live() && is_directory(Path::new("/run/systemd/system"))
    }
}

/// What was done. Paths are those of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Files and links that were written because they were missing or different.
    pub written: Vec<String>,
    /// Files and links that were removed.
    pub removed: Vec<String>,
    /// Units that were started, or whose start was requested.
    pub started: Vec<String>,
    /// Errors that do not prevent the installation.
    pub warnings: Vec<String>,
}

impl Outcome {
    /// The outcome as text, one line per change.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (word, items) in [
            ("wrote", &self.written),
            ("removed", &self.removed),
            ("started", &self.started),
            ("warning:", &self.warnings),
        ] {
            for item in items {
                text.extend([word, " ", item.as_str(), "\n"]);
            }
        }
        if self.written.is_empty() && self.removed.is_empty() {
            text.push_str("everything is in place\n");
        }
        text
    }
}

/// Why the installation failed or is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(
        "{0} belongs to the package virtfleet-agent, which owns the agent here: upgrade the package instead, or remove it \
         first (apt-get remove virtfleet-agent)"
    )]
    Packaged(String),
    #[error("only root may install; type: sudo {0} install")]
    NotRoot(String),
    /// The prefix cannot be used in a unit.
    #[error("--prefix {0}: name an absolute path of letters, digits and `._-/`")]
    Prefix(String),
    /// A file cannot be read, or a link created, or a file removed.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(
        "cannot create the user and group virtfleet; create them by hand (useradd --system --user-group virtfleet)"
    )]
    User(#[source] CommandError),
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::Io { step, path, source }
}

#[cfg(test)]
mod tests;
