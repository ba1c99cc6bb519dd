//! cryptsetup(8). Keys are files and never arguments, which every process can read.

use std::{path::Path, time::Duration};

use crate::host::{CommandError, Commands, Done, Tool};

/// The key derivation is made to take seconds, more on a busy machine.
const DEADLINE: Duration = Duration::from_mins(5);

fn tool(action: &str) -> Tool {
    Tool::new("cryptsetup")
        .args(["--batch-mode", action])
        .deadline(DEADLINE)
}

/// Makes a LUKS2 header by the arguments of an intent, `luksFormat` and the UUID among them. Only what holds a proof calls this.
pub(in super::super) fn format(
    commands: &dyn Commands,
    arguments: &[String],
    key: &Path,
    device: &Path,
) -> Result<Done, CommandError> {
    let tool = Tool::new("cryptsetup").args(arguments).arg("--key-file").arg(key);
    commands.check(&tool.arg("--").arg(device).deadline(DEADLINE))
}

/// Adds a second key to a header, which a first key opens.
pub fn add_key(
    commands: &dyn Commands,
    key: &Path,
    second: &Path,
    device: &Path,
) -> Result<Done, CommandError> {
    let tool = tool("luksAddKey")
        .arg("--key-file")
        .arg(key)
        .arg("--")
        .arg(device)
        .arg(second);
    commands.check(&tool)
}

/// Opens it under a name of `/dev/mapper`.
pub fn open(commands: &dyn Commands, key: &Path, device: &Path, mapping: &str) -> Result<Done, CommandError> {
    let tool = tool("open").args(["--type", "luks2", "--key-file"]).arg(key);
    commands.check(&tool.arg("--").arg(device).arg(mapping))
}

/// Opens it by the token that systemd-cryptenroll(1) has left, e.g. of the TPM.
pub fn open_by_token(commands: &dyn Commands, device: &Path, mapping: &str) -> Result<Done, CommandError> {
    let tool = tool("open").args(["--type", "luks2", "--token-only", "--"]);
    commands.check(&tool.arg(device).arg(mapping))
}

/// Whether a key opens it; nothing is opened.
pub fn fits(commands: &dyn Commands, key: &Path, device: &Path) -> Result<bool, CommandError> {
    let tool = tool("open")
        .args(["--type", "luks2", "--test-passphrase", "--key-file"])
        .arg(key);
    // cryptsetup(8), RETURN CODES: 2 no permission (bad passphrase).
    let done = commands.run(&tool.clone().arg("--").arg(device))?;
    match done.code {
        0 => Ok(true),
        2 => Ok(false),
        _ => Err(CommandError::Failed { tool, done }),
    }
}

/// Whether a token opens it, e.g. of the TPM; nothing is opened.
pub fn token_fits(commands: &dyn Commands, device: &Path) -> Result<bool, CommandError> {
    let tool = tool("open").args(["--type", "luks2", "--test-passphrase", "--token-only", "--"]);
    Ok(commands.run(&tool.arg(device))?.success())
}

/// Grows the mapping to its device.
pub fn resize(commands: &dyn Commands, key: &Path, mapping: &str) -> Result<Done, CommandError> {
    commands.check(&tool("resize").arg("--key-file").arg(key).arg("--").arg(mapping))
}

/// Closes the mapping.
pub fn close(commands: &dyn Commands, mapping: &str) -> Result<Done, CommandError> {
    commands.check(&tool("close").arg("--").arg(mapping))
}

/// The header's UUID; none when there is no LUKS header.
pub fn uuid(commands: &dyn Commands, device: &Path) -> Result<Option<String>, CommandError> {
    let done = commands.run(&tool("luksUUID").arg("--").arg(device))?;
    match done.code {
        0 => Ok(Some(done.stdout.trim().to_owned())),
        // Not a LUKS device.
        1 => Ok(None),
        _ => {
            let tool = tool("luksUUID").arg(device);
            Err(CommandError::Failed { tool, done })
        }
    }
}
