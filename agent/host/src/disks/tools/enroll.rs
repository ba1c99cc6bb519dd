//! systemd-cryptenroll(1).

use std::{path::Path, time::Duration};

use crate::{CommandError, CommandOutput, Commands, Tool};

/// As for cryptsetup: the key derivation takes seconds by design, longer on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Enrolls the guest's TPM 2.0 in a LUKS2 device that a key file opens already. `pcrs` as in that
/// manual page, e.g. `7`.
///
/// # Errors
/// systemd-cryptenroll(1) failed.
pub fn tpm2(
    commands: &dyn Commands,
    key: &Path,
    pcrs: &str,
    device: &Path,
) -> Result<CommandOutput, CommandError> {
    let tool = Tool::new("systemd-cryptenroll")
        .arg(format!("--unlock-key-file={}", key.display()))
        .args(["--tpm2-device=auto".to_owned(), format!("--tpm2-pcrs={pcrs}")]);
    commands.check(&tool.arg(device).deadline(TIMEOUT))
}

/// True if the header has a TPM token, from the tool's list of slots.
///
/// # Errors
/// systemd-cryptenroll(1) failed.
pub fn has_tpm2(commands: &dyn Commands, device: &Path) -> Result<bool, CommandError> {
    let done = commands.check(&Tool::new("systemd-cryptenroll").arg(device))?;
    Ok(done
        .stdout
        .lines()
        .any(|line| line.split_ascii_whitespace().nth(1) == Some("tpm2")))
}
