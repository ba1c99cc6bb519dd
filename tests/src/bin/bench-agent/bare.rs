//! Baseline of a scrape: the bare reads of the files that one scrape of the agent reads.
//!
//! strace lists the files. A file that the agent keeps open and reads with `pread64` is read from
//! an open file here too; a file that the agent opens is opened, read and closed.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use virtfleet_tests::{measure::reads::Files, process::Launch, skip, wait};

use crate::subject::Subject;

const SOON: Duration = Duration::from_secs(20);

/// The files of one scrape of `subject`, which must have been scraped before.
pub(crate) fn files_of(subject: &mut Subject) -> Result<Files> {
    skip::program("strace")?;
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("trace");
    let mut strace = Launch::new("strace")
        .args(["-f", "-y", "-s", "0", "-e", "trace=openat,open,read,pread64"])
        .arg("-o")
        .arg(&trace)
        .args(["-p", &subject.process.id().to_string()])
        .start(folder.path())?;
    strace.wait_for_line("attached", SOON)?;
    let answer = subject.client.get("/metrics");
    strace.signal(Signal::SIGINT)?;
    // strace exits with the signal that ended it.
    strace.wait(SOON)?;
    answer?.ok()?;
    let text = fs::read_to_string(&trace).context("what strace has written")?;
    let files = Files::parse(&text);
    ensure!(
        !files.kept.is_empty() || !files.opened.is_empty(),
        "strace saw no file read"
    );
    Ok(files)
}

/// Durations of `times` requests for an empty response: the cost of HTTP alone on this machine.
pub(crate) fn empty_answer(subject: &mut Subject, times: usize) -> Result<Vec<Duration>> {
    wait::eventually(SOON, "readiness", || subject.client.get("/readyz")?.ok())?;
    (0..times)
        .map(|_| {
            let start = Instant::now();
            subject.client.get("/readyz")?.ok()?;
            Ok(start.elapsed())
        })
        .collect()
}
