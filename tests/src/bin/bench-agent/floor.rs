//! A scrape against its fair floor: the same files and kernel queries, each system call once, plus
//! an answer over HTTP without metrics.

use std::time::{Duration, Instant};

use anyhow::Result;
use virtfleet_tests::{
    measure::replay::{Replay, capture},
    parity::programs::Serve,
    wait,
};

use crate::subject::{PROGRAMS, Subject, quantile};

const SOON: Duration = Duration::from_secs(20);

/// Medians in µs.
pub(crate) struct Floor {
    /// A scrape without gzip.
    pub(crate) scrape: f64,
    /// The same files and kernel queries.
    pub(crate) calls: f64,
    /// An answer without metrics: the cost of HTTP alone on this machine.
    pub(crate) http: f64,
    /// System calls of a scrape.
    pub(crate) count: usize,
}

impl Floor {
    /// Duration of a scrape, with the floor as 1.
    pub(crate) fn ratio(&self) -> f64 {
        self.scrape / (self.calls + self.http)
    }

    /// Measures them alternately. Requires strace and the permission to trace another process.
    pub(crate) fn measure(serve: &Serve, scrapes: usize) -> Result<Self> {
        let mut agent = PROGRAMS[0].start(serve)?;
        agent.warm(50, false)?;
        let id = agent.process.id();
        let trace = capture(id, || agent.client.get("/metrics")?.ok().map(drop))?;
        let count = trace.count;
        // A process that was traced is slower, so another one is measured. The first one stays,
        // because some of the files are its own.
        let replay = Replay::new(trace)?;
        let mut measured = PROGRAMS[0].start(serve)?;
        measured.warm(50, false)?;
        let (mut calls, mut http) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let share = (scrapes / 10).max(1);
            measured.scrape(share, false)?;
            calls.extend(replay.run(share)?);
            http.extend(empty_answers(&mut measured, share)?);
        }
        Ok(Self {
            scrape: measured.quantile(0.5),
            calls: quantile(&mut calls, 0.5),
            http: quantile(&mut http, 0.5),
            count,
        })
    }
}

/// Durations of `times` requests for an empty response.
fn empty_answers(subject: &mut Subject, times: usize) -> Result<Vec<Duration>> {
    wait::eventually(SOON, "readiness", || subject.client.get("/readyz")?.ok())?;
    (0..times)
        .map(|_| {
            let start = Instant::now();
            subject.client.get("/readyz")?.ok()?;
            Ok(start.elapsed())
        })
        .collect()
}
