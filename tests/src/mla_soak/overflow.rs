//! One tenant's queue overflows while nothing else fails, so that what is missing can be counted
//! exactly.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{
    manifest,
    proxy::ProxyMode,
    run::{Soak, beat, millis, now_ms, number},
};
use crate::{stage::STAGE_TIMEOUT, wait};

/// Maximum time until the smallest queue is full.
const OVERFLOW_TIMEOUT: Duration = Duration::from_mins(20);
/// Samples that must be dropped.
const MIN_DROPPED: u64 = 1000;
/// Settings of the smallest queue.
const SMALLEST_QUEUE: &str = "    limits: { queueBytes: 1048576 }\n";

/// The tenant whose queue overflowed.
#[derive(Debug, Clone)]
pub(super) struct Overflow {
    /// Its user cluster.
    pub(super) cluster: String,
    /// When the collector's last life began, in milliseconds since 1970.
    pub(super) since_ms: i64,
    /// Time in which its pages may be missing or incomplete.
    pub(super) outage: (i64, i64),
}

/// Samples that a stream dropped after they were put into requests.
pub(super) fn lost(stream: &Value) -> u64 {
    let reasons = stream["dropped"].as_object().into_iter().flatten();
    // Those that a page causes were not put into requests.
    let of_pages = ["limit", "notLater", "collided"];
    let lost = reasons.filter(|(reason, _)| !of_pages.contains(&reason.as_str()));
    lost.map(|(_, count)| number(count)).sum()
}

impl Soak {
    /// Starts the collector again, cuts the network of the first tenant until its queue has
    /// overflowed, and opens it.
    pub(super) fn overflow(&mut self) -> Result<()> {
        self.end_life_now()?;
        let stopped = self.stage.take_collector()?.terminate(STAGE_TIMEOUT)?;
        ensure!(stopped.success(), "the collector ended with {stopped}");
        self.note("filling the smallest queue");
        let since_ms = now_ms();
        self.stage.start_collector(beat(&self.options))?;
        let restarted = now_ms() + millis(3 * self.options.interval);
        self.outages
            .push((since_ms - millis(3 * self.options.interval), restarted));
        let cluster = self.stage.plan.clusters[0].clone();
        self.until_stream(&cluster, "is live", |stream| {
            stream["samples"] == 0 && number(&stream["sentSamples"]) > 0
        })?;
        let began = now_ms();
        let proxy = (self.proxies[0].address, self.kind_of(0));
        self.proxies[0].set(ProxyMode::Cut);
        manifest::write(&self.stage, &cluster, proxy, SMALLEST_QUEUE)?;
        self.until_stream(&cluster, "drops samples", |stream| {
            number(&stream["dropped"]["queueFull"]) > MIN_DROPPED
        })?;
        self.proxies[0].set(ProxyMode::Pass);
        self.overflow = Some(Overflow {
            cluster,
            since_ms,
            outage: (
                began - millis(self.options.interval),
                now_ms() + millis(3 * self.options.interval),
            ),
        });
        Ok(())
    }

    fn until_stream(&self, cluster: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
        wait::eventually(
            OVERFLOW_TIMEOUT,
            &format!("the stream of {cluster} {what}"),
            || {
                let streams = self.streams()?;
                let stream = streams.iter().find(|(name, _)| name == cluster);
                let (_, stream) = stream.context("no stream")?;
                ensure!(holds(stream), "{stream}");
                Ok(())
            },
        )
    }
}
