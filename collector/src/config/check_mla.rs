//! Validation of the settings of MLA.

use virtfleet_wire::settings::Span;

use super::{CollectorConfig, MlaSettings, check_endpoint::credentials};
use crate::mla::settings::{MAX_INTERVAL, Sections, check_stream};

/// Reports the problems of `mla`.
pub(super) fn check(config: &CollectorConfig, report: &mut impl FnMut(&str, String)) {
    let Some(mla) = &config.mla else {
        return;
    };
    if !config.pulls_agents() {
        let message = "has no effect without enrolment or scrape.tls: this collector pulls no agents";
        report("mla", message.to_owned());
    }
    if config.scrape.interval > MAX_INTERVAL {
        let message = format!(
            "must be at most {MAX_INTERVAL} with mla: PromQL looks back five minutes, and one pull may fail"
        );
        report("scrape.interval", message);
    }
    if mla.allow_cidrs.is_empty() {
        report(
            "mla.allowCIDRs",
            "empty: no receiver of a user cluster could be reached; omit it to allow every network"
                .to_owned(),
        );
    }
    queue(mla, report);
    for (key, value) in [("interval", mla.flush.interval), ("sync", mla.flush.sync)] {
        let range = Span(std::time::Duration::from_millis(100))..=Span::seconds(60);
        if !range.contains(&value) {
            report(&format!("mla.flush.{key}"), "must be 100ms to 1m".to_owned());
        }
    }
    if !(1..=1_000_000).contains(&mla.batch.max_samples) {
        report("mla.batch.maxSamples", "must be 1 to 1000000".to_owned());
    }
    if !(65_536..=33_554_432).contains(&mla.batch.max_bytes) {
        report("mla.batch.maxBytes", "must be 65536 to 33554432".to_owned());
    }
    let series = &mla.series;
    if series.max_per_vm == 0 {
        report("mla.series.maxPerVm", "must be at least 1".to_owned());
    }
    if series.max_per_stream < series.max_per_vm {
        let message = format!("must be at least mla.series.maxPerVm, {}", series.max_per_vm);
        report("mla.series.maxPerStream", message);
    }
    if let Some(fleet) = &mla.fleet {
        check_stream(&Sections::of_fleet(fleet), &mut |path, why| {
            report(&format!("mla.fleet.{path}"), why);
        });
        let remote_write = &fleet.remote_write;
        let (tls, auth) = (&remote_write.tls, &remote_write.auth);
        credentials("mla.fleet.remoteWrite", tls, &remote_write.headers, auth, report);
    }
}

fn queue(mla: &MlaSettings, report: &mut impl FnMut(&str, String)) {
    let queue = &mla.queue;
    if queue.folder.is_empty() {
        report("mla.queue.folder", "empty; set the path of a folder".to_owned());
    }
    if queue.max_bytes < 16 << 20 {
        report(
            "mla.queue.maxBytes",
            "must be at least 16777216 (16 MiB)".to_owned(),
        );
    }
    if queue.max_bytes_per_stream < 1 << 20 {
        report(
            "mla.queue.maxBytesPerStream",
            "must be at least 1048576 (1 MiB)".to_owned(),
        );
    }
    if queue.max_bytes_per_stream > queue.max_bytes {
        let message = format!("must be at most mla.queue.maxBytes, {}", queue.max_bytes);
        report("mla.queue.maxBytesPerStream", message);
    }
    if queue.max_age < Span::seconds(60) {
        report("mla.queue.maxAge", "must be at least 1m".to_owned());
    }
}
