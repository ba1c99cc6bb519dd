//! Commands and files in a guest.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{agent::Done, disk::Disk, running::Guest, say};
use crate::wait::journal_script;

/// Default timeout of a command.
const DEADLINE: Duration = Duration::from_mins(2);
/// A command that takes longer is printed in the test's output with its duration.
const SLOW: Duration = Duration::from_secs(1);
/// Maximum size in bytes of a file that is written or read through the agent: the port transfers
/// about 2 MB/s. Use [`Guest::copy_in`] for more.
const BOUND: usize = 4 << 20;

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; 128 and more if a signal ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Guest {
    fn execute(&self, script: &str, input: Option<&[u8]>, deadline: Duration) -> Result<Done> {
        let begun = Instant::now();
        let done = self.state().agent()?.execute(script, input, begun + deadline);
        if begun.elapsed() >= SLOW {
            let line = script.lines().next().unwrap_or_default();
            let line: String = line.chars().take(100).collect();
            say(&format!("{:.1} s for: {line}", begun.elapsed().as_secs_f64()));
        }
        done.with_context(|| format!("in the guest, for at most {deadline:?}: {script}"))
            .map_err(|error| error.context(self.tail()))
    }

    /// Runs a script with `/bin/sh` as root, for at most two minutes; any exit code is accepted.
    pub fn sh(&self, script: &str) -> Result<Output> {
        self.sh_within(script, DEADLINE)
    }

    /// As [`Guest::sh`], for at most `deadline`. After that the script continues to run.
    pub fn sh_within(&self, script: &str, deadline: Duration) -> Result<Output> {
        let done = self.execute(script, None, deadline)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Output {
            code: done.code,
            stdout: text(done.stdout),
            stderr: text(done.stderr),
        })
    }

    /// Runs a script and returns its standard output without the last newline. A non-zero exit code
    /// is an error that quotes both streams.
    pub fn run(&self, script: &str) -> Result<String> {
        self.run_within(script, DEADLINE)
    }

    /// As [`Guest::run`], for at most `deadline`.
    pub fn run_within(&self, script: &str, deadline: Duration) -> Result<String> {
        let output = self.sh_within(script, deadline)?;
        ensure!(
            output.code == 0,
            "in the guest: exit code {} of: {script}\nits output:\n{}its errors:\n{}",
            output.code,
            output.stdout,
            output.stderr
        );
        Ok(output.stdout.trim_end_matches('\n').to_owned())
    }

    /// What a unit has logged since the boot; see [`journal_script`].
    pub fn journal(&self, unit: &str) -> Result<String> {
        let unit = quote(unit);
        self.run(&journal_script(&format!("--unit={unit}")))
    }

    /// Writes and syncs a file of at most 4 MiB; creates its folders. `mode` is octal, as for
    /// `chmod`.
    pub fn write_file(&self, path: &str, bytes: &[u8], mode: &str) -> Result<()> {
        ensure!(
            bytes.len() <= BOUND,
            "{path}: {} bytes, at most {BOUND} at once",
            bytes.len()
        );
        let path = quote(path);
        let script = format!(
            "mkdir -p \"$(dirname {path})\" && cat > {path} && chmod {} {path} && sync {path}",
            quote(mode)
        );
        let done = self.execute(&script, Some(bytes), DEADLINE)?;
        let errors = String::from_utf8_lossy(&done.stderr);
        ensure!(done.code == 0, "in the guest: write {path}: {errors}");
        Ok(())
    }

    /// Reads a file of at most 4 MiB.
    pub fn read_file(&self, path: &str) -> Result<Vec<u8>> {
        let script = format!("head -c {} {}", BOUND + 1, quote(path));
        let done = self.execute(&script, None, DEADLINE)?;
        let errors = String::from_utf8_lossy(&done.stderr);
        ensure!(done.code == 0, "in the guest: read {path}: {errors}");
        ensure!(done.stdout.len() <= BOUND, "{path} has more than {BOUND} bytes");
        Ok(done.stdout)
    }

    /// Copies a folder's content into the guest's folder `to`, with modes and owners, through a
    /// disk that is hot-plugged for the copy.
    pub fn copy_in(&self, folder: &Path, to: &str) -> Result<()> {
        let number = self.next_number();
        let (name, label) = (format!("copy{number}"), format!("copy{number}"));
        self.plug_disk(&Disk::folder(&name, folder, &label).read_only())?;
        let to = quote(to);
        let copied = self.run(&format!(
            "from=$(mktemp -d) && mount -o ro -L {label} \"$from\" && mkdir -p {to} && \
             {{ cp -a \"$from\"/. {to}/; status=$?; umount \"$from\"; rmdir \"$from\" {to}/lost+found; exit $status; }}"
        ));
        self.unplug_disk(&name)?;
        copied.map(drop)
    }

    /// Copies a folder out of the guest, as a tar archive of at most 4 MiB.
    pub fn copy_out(&self, folder: &str) -> Result<Vec<u8>> {
        let script = format!("tar -C {} -c . | head -c {}", quote(folder), BOUND + 1);
        let done = self.execute(&script, None, DEADLINE)?;
        ensure!(done.stdout.len() <= BOUND, "{folder} has more than {BOUND} bytes");
        Ok(done.stdout)
    }
}

/// Quotes a word for the shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one() {
        assert_eq!(quote("it's $x"), "'it'\\''s $x'");
    }
}
