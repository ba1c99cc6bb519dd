//! swapon(8).

use std::path::Path;

use crate::{CommandError, CommandOutput, Commands, Tool};

/// Activates a swap area. Options as in fstab: `discard`, `pri=10`.
///
/// # Errors
/// swapon(8) failed.
pub fn on(commands: &dyn Commands, options: &[String], device: &Path) -> Result<CommandOutput, CommandError> {
    let mut tool = Tool::new("swapon");
    if !options.is_empty() {
        tool = tool.args(["--options".to_owned(), options.join(",")]);
    }
    commands.check(&tool.arg("--").arg(device))
}
