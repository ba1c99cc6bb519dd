//! mount(8) and umount(8).

use std::{path::Path, time::Duration};

use crate::{CommandError, Commands, Done, Tool};

/// A journal may have to be replayed.
const DEADLINE: Duration = Duration::from_mins(10);

/// Mounts a device. The kind is given, so that nothing guesses it.
pub fn mount(
    commands: &dyn Commands,
    filesystem: &str,
    options: &[String],
    device: &Path,
    place: &Path,
) -> Result<Done, CommandError> {
    let mut tool = Tool::new("mount").args(["-t", filesystem]).deadline(DEADLINE);
    if !options.is_empty() {
        tool = tool.args(["-o".to_owned(), options.join(",")]);
    }
    commands.check(&tool.arg("--").arg(device).arg(place))
}

/// Mounts a directory at another place (`MS_BIND`), without what is mounted below it.
pub fn bind(commands: &dyn Commands, directory: &Path, place: &Path) -> Result<Done, CommandError> {
    let tool = Tool::new("mount")
        .args(["--bind", "--"])
        .arg(directory)
        .arg(place);
    commands.check(&tool.deadline(DEADLINE))
}

/// Changes options of what is mounted there. Flags of the mount alone are changed without touching the filesystem.
pub fn remount(
    commands: &dyn Commands,
    options: &[String],
    device: &Path,
    place: &Path,
) -> Result<Done, CommandError> {
    let own = options.iter().any(|option| option.ends_with("discard"));
    let what = if own { "remount" } else { "remount,bind" };
    let tool = Tool::new("mount").args(["-o".to_owned(), format!("{what},{}", options.join(","))]);
    commands.check(&tool.arg("--").arg(device).arg(place).deadline(DEADLINE))
}

/// Unmounts what is mounted there. Never lazily: what is busy stays.
pub fn umount(commands: &dyn Commands, place: &Path) -> Result<Done, CommandError> {
    commands.check(&Tool::new("umount").arg("--").arg(place).deadline(DEADLINE))
}
