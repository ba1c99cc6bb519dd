//! Commands in a guest, and files.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{agent::Done, disk::Disk, running::Guest, say};

/// For a command, unless said otherwise.
const DEADLINE: Duration = Duration::from_mins(2);
/// A command that takes this long is named in the test's output with its time.
const SLOW: Duration = Duration::from_secs(1);
/// What goes into a file or comes out of one at once, in bytes: the port carries some 2 MB a second. More comes in by
/// [`Guest::copy_in`].
const BOUND: usize = 4 << 20;

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; 128 and more when a signal ended it.
    pub code: i32,
    /// Its standard output, as text.
    pub stdout: String,
    /// Its standard error, as text.
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

    /// Runs a script with `/bin/sh` as root, for at most two minutes, whatever its exit code.
    pub fn sh(&self, script: &str) -> Result<Output> {
        self.sh_within(script, DEADLINE)
    }

    /// The same, for at most `deadline`. The script goes on after that.
    pub fn sh_within(&self, script: &str, deadline: Duration) -> Result<Output> {
        let done = self.execute(script, None, deadline)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Output {
            code: done.code,
            stdout: text(done.stdout),
            stderr: text(done.stderr),
        })
    }

    /// Runs a script and gives its standard output without the last newline; any other exit code than 0 is an error that
    /// quotes both streams.
    pub fn run(&self, script: &str) -> Result<String> {
        self.run_within(script, DEADLINE)
    }

    /// The same, for at most `deadline`.
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

    /// Writes a file of at most 4 MiB, with its folders, and brings it to the disk. `mode` is octal, as of `chmod`.
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

    /// Copies a folder's content into the guest's folder `to`, with modes and owners, by a disk that is plugged in for it.
    pub fn copy_in(&self, folder: &Path, to: &str) -> Result<()> {
        let number = self.count();
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

/// A word of a shell, whatever is in it.
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
