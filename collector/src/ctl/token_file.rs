//! The bearer token in the file of `--token-file`.

use std::path::Path;

use super::{fail::Fail, input};

/// The token. The file is read for each request, because the token in it may be rotated.
pub(super) fn read(file: &Path) -> Result<String, Fail> {
    let text = input::read(file)?;
    let token = text.trim();
    let is_token = |byte: u8| byte.is_ascii_graphic();
    if token.is_empty() || !token.bytes().all(is_token) {
        let message = format!(
            "--token-file {}: does not contain a token; write one with: kubectl create token SERVICE-ACCOUNT \
             --audience virtfleet-collector",
            file.display()
        );
        return Err(Fail::Usage(message));
    }
    Ok(token.to_owned())
}
