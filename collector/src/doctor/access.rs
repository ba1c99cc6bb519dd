//! Checks the files that `server.access` names.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Instant};

use super::CheckResult;
use crate::{
    access::{StaticTokens, TokenFileError, keyed_hash},
    config::ServerSettings,
};

/// A result for each file that `server.access` names.
pub(super) fn check(server: &ServerSettings) -> Vec<CheckResult> {
    let access = &server.access;
    let tokens = access.tokens.as_ref().map(|file| {
        let what = "server.access.tokens";
        match StaticTokens::open(Path::new(file), Instant::now()) {
            Ok(tokens) => CheckResult::ok(what, format!("{file}: {} tokens", tokens.count())),
            Err(error) => CheckResult::fail(what, with_cause(&error), next(&error)),
        }
    });
    let key = access.redact_key.as_ref().map(|file| {
        let read = keyed_hash(Some(Path::new(file))).map(|_| format!("{file}: readable"));
        let read = read.map_err(|error| with_cause(&error));
        secret("server.access.redactKey", file, read)
    });
    tokens.into_iter().chain(key).collect()
}

fn result(what: &str, file: &str, read: Result<String, String>) -> CheckResult {
    match read {
        Ok(detail) => CheckResult::ok(what, detail),
        Err(reason) => CheckResult::fail(what, reason, format!("ls -l {file}")),
    }
}

/// The command that helps against an error of the file of tokens.
fn next(error: &TokenFileError) -> String {
    match error {
        TokenFileError::Read { file, .. } => format!("ls -l {}", file.display()),
        TokenFileError::Writable { file, .. } => format!("chmod go-w {}", file.display()),
        TokenFileError::Line { file, line, .. } => format!("sed -n {line}p {}", file.display()),
    }
}

/// As [`result`], with a warning if every user may read the file.
fn secret(what: &str, file: &str, read: Result<String, String>) -> CheckResult {
    let mode = fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
    if read.is_ok() && mode & 0o004 != 0 {
        let detail = format!("{file} can be read by every user of this machine");
        return CheckResult::warn(what, detail, format!("chmod o= {file}"));
    }
    result(what, file, read)
}

fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;

    #[test]
    fn unusable_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut server = ServerSettings::default();
        assert_eq!(check(&server).len(), 0);
        server.access.tokens = Some(path("tokens"));
        server.access.redact_key = Some(path("key"));
        let found = |server: &ServerSettings| -> Vec<_> {
            check(server)
                .into_iter()
                .map(|line| (line.status, line.detail))
                .collect()
        };
        for (status, detail) in found(&server) {
            assert!(
                status == CheckStatus::Fail && detail.contains("cannot read"),
                "{detail}"
            );
        }
        fs::write(path("tokens"), "sha256:0,a,all").unwrap();
        fs::write(path("key"), [7; 32]).unwrap();
        for file in ["tokens", "key"] {
            fs::set_permissions(path(file), fs::Permissions::from_mode(0o644)).unwrap();
        }
        assert_eq!(check(&server)[0].next, format!("sed -n 1p {}", path("tokens")));
        let [tokens, key] = found(&server).try_into().unwrap();
        assert!(tokens.1.contains("tokens:1: not `sha256:"), "{tokens:?}");
        assert!(
            key.0 == CheckStatus::Warn && key.1.contains("every user"),
            "{key:?}"
        );
        fs::set_permissions(path("tokens"), fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(check(&server)[0].next, format!("chmod go-w {}", path("tokens")));
        fs::set_permissions(path("tokens"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(path("tokens"), "# none yet").unwrap();
        fs::set_permissions(path("key"), fs::Permissions::from_mode(0o600)).unwrap();
        assert!(
            found(&server)
                .iter()
                .all(|(status, _)| *status == CheckStatus::Ok)
        );
    }
}
