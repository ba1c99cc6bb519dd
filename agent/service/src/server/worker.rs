//! The worker thread, which owns the collectors and the reporter. A collector may block on a slow
//! kernel file; the server's thread must not. Requests wait in a short queue, each with its own
//! deadline in the server.

use std::{collections::VecDeque, panic::AssertUnwindSafe};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use virtfleet_agent_metrics::{Filter, FilterError, Registry};
use virtfleet_wire::exposition::Page;

use super::{OwnMetrics, gzip::Gzip};
use crate::{pause::ClockWatch, report::Reporter};

/// A page or a report, encoded.
pub(super) type Body = Result<Bytes, String>;

type MetricsReply = oneshot::Sender<Result<Body, FilterError>>;

enum Job {
    Metrics {
        filter: Filter,
        gzip: bool,
        reply: MetricsReply,
    },
    Report {
        reply: oneshot::Sender<Body>,
    },
    /// Only proves that the thread runs, and samples the clocks.
    Ping,
}

/// A handle to the thread. The thread ends with its last handle.
#[derive(Debug, Clone)]
pub struct Worker {
    jobs: mpsc::Sender<Job>,
    /// Number of finished jobs.
    done: watch::Receiver<u64>,
}

/// The worker thread has ended, which happens only if it cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the collector thread has ended; restart virtfleet-agent")]
pub struct WorkerGone;

/// Maximum number of queued jobs: the default maximum of concurrent requests.
const MAX_QUEUED_JOBS: usize = 40;

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel cannot create a thread.
    pub fn start(
        registry: Registry,
        reporter: Reporter,
        own: OwnMetrics,
        clocks: ClockWatch,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(MAX_QUEUED_JOBS);
        let (ended, done) = watch::channel(0);
        let work = Work {
            registry,
            reporter,
            own,
            clocks,
            page: Page::new(),
            openmetrics: String::new(),
            gzip: None,
        };
        std::thread::Builder::new()
            .name("collect".to_owned())
            .spawn(move || work.run(queue, &ended))?;
        Ok(Self { jobs, done })
    }

    /// A page of metrics, gzip-compressed if requested.
    pub(super) async fn metrics(
        &self,
        filter: Filter,
        gzip: bool,
    ) -> Result<Result<Body, FilterError>, WorkerGone> {
        let (reply, answer) = oneshot::channel();
        self.jobs
            .send(Job::Metrics { filter, gzip, reply })
            .await
            .map_err(|_| WorkerGone)?;
        answer.await.map_err(|_| WorkerGone)
    }

    pub(super) async fn report(&self) -> Result<Body, WorkerGone> {
        let (reply, answer) = oneshot::channel();
        self.jobs
            .send(Job::Report { reply })
            .await
            .map_err(|_| WorkerGone)?;
        answer.await.map_err(|_| WorkerGone)
    }

    /// Returns once the thread has finished a job after this call. It queues a job that does
    /// nothing; if the queue is full, the thread has other jobs. A slow scrape only delays the
    /// return.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn alive(&self) -> Result<(), WorkerGone> {
        let mut done = self.done.clone();
        done.mark_unchanged();
        match self.jobs.try_send(Job::Ping) {
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => done.changed().await.map_err(|_| WorkerGone),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(WorkerGone),
        }
    }

    /// Returns when the thread has ended.
    pub async fn gone(&self) -> WorkerGone {
        self.jobs.closed().await;
        WorkerGone
    }

    /// Returns once the thread has finished a first scrape.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn ready(&self) -> Result<(), WorkerGone> {
        self.metrics(Filter::default(), false).await.map(drop)
    }
}

struct Work {
    registry: Registry,
    reporter: Reporter,
    own: OwnMetrics,
    clocks: ClockWatch,
    page: Page,
    openmetrics: String,
    /// Created at the first request that needs it.
    gzip: Option<Gzip>,
}

impl Work {
    fn run(mut self, mut queue: mpsc::Receiver<Job>, done: &watch::Sender<u64>) {
        let mut waiting = VecDeque::new();
        while let Some(job) = waiting.pop_front().or_else(|| queue.blocking_recv()) {
            self.clocks.sample();
            // A request that was cancelled while it waited is skipped; the channel of its reply is
            // closed.
            match job {
                Job::Metrics { filter, gzip, reply } if !reply.is_closed() => {
                    let mut asked = vec![(gzip, reply)];
                    waiting.extend(std::iter::from_fn(|| queue.try_recv().ok()));
                    // Requests for the same page that arrived before the collection began share it.
                    asked.extend(take_same(&mut waiting, &filter));
                    let waited = asked.len() as u64 - 1;
                    self.answer(&filter, asked);
                    done.send_modify(|done| *done += waited);
                }
                Job::Report { reply } if !reply.is_closed() => {
                    let answer = guarded(|| self.report());
                    drop(reply.send(answer.unwrap_or_else(Err)));
                }
                Job::Metrics { .. } | Job::Report { .. } | Job::Ping => {}
            }
            done.send_modify(|done| *done += 1);
        }
    }

