//! Traces one scrape of a running program with strace.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::{CALLS, Trace};
use crate::{process::Launch, skip};

const SOON: Duration = Duration::from_secs(20);

/// The calls of process `id` while `scrape` runs. `scrape` must have run before, so that files that
/// are kept open are open.
///
/// # Errors
/// strace is missing or may not trace the process; the scrape fails; no file was read.
pub fn capture(id: u32, scrape: impl FnOnce() -> Result<()>) -> Result<Trace> {
    skip::program("strace")?;
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("trace");
    let mut strace = Launch::new("strace")
        .args(["-f", "-y", "-s", "4096", "-e", "write=all", "-e"])
        .arg(format!("trace={CALLS}"))
        .arg("-o")
        .arg(&output)
        .args(["-p", &id.to_string()])
        .start(folder.path())?;
    strace.wait_for_line("attached", SOON)?;
    let scraped = scrape();
    strace.signal(Signal::SIGINT)?;
    // strace exits with the signal that ended it.
    strace.wait(SOON)?;
    scraped?;
    let trace = Trace::parse(&fs::read_to_string(&output).context("the output of strace")?);
    ensure!(!trace.calls.is_empty(), "strace recorded no file that was read");
    Ok(trace)
}
