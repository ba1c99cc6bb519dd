//! Figures of received requests and of the two processes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use virtfleet_tests::{measure::usage, remote_write::CountedRequest, wait};

use super::scene::{Form, Scene, VMAGENT_PATH};

/// The collector and vmagent over some intervals.
pub(crate) struct Window {
    /// The collector, vmagent.
    pub(crate) sides: [Side; 2],
    pub(crate) guests: f64,
}

/// One of the two programs in a window.
#[derive(Default)]
pub(crate) struct Side {
    /// CPU seconds and samples of each interval.
    slices: Vec<(f64, f64)>,
    seconds: f64,
    requests: f64,
    bytes: f64,
    scrapes: f64,
    /// Mean resident memory in bytes.
    pub(crate) resident: f64,
    /// Peak resident memory in bytes since its start.
    pub(crate) peak: f64,
    /// Private memory at the end in bytes.
    pub(crate) private: f64,
    /// Share of its CPU time in the kernel.
    pub(crate) kernel: f64,
    /// Bytes written to its disk.
    pub(crate) written: f64,
}

impl Window {
    /// Measures so many intervals.
    pub(crate) fn measure(scene: &Scene, intervals: u32) -> Result<Self> {
        let ids = scene.processes();
        let mut sides = [Side::default(), Side::default()];
        let mut cpu = [usage::cpu(ids[0])?, usage::cpu(ids[1])?];
        let modes = [usage::modes(ids[0])?, usage::modes(ids[1])?];
        let written = [usage::written(ids[0])?, usage::written(ids[1])?];
        scene.receiver.take()?;
        let (mut probes, mut sums) = (0.0, [0.0, 0.0]);
        for _ in 0..intervals {
            let begin = std::time::Instant::now();
            wait::measure(scene.interval, || {
                probes += 1.0;
                for (sum, id) in sums.iter_mut().zip(ids) {
                    *sum += usage::resident(id)? as f64;
                }
                Ok(())
            })?;
            let seconds = begin.elapsed().as_secs_f64();
            let requests = scene.receiver.take()?;
            for (index, side) in sides.iter_mut().enumerate() {
                let now = usage::cpu(ids[index])?;
                let used = now.saturating_sub(std::mem::replace(&mut cpu[index], now));
                let own = requests
                    .iter()
                    .filter(|request| (request.path == VMAGENT_PATH) == (index == 1));
                side.add(own, used, seconds);
            }
        }
        for (index, side) in sides.iter_mut().enumerate() {
            side.resident = sums[index] / probes;
            side.peak = usage::peak(ids[index])? as f64;
            side.private = usage::private(ids[index])? as f64;
            side.written = usage::written(ids[index])?.saturating_sub(written[index]) as f64;
            let [user, system] = usage::modes(ids[index])?;
            let user = user.saturating_sub(modes[index][0]);
            let system = system.saturating_sub(modes[index][1]);
            side.kernel = system.as_secs_f64() / (user + system).as_secs_f64().max(1e-9);
        }
        Ok(Self {
            sides,
            guests: scene.guests as f64,
        })
    }

    /// Seconds between two scrapes of a guest, for both programs.
    pub(crate) fn reached(&self) -> [f64; 2] {
        [0, 1].map(|index| {
            let side = &self.sides[index];
            self.guests * side.seconds / side.scrapes.max(1.0)
        })
    }
}

