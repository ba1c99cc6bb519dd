//! The one thread that owns the collectors and the reporter. A collector may block on a slow kernel file; the server's
//! thread must not. Requests wait for it in a short queue, each with its own deadline in the server.

use std::{collections::VecDeque, panic::AssertUnwindSafe};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use virtfleet_agent_metrics::{Filter, FilterError, Registry};
use virtfleet_wire::exposition::Page;

use super::{OwnMetrics, gzip::Gzip};
use crate::{pause::ClockWatch, report::Reporter};

/// A page or a report, ready to send.
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
    /// Nothing but a sign of life, and a look at the clocks.
    Ping,
}

/// A handle to the thread; it ends with the last handle.
#[derive(Debug, Clone)]
pub struct Worker {
    jobs: mpsc::Sender<Job>,
    /// Counts the jobs that are done.
    done: watch::Receiver<u64>,
}

/// The thread has ended, which it only does when it cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the thread that collects has ended; restart virtfleet-agent")]
pub struct WorkerGone;

/// Jobs that may wait: as many as requests may run by default.
const QUEUE: usize = 40;

impl Worker {
    /// Starts the thread. Errors: the kernel gives us none.
    pub fn start(
        registry: Registry,
        reporter: Reporter,
        own: OwnMetrics,
        clocks: ClockWatch,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
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

    /// A page of metrics, compressed when asked for.
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

    /// The report as JSON.
    pub(super) async fn report(&self) -> Result<Body, WorkerGone> {
        let (reply, answer) = oneshot::channel();
        self.jobs
            .send(Job::Report { reply })
            .await
            .map_err(|_| WorkerGone)?;
        answer.await.map_err(|_| WorkerGone)
    }

    /// Returns once the thread has shown that it lives: it has done a job after this was called. One is brought to it; when
    /// its queue is full it has others. A scrape that is slow only makes this slow.
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

    /// Returns once the thread has answered a whole scrape.
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
    /// Made for the first who asks for it.
    gzip: Option<Gzip>,
}

impl Work {
    fn run(mut self, mut queue: mpsc::Receiver<Job>, done: &watch::Sender<u64>) {
        let mut waiting = VecDeque::new();
        while let Some(job) = waiting.pop_front().or_else(|| queue.blocking_recv()) {
            self.clocks.look();
            // A request that was given up while it waited is not worked on; the sender of its answer is closed.
            match job {
                Job::Metrics { filter, gzip, reply } if !reply.is_closed() => {
                    let mut asked = vec![(gzip, reply)];
                    waiting.extend(std::iter::from_fn(|| queue.try_recv().ok()));
                    // Who asked for the same before it was begun gets the same page.
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

    /// One collection for all of them, compressed once.
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

/// Takes out of the queue those who want the same page and still wait for it.
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

/// A panic fails one answer and not the thread: a guest's odd file must not end the agent again and again. Collectors are
/// rebuilt after theirs by the registry; what else is kept between two answers is a buffer or is set anew.
fn guarded<T>(answer: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(answer))
        .map_err(|_| "the agent panicked at this answer; its log says where".to_owned())
}

#[cfg(any(test, feature = "fakes"))]
impl Worker {
    /// A worker that does this many jobs, scrapes with an empty page, and then ends; or, with none, that never does any.
    pub fn scripted(answers: Option<usize>) -> Self {
        Self::hanging_after(answers.unwrap_or_default(), answers.is_none())
    }

    /// A worker that does this many jobs and then hangs, or ends.
    pub fn hanging_after(answers: usize, hangs: bool) -> Self {
        let (jobs, mut queue) = mpsc::channel(QUEUE);
        let (ended, done) = watch::channel(0);
        std::thread::spawn(move || {
            for _ in 0..answers {
                if let Some(Job::Metrics { reply, .. }) = queue.blocking_recv() {
                    drop(reply.send(Ok(Ok(Bytes::new()))));
                }
                ended.send_modify(|done| *done += 1);
            }
            if hangs {
                // The jobs are kept, so that nobody hears that they will not be done.
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
    fn who_waits_for_the_same_page_gets_the_same() {
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
        assert_eq!(waiting.len(), 2, "what others want stays, in its order");
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
