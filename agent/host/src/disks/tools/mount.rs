//! mount(8) and umount(8).

use std::{path::Path, time::Duration};

use crate::{CommandError, CommandOutput, Commands, Tool};

/// A journal may have to be replayed.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Mounts a device. The filesystem is passed explicitly, so that mount(8) does not guess it.
///
/// # Errors
/// mount(8) failed.
pub fn mount(
    commands: &dyn Commands,
    filesystem: &str,
    options: &[String],
    device: &Path,
    place: &Path,
) -> Result<CommandOutput, CommandError> {
    let mut tool = Tool::new("mount").args(["-t", filesystem]).deadline(TIMEOUT);
    if !options.is_empty() {
        tool = tool.args(["-o".to_owned(), options.join(",")]);
    }
    commands.check(&tool.arg("--").arg(device).arg(place))
}

/// Bind-mounts a directory (`MS_BIND`), without other mounts below it.
///
/// # Errors
/// mount(8) failed.
pub fn bind(commands: &dyn Commands, directory: &Path, place: &Path) -> Result<CommandOutput, CommandError> {
    let tool = Tool::new("mount")
        .args(["--bind", "--"])
        .arg(directory)
        .arg(place);
    commands.check(&tool.deadline(TIMEOUT))
}

/// Changes mount options. Per-mount flags are changed without touching the filesystem.
///
/// # Errors
/// mount(8) failed.
pub fn remount(
    commands: &dyn Commands,
    options: &[String],
    device: &Path,
    place: &Path,
) -> Result<CommandOutput, CommandError> {
    let own = options.iter().any(|option| option.ends_with("discard"));
    let what = if own { "remount" } else { "remount,bind" };
    let tool = Tool::new("mount").args(["-o".to_owned(), format!("{what},{}", options.join(","))]);
    commands.check(&tool.arg("--").arg(device).arg(place).deadline(TIMEOUT))
}

/// Unmounts a mount point. Never lazily: a busy mount stays.
///
/// # Errors
/// umount(8) failed.
pub fn umount(commands: &dyn Commands, place: &Path) -> Result<CommandOutput, CommandError> {
    commands.check(&Tool::new("umount").arg("--").arg(place).deadline(TIMEOUT))
}