impl Side {
    fn add<'a>(&mut self, requests: impl Iterator<Item = &'a CountedRequest>, cpu: Duration, seconds: f64) {
        let mut samples = 0.0;
        for request in requests {
            samples += request.samples as f64;
            self.bytes += request.bytes as f64;
            self.scrapes += request.scrapes as f64;
            self.requests += 1.0;
        }
        self.seconds += seconds;
        self.slices.push((cpu.as_secs_f64(), samples));
    }

    fn samples(&self) -> f64 {
        self.slices.iter().map(|(_, samples)| samples).sum()
    }

    /// CPU seconds per million samples: median of the intervals.
    pub(crate) fn cpu_per_million(&self) -> f64 {
        median(self.slices.iter().map(cost).collect())
    }

    pub(crate) fn rate(&self) -> f64 {
        self.samples() / self.seconds
    }

    pub(crate) fn cores(&self) -> f64 {
        self.slices.iter().map(|(cpu, _)| cpu).sum::<f64>() / self.seconds
    }

    pub(crate) fn bytes_per_sample(&self) -> f64 {
        self.bytes / self.samples().max(1.0)
    }

    pub(crate) fn written_per_sample(&self) -> f64 {
        self.written / self.samples().max(1.0)
    }

    /// Bytes written to its disk for each byte sent.
    pub(crate) fn written_per_byte(&self) -> f64 {
        self.written / self.bytes.max(1.0)
    }

    pub(crate) fn samples_per_request(&self) -> f64 {
        self.samples() / self.requests.max(1.0)
    }
}

fn cost((cpu, samples): &(f64, f64)) -> f64 {
    cpu / samples.max(1.0) * 1e6
}

/// CPU per sample of the collector divided by that of vmagent: median of the intervals.
pub(crate) fn median_ratio(window: &Window) -> f64 {
    let [ours, theirs] = &window.sides;
    let pairs = ours.slices.iter().zip(&theirs.slices);
    median(pairs.map(|(own, other)| cost(own) / cost(other)).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    quantile(&mut values, 50)
}

fn quantile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = values.len().saturating_sub(1) * percent / 100;
    values.get(index).copied().unwrap_or(f64::NAN)
}

/// Bytes of the bodies per sample.
pub(crate) fn bytes_per_sample(requests: &[CountedRequest]) -> f64 {
    let bytes: u64 = requests.iter().map(|request| request.bytes).sum();
    let samples: u64 = requests.iter().map(|request| request.samples).sum();
    bytes as f64 / (samples as f64).max(1.0)
}

/// Ages of the oldest sample of each request, in seconds.
pub(crate) struct Delays {
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) highest: f64,
}

/// Delays of the requests to the paths that `includes` accepts.
pub(crate) fn delays(requests: &[CountedRequest], includes: impl Fn(&str) -> bool) -> Delays {
    let own = requests.iter().filter(|request| includes(&request.path));
    let mut all: Vec<f64> = own.map(|request| request.delay.as_secs_f64()).collect();
    Delays {
        median: quantile(&mut all, 50),
        p99: quantile(&mut all, 99),
        highest: quantile(&mut all, 100),
    }
}

/// What was delivered between the first success after an outage and the first live request.
pub(crate) struct Drain {
    pub(crate) samples: u64,
    pub(crate) seconds: f64,
}

impl Drain {
    /// Samples a second.
    pub(crate) fn rate(&self) -> f64 {
        self.samples as f64 / self.seconds.max(1e-3)
    }
}

/// The drain of a backlog, from the requests since the end of the outage. The first request is not
/// counted, because its time begins before its arrival.
pub(crate) fn drain(requests: &[CountedRequest], path: &str, interval: Duration) -> Drain {
    let mut own = requests.iter().filter(|request| request.path == path);
    let Some(first) = own.next() else {
        return Drain {
            samples: 0,
            seconds: 0.0,
        };
    };
    let mut drain = Drain {
        samples: 0,
        seconds: 0.0,
    };
    for request in own {
        if !is_backlog(request, interval) {
            break;
        }
        drain.samples += request.samples;
        drain.seconds = request.at.duration_since(first.at).as_secs_f64();
    }
    drain
}

/// Whether a request is older than a live one: those wait for the flush interval (5 s), and a
/// machine may be late.
pub(crate) fn is_backlog(request: &CountedRequest, interval: Duration) -> bool {
    request.delay > interval * 2
}

/// Whether a request is of this form.
pub(crate) fn is_form(request: &CountedRequest, form: Form) -> bool {
    request.path.starts_with(form.prefix())
}

/// The first line of a page that begins with `prefix`, as a number.
pub(crate) fn value(page: &str, prefix: &str) -> Result<usize> {
    let line = page.lines().find_map(|line| line.strip_prefix(prefix));
    let text = line.with_context(|| format!("no line begins with {prefix:?}"))?;
    text.trim().parse().context("not a number")
}
