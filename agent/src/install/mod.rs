//! `virtfleet-agent install`: the binary, its units and all they need, put into this guest (or into an image) by the binary
//! itself. It may be killed at any moment and run again any number of times.
//!
//! ```text
//! guest (texts) + what is there ─ plan ─▶ Plan ─ apply ─▶ Outcome (what changed, what could not be started)
//! ```

mod apply;
mod image;
mod plan;
mod remove;

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use virtfleet_agent_host::{CommandError, WriteError};

pub use apply::apply;
pub use plan::{Plan, plan};
pub use remove::remove;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The binary goes into its `bin`.
    pub prefix: PathBuf,
    /// An image's root. `/` is this guest; with any other nothing is started and no unit is loaded.
    pub root: PathBuf,
    /// Whether units are started. Only in this guest.
    pub start: bool,
}

impl Options {
    /// Whether it is the guest that runs, and not an image.
    fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }
    /// A path of the guest as this process sees it. In an image its folder is resolved as the image's own system would; its last
    /// name is not followed.
    fn at(&self, path: impl AsRef<Path>) -> Result<PathBuf, InstallError> {
        let path = path.as_ref();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return self.folder(path);
        };
        Ok(self.folder(folder)?.join(name))
    }
    /// The same for a folder, which is followed.
    fn folder(&self, path: &Path) -> Result<PathBuf, InstallError> {
        if self.is_live() {
            return Ok(path.to_owned());
        }
        let shown = self.root.join(path.strip_prefix("/").unwrap_or(path));
        image::folder(&self.root, path).map_err(io_error("find in the image", &shown))
    }
    /// A small file's text; empty when it is not there or no text.
    fn small_text(&self, path: &str) -> String {
        image::small_text(&self.root, Path::new(path))
    }
    /// The binary's path in the guest.
    fn agent(&self) -> String {
        self.prefix.join("bin/virtfleet-agent").display().to_string()
    }
    /// Whether systemd runs here and may be spoken to.
    fn has_systemd(&self) -> bool {
        self.is_live() && Path::new("/run/systemd/system").is_dir()
    }
}

/// What was done. Paths are those of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Files and links that were written, because they were missing or other.
    pub written: Vec<String>,
    /// Files and links that were removed.
    pub removed: Vec<String>,
    /// Units that were started or asked to start.
    pub started: Vec<String>,
    /// What did not work and does not stand in the way.
    pub warnings: Vec<String>,
}

impl Outcome {
    /// Lines for people.
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

/// Why nothing was installed, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The package's units are there.
    #[error(
        "{0} belongs to the package virtfleet-agent, which owns the agent here: upgrade the package instead, or remove it \
         first (apt-get remove virtfleet-agent)"
    )]
    Packaged(String),
    /// It cannot be done by this user.
    #[error("only root may install; type: sudo {0} install")]
    NotRoot(String),
    /// The prefix cannot stand in a unit.
    #[error("--prefix {0}: name an absolute path of letters, digits and `._-/`")]
    Prefix(String),
    /// A file cannot be read, or a link made, or something removed.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// To what.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The user cannot be made.
    #[error(
        "cannot make the user and group virtfleet; make them by hand (useradd --system --user-group virtfleet)"
    )]
    User(#[source] CommandError),
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::Io { step, path, source }
}

#[cfg(test)]
mod tests;
