//! `processes`: number of processes and threads by state.
//!
//! The `stat` of a single-threaded process covers its thread; only threads of other processes are
//! listed.

use std::path::{Path, PathBuf};

use virtfleet_agent_host::{Reread, TaskError, Tasks};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped, attributes::number_in};

/// Number of tasks by the letter of their state.
type States = [u32; 128];

struct Processes {
    tasks: Tasks,
    thread_limit: Reread,
    process_limit: Reread,
    /// A reused buffer.
    listed: Vec<u32>,
    states: Vec<u8>,
    /// Placeholder path of a task's `stat` for errors: with the real number, a lasting failure
    /// would be a new error at each scrape.
    any: PathBuf,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let number = |path: &str| Reread::with_limit(context.roots.proc(path), 4096);
    Ok(Box::new(Processes {
        tasks: Tasks::new(context.roots.procfs.clone()),
        any: context.roots.proc("PID/stat"),
        thread_limit: number("sys/kernel/threads-max"),
        process_limit: number("sys/kernel/pid_max"),
        listed: Vec::new(),
        states: Vec::new(),
    }))
}

#[derive(Debug)]
struct Counted {
    processes: u32,
    threads: u64,
    process_states: States,
    thread_states: States,
}

impl Collector for Processes {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        // All of them or none: a sum without one would be wrong.
        let counted = self.count()?;
        let mut skipped = Skipped::default();
        page.gauge(
            "node_processes_threads",
            "Threads of all processes.",
            counted.threads as f64,
        );
        if let Some(most) = skipped.take(number_in(&mut self.thread_limit)) {
            page.gauge("node_processes_max_threads", "Maximum number of threads.", most);
        }
        write(
            page,
            ("node_processes_state", "Processes in each state."),
            "state",
            &counted.process_states,
        );
        write(
            page,
            ("node_processes_threads_state", "Threads in each state."),
            "thread_state",
            &counted.thread_states,
        );
        page.gauge("node_processes_pids", "Processes.", f64::from(counted.processes));
        if let Some(most) = skipped.take(number_in(&mut self.process_limit)) {
            page.gauge("node_processes_max_processes", "Maximum PID.", most);
        }
        skipped.end()
    }
}

impl Processes {
    fn count(&mut self) -> Result<Counted, CollectError> {
        let mut counted = Counted {
            processes: 0,
            threads: 0,
            process_states: [0; 128],
            thread_states: [0; 128],
        };
        let failed = |error| failed(&self.any, error);
        self.tasks.processes(&mut self.listed).map_err(failed)?;
        for process in &self.listed {
            let Some(stat) = self.tasks.process(*process).map_err(failed)? else {
                continue;
            };
            counted.processes += 1;
            counted.threads += u64::from(stat.threads);
            counted.process_states[usize::from(stat.state & 127)] += 1;
            if stat.threads <= 1 {
                counted.thread_states[usize::from(stat.state & 127)] += 1;
                continue;
            }
            self.tasks
                .threads(*process, stat, &mut self.states)
                .map_err(failed)?;
            for state in &self.states {
                counted.thread_states[usize::from(state & 127)] += 1;
            }
        }
        Ok(counted)
    }
}

fn failed(any: &Path, error: TaskError) -> CollectError {
    let what = error.to_string();
    match error {
        TaskError::Processes(errno) | TaskError::Threads(errno) => CollectError::because(what, errno),
        TaskError::Read(errno) => CollectError::because(format!("cannot read {}", any.display()), errno),
        TaskError::Parse(error) => CollectError::parse(any)(error),
    }
}

fn write(page: &mut Page, (name, help): (&str, &str), label: &str, states: &States) {
    let mut family = page.family(name, help, MetricType::Gauge);
    for (letter, count) in (0_u8..).zip(states) {
        if *count > 0 {
            family.sample(
                &[(label, char::from(letter).encode_utf8(&mut [0; 4]))],
                f64::from(*count),
            );
        }
    }
}
