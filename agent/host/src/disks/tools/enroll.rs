//! systemd-cryptenroll(1).

use std::{path::Path, time::Duration};

use crate::{CommandError, Commands, Done, Tool};

/// As for cryptsetup: the key derivation is made to take seconds, more on a busy machine.
const DEADLINE: Duration = Duration::from_mins(5);

/// Lets the guest's TPM 2.0 open a LUKS2 device, which a key file opens already. `pcrs` as that page has them, e.g. `7`.
pub fn tpm2(commands: &dyn Commands, key: &Path, pcrs: &str, device: &Path) -> Result<Done, CommandError> {
    let tool = Tool::new("systemd-cryptenroll")
        .arg(format!("--unlock-key-file={}", key.display()))
        .args(["--tpm2-device=auto".to_owned(), format!("--tpm2-pcrs={pcrs}")]);
    commands.check(&tool.arg(device).deadline(DEADLINE))
}

/// Whether the header has a token of the TPM, by the tool's own list of slots.
pub fn has_tpm2(commands: &dyn Commands, device: &Path) -> Result<bool, CommandError> {
    let done = commands.check(&Tool::new("systemd-cryptenroll").arg(device))?;
    Ok(done
        .stdout
        .lines()
        .any(|line| line.split_ascii_whitespace().nth(1) == Some("tpm2")))
}