    /// Collects once for all these requests, and compresses once.
    fn answer(&mut self, filter: &Filter, asked: Vec<(bool, MetricsReply)>) {
        let collected = guarded(|| self.collect(filter));
        let mut bodies = [None, None];
        for (gzip, reply) in asked {
            let answer = match &collected {
                Ok(Ok(())) => Ok(bodies[usize::from(gzip)]
                    .get_or_insert_with(|| guarded(|| self.body(gzip)).unwrap_or_else(Err))
                    .clone()),
                Ok(Err(error)) => Err(error.clone()),
                Err(reason) => Ok(Err(reason.clone())),
            };
            drop(reply.send(answer));
        }
    }

    fn collect(&mut self, filter: &Filter) -> Result<(), FilterError> {
        self.page.clear();
        self.registry.scrape(filter, &mut self.page)?;
        if filter.collect.is_empty() {
            self.clocks.append_metrics(&mut self.page);
            self.own.append(&mut self.page, &mut self.openmetrics);
        }
        Ok(())
    }

    fn body(&mut self, compress: bool) -> Body {
        if compress {
            let gzip = self.gzip.get_or_insert_with(Gzip::new);
            gzip.pack(self.page.as_bytes())
        } else {
            Ok(Bytes::copy_from_slice(self.page.as_bytes()))
        }
    }

    fn report(&mut self) -> Body {
        self.reporter
            .report(&self.clocks)
            .to_json_within_limit()
            .map(Bytes::from)
            .map_err(|error| error.to_string())
    }
}

/// Takes the requests for the same page that still wait out of the queue.
fn take_same(waiting: &mut VecDeque<Job>, filter: &Filter) -> Vec<(bool, MetricsReply)> {
    let (mut same, mut others) = (Vec::new(), VecDeque::with_capacity(waiting.len()));
    for job in waiting.drain(..) {
        match job {
            Job::Metrics {
                filter: wanted,
                gzip,
                reply,
            } if wanted == *filter => {
                if !reply.is_closed() {
                    same.push((gzip, reply));
                }
            }
            job => others.push_back(job),
        }
    }
    *waiting = others;
    same
}

/// Turns a panic into one failed response, so that an unexpected file of the guest cannot end the
/// agent repeatedly. The registry rebuilds a collector after a panic. Other state is a buffer,
/// or is reset for each response.
fn guarded<T>(answer: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(answer))
        .map_err(|_| "the agent panicked while it built this response; its log names the place".to_owned())
}

#[cfg(any(test, feature = "fakes"))]
impl Worker {
    /// A worker that finishes this many jobs, with an empty page for scrapes, and then ends.
    /// Without a number it finishes none.
    pub fn scripted(answers: Option<usize>) -> Self {
        Self::hanging_after(answers.unwrap_or_default(), answers.is_none())
    }

    /// A worker that finishes this many jobs and then hangs, or ends.
    pub fn hanging_after(answers: usize, hangs: bool) -> Self {
        let (jobs, mut queue) = mpsc::channel(MAX_QUEUED_JOBS);
        let (ended, done) = watch::channel(0);
        std::thread::spawn(move || {
            for _ in 0..answers {
                if let Some(Job::Metrics { reply, .. }) = queue.blocking_recv() {
                    drop(reply.send(Ok(Ok(Bytes::new()))));
                }
                ended.send_modify(|done| *done += 1);
            }
            if hangs {
                // The jobs are kept, so that their senders get no error.
                let mut kept = Vec::new();
                while let Some(job) = queue.blocking_recv() {
                    kept.push(job);
                }
            }
        });
        Self { jobs, done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_the_same_page_share_it() {
        let filter = |name: &str| Filter {
            collect: vec![name.to_owned()],
            exclude: Vec::new(),
        };
        let mut answers = Vec::new();
        let mut job = |name: &str, gzip| {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            Job::Metrics {
                filter: filter(name),
                gzip,
                reply,
            }
        };
        let mut waiting: VecDeque<_> =
            [job("cpu", true), job("os", false), Job::Ping, job("cpu", false)].into();
        let given_up = {
            let (reply, answer) = oneshot::channel();
            drop(answer);
            Job::Metrics {
                filter: filter("cpu"),
                gzip: true,
                reply,
            }
        };
        waiting.push_back(given_up);
        let same: Vec<_> = take_same(&mut waiting, &filter("cpu"))
            .into_iter()
            .map(|(gzip, _)| gzip)
            .collect();
        assert_eq!(same, [true, false]);
        assert_eq!(waiting.len(), 2, "other requests stay, in their order");
        assert!(matches!(&waiting[0], Job::Metrics { filter, .. } if filter.collect == ["os"]));
    }

    #[test]
    fn a_panic_fails_one_answer() {
        assert_eq!(guarded(|| 1), Ok(1));
        assert!(
            guarded(|| -> u8 { panic!("odd file") })
                .unwrap_err()
                .contains("panicked")
        );
    }
}
