//! cryptsetup(8). Keys are passed as files, because every process can read another's arguments.

use std::{fs::File, path::Path, time::Duration};

use crate::{CommandError, CommandOutput, Commands, Tool};

/// The key derivation takes seconds by design, longer on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(5);

fn tool(action: &str) -> Tool {
    Tool::new("cryptsetup")
        .args(["--batch-mode", action])
        .deadline(TIMEOUT)
}

/// Creates a LUKS2 header by the arguments of an intent, which contain `luksFormat` and the UUID.
/// Only a holder of a proof calls this. The tool inherits `lock`, the open file with the lock of
/// the whole disk.
pub(in super::super) fn format(
    commands: &dyn Commands,
    arguments: &[String],
    key: &Path,
    device: &Path,
    lock: &File,
) -> Result<CommandOutput, CommandError> {
    let tool = Tool::new("cryptsetup").args(arguments).arg("--key-file").arg(key);
    commands.check_with_lock(&tool.arg("--").arg(device).deadline(TIMEOUT), lock)
}

/// Adds a second key to a header that the first key opens.
///
/// # Errors
/// cryptsetup(8) failed.
pub fn add_key(
    commands: &dyn Commands,
    key: &Path,
    second: &Path,
    device: &Path,
) -> Result<CommandOutput, CommandError> {
    let tool = tool("luksAddKey")
        .arg("--key-file")
        .arg(key)
        .arg("--")
        .arg(device)
        .arg(second);
    commands.check(&tool)
}

/// Result of an attempt to open a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    Yes,
    /// The header has no slot for this key. Contains cryptsetup's output.
    KeyDoesNotFit(String),
}

/// cryptsetup(8), RETURN CODES: 2 no permission (bad passphrase).
const BAD_PASSPHRASE: i32 = 2;

/// Exit code 1 means an unusable token, among other errors. So the key is tested separately,
/// without opening the container.
fn opened(
    tool: Tool,
    done: CommandOutput,
    fits: impl FnOnce() -> Result<bool, CommandError>,
) -> Result<Opened, CommandError> {
    if done.success() {
        return Ok(Opened::Yes);
    }
    if done.code == BAD_PASSPHRASE || !fits()? {
        return Ok(Opened::KeyDoesNotFit(done.stderr.trim().to_owned()));
    }
    Err(CommandError::Failed { tool, done })
}

/// Opens a container as `mapping` in `/dev/mapper`.
///
/// # Errors
/// A failure that is unrelated to the key.
pub fn open(
    commands: &dyn Commands,
    key: &Path,
    device: &Path,
    mapping: &str,
) -> Result<Opened, CommandError> {
    let tool = tool("open").args(["--type", "luks2", "--key-file"]).arg(key);
    let tool = tool.arg("--").arg(device).arg(mapping);
    let done = commands.run(&tool)?;
    opened(tool, done, || fits(commands, key, device))
}

/// Opens a container by a token that systemd-cryptenroll(1) stored, e.g. of the TPM.
///
/// # Errors
/// A failure that is unrelated to the token.
pub fn open_by_token(commands: &dyn Commands, device: &Path, mapping: &str) -> Result<Opened, CommandError> {
    let tool = tool("open").args(["--type", "luks2", "--token-only", "--"]);
    let tool = tool.arg(device).arg(mapping);
    let done = commands.run(&tool)?;
    opened(tool, done, || token_fits(commands, device))
}

/// True if the key opens the header. The container is not opened.
///
/// # Errors
/// A failure that is unrelated to the key.
pub fn fits(commands: &dyn Commands, key: &Path, device: &Path) -> Result<bool, CommandError> {
    let tool = tool("open")
        .args(["--type", "luks2", "--test-passphrase", "--key-file"])
        .arg(key);
    let done = commands.run(&tool.clone().arg("--").arg(device))?;
    match done.code {
        0 => Ok(true),
        BAD_PASSPHRASE => Ok(false),
        _ => Err(CommandError::Failed { tool, done }),
    }
}

/// True if a token opens the header, e.g. of the TPM. The container is not opened.
///
/// # Errors
/// A failure that is unrelated to the token.
pub fn token_fits(commands: &dyn Commands, device: &Path) -> Result<bool, CommandError> {
    let tool = tool("open").args(["--type", "luks2", "--test-passphrase", "--token-only", "--"]);
    Ok(commands.run(&tool.arg(device))?.success())
}

/// Grows the mapping to the size of its device, with the token.
///
/// # Errors
/// cryptsetup(8) failed.
pub fn resize_by_token(commands: &dyn Commands, mapping: &str) -> Result<CommandOutput, CommandError> {
    commands.check(&tool("resize").args(["--token-only", "--", mapping]))
}

/// Grows the mapping to the size of its device, with a key file.
///
/// # Errors
/// cryptsetup(8) failed.
pub fn resize(commands: &dyn Commands, key: &Path, mapping: &str) -> Result<CommandOutput, CommandError> {
    commands.check(&tool("resize").arg("--key-file").arg(key).arg("--").arg(mapping))
}

/// Closes the mapping.
///
/// # Errors
/// cryptsetup(8) failed.
pub fn close(commands: &dyn Commands, mapping: &str) -> Result<CommandOutput, CommandError> {
    commands.check(&tool("close").arg("--").arg(mapping))
}

/// Offset of the data on the device in bytes, from the header. `None` if the header lacks it.
///
/// # Errors
/// cryptsetup(8) failed.
pub fn data_offset(commands: &dyn Commands, device: &Path) -> Result<Option<u64>, CommandError> {
    let done = commands.check(&tool("luksDump").arg("--").arg(device))?;
    Ok(offset_in(&done.stdout))
}

/// Parses `offset: 16777216 [bytes]` of the only data segment.
fn offset_in(text: &str) -> Option<u64> {
    let (_, segments) = text.split_once("Data segments:")?;
    let (segments, _) = segments.split_once("Keyslots:")?;
    let mut offsets = segments.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("offset:")?
            .trim()
            .strip_suffix("[bytes]")
    });
    let offset = offsets.next()?.trim().parse().ok()?;
    offsets.next().is_none().then_some(offset)
}

/// The header's UUID. `None` if there is no LUKS header.
///
/// # Errors
/// cryptsetup(8) failed.
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

#[cfg(test)]
mod tests {
    use super::offset_in;

    #[test]
    fn the_offset_is_that_of_the_only_segment() {
        let text =
            |segments: &str| format!("UUID: x\nData segments:\n{segments}\nKeyslots:\n  offset: 1 [bytes]\n");
        let one = "  0: crypt\n\toffset: 16777216 [bytes]\n\tlength: (whole device)\n";
        assert_eq!(offset_in(&text(one)), Some(16 << 20));
        assert_eq!(offset_in(&text(&one.repeat(2))), None);
        assert_eq!(offset_in("offset: 16777216 [bytes]"), None);
    }
}
