//! Skipped and deferred tests. A test is skipped if the machine lacks something that it needs; with
//! `CI=true` this is a failure. A test is deferred if it takes minutes; another command runs it.
//! Neither counts as passed.

use std::{
    env,
    fs::OpenOptions,
    io::Write as _,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};

/// The environment variable that names the file to which reasons are appended; `make test` prints
/// them as a table.
pub const SKIPS: &str = "VIRTFLEET_SKIPS";
/// The environment variable that names the file to which deferred tests are appended; `make test`
/// prints them as a table.
pub const DEFERRED: &str = "VIRTFLEET_DEFERRED";

/// Records that `test` of `tier` was skipped for `reason`. Fails if `CI` is `true`.
///
/// The test must return right after it.
pub fn skip(tier: u8, test: &str, reason: &str) -> Result<()> {
    let reason = reason.replace(['\n', '\t'], " ");
    if env::var("CI").is_ok_and(|ci| ci == "true") {
        anyhow::bail!("{test} (tier {tier}) cannot run here, and with CI=true a skip is a failure: {reason}");
    }
    eprintln!("skipped {test} (tier {tier}): {reason}");
    append(SKIPS, &format!("{tier}\t{test}\t{reason}\n"))
}

/// Set by `tests/soak.sh`, which runs deferred tests.
pub const SOAK: &str = "VIRTFLEET_SOAK";

/// Whether `test` of `tier`, or the rest of it, is deferred to the command `soak`, because it takes
/// minutes. If so, records it, and the test must return. Always false in a soak.
///
/// # Panics
///
/// If it cannot be recorded: a test that is omitted silently would count as passed.
pub fn deferred(tier: u8, test: &str, soak: &str) -> bool {
    if env::var_os(SOAK).is_some() {
        return false;
    }
    eprintln!("deferred {test} (tier {tier}): {soak}");
    if let Err(error) = append(DEFERRED, &format!("{tier}\t{test}\t{soak}\n")) {
        panic!("{error:#}");
    }
    true
}

/// The time, in seconds since 1970, after which no test with a guest starts any more. `make test`
/// sets it with `CI=true`, because CI ends a run that takes too long, and then reports nothing.
pub const NO_GUEST_AFTER: &str = "VIRTFLEET_NO_GUEST_AFTER";

/// Whether `test`, which has a real guest, is deferred because the run has taken too long. If so,
/// records it as [`deferred`] does, and the test must return.
///
/// # Panics
///
/// If it cannot be recorded, or if the variable is not a number.
pub fn too_late(tier: u8, test: &str) -> bool {
    let Some(limit) = env::var_os(NO_GUEST_AFTER) else {
        return false;
    };
    let Some(limit) = limit.to_str().and_then(|text| text.parse().ok()) else {
        panic!(
            "{NO_GUEST_AFTER} is {}; it must be a number of seconds",
            limit.display()
        );
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.is_ok_and(|now| now.as_secs() >= limit)
        && deferred(tier, test, &format!("make repeat TIMES=1 FILTER='test(={test})'"))
}

/// Appends a line to the file that the environment variable names, if it is set.
fn append(variable: &str, line: &str) -> Result<()> {
    let Some(path) = env::var_os(variable) else {
        return Ok(());
    };
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .with_context(|| format!("{variable}={}", path.display()))?;
    // One write for each line: appends of this size from several processes do not mix.
    file.write_all(line.as_bytes())
        .with_context(|| format!("write {}", path.display()))
}

/// The value, or `None` after recording why the test is skipped.
pub fn need<T>(tier: u8, test: &str, value: Result<T>) -> Result<Option<T>> {
    match value {
        Ok(value) => Ok(Some(value)),
        Err(error) => skip(tier, test, &format!("{error:#}")).map(|()| None),
    }
}

/// Requires root, for [`need`].
pub fn root() -> Result<()> {
    anyhow::ensure!(nix::unistd::geteuid().is_root(), "needs root");
    Ok(())
}

/// The path of a program in `PATH`, for [`need`].
pub fn program(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed; as root: tests/parts/setup.sh"))
}
