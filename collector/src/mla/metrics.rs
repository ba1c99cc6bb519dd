//! The collector's own metrics about the streams, made of the status registry when they are read.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Registry,
};
use virtfleet_collector_core::mla::status::{DropReason, QueueStatusView, RefusalReason};

use super::status::MlaStatus;

/// Maximum streams with metrics. Further ones have none; the API has all.
const MAX_METRIC_STREAMS: usize = 2_000;

/// Registers the metrics of `status` as `mla_…`. They have no series while there is no stream.
pub fn register(status: &Arc<MlaStatus>, registry: &mut Registry) {
    registry.register_collector(Box::new(MlaMetrics {
        status: Arc::clone(status),
        now_ms: || jiff::Timestamp::now().as_millisecond().cast_unsigned(),
    }));
}

#[derive(Debug)]
struct MlaMetrics {
    status: Arc<MlaStatus>,
    now_ms: fn() -> u64,
}

/// A stream with its name as text.
type NamedStream = (String, QueueStatusView);

impl Collector for MlaMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let streams = self.status.queues().into_iter().take(MAX_METRIC_STREAMS);
        let streams: Vec<NamedStream> = streams.map(|view| (view.stream.to_string(), view)).collect();
        if streams.is_empty() {
            return Ok(());
        }
        let now = (self.now_ms)();
        gauges(&mut encoder, &streams, now)?;
        counters(&mut encoder, &streams)
    }
}

fn gauges(encoder: &mut DescriptorEncoder<'_>, streams: &[NamedStream], now: u64) -> fmt::Result {
    let seconds = |view: &QueueStatusView| view.oldest_age_ms(now) as f64 / 1000.0;
    gauge(
        encoder,
        "mla_queue_bytes",
        "Size of the stream's queue on disk",
        streams,
        |view| Some(view.bytes as f64),
    )?;
    gauge(
        encoder,
        "mla_queue_limit_bytes",
        "Maximum size of the stream's queue",
        streams,
        |view| Some(view.limit_bytes as f64),
    )?;
    gauge(
        encoder,
        "mla_queue_samples",
        "Samples in the stream's queue",
        streams,
        |view| Some(view.samples as f64),
    )?;
    gauge(
        encoder,
        "mla_queue_oldest_seconds",
        "Age of the oldest sample in the stream's queue; 0 if it is empty",
        streams,
        |view| Some(seconds(view)),
    )?;
    gauge(
        encoder,
        "mla_endpoint_up",
        "Whether the last request to the stream's endpoint succeeded",
        streams,
        |view| view.is_endpoint_up().map(|up| f64::from(u8::from(up))),
    )?;
    gauge(
        encoder,
        "mla_stream_stopped",
        "Whether the stream sends nothing until somebody acts: state refused or stopped",
        streams,
        |view| Some(f64::from(u8::from(view.state.needs_action()))),
    )
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    streams: &[NamedStream],
    value: impl Fn(&QueueStatusView) -> Option<f64>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (stream, view) in streams {
        if let Some(value) = value(view) {
            let labels = [("stream", stream.as_str())];
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

fn counters(encoder: &mut DescriptorEncoder<'_>, streams: &[NamedStream]) -> fmt::Result {
    counter(
        encoder,
        "mla_samples",
        "Samples put into the stream (scraped), safe on disk or delivered (accepted), accepted by the endpoint (sent)",
        streams,
        |view| {
            vec![
                ("state", "scraped", view.scraped_samples),
                ("state", "accepted", view.accepted_samples),
                ("state", "sent", view.sent_samples),
            ]
        },
    )?;
    counter(
        encoder,
        "mla_samples_dropped",
        "Samples that the collector dropped before they were sent, by reason",
        streams,
        |view| {
            let reasons = DropReason::ALL.iter();
            let count = |reason: &DropReason| ("reason", reason.as_str(), view.dropped.get(*reason));
            reasons.map(count).collect()
        },
    )?;
    counter(
        encoder,
        "mla_samples_refused",
        "Samples that the endpoint refused for good, by reason",
        streams,
        |view| {
            let reasons = RefusalReason::ALL.iter();
            let count = |reason: &RefusalReason| ("reason", reason.as_str(), view.refused.get(*reason));
            reasons.map(count).collect()
        },
    )?;
    let help = "Bytes of the requests that the endpoint accepted, compressed";
    let mut family = encoder.encode_descriptor("mla_sent_bytes", help, None, MetricType::Counter)?;
    for (stream, view) in streams {
        let labels = [("stream", stream.as_str())];
        let mut series = family.encode_family(&labels)?;
        series.encode_counter::<NoLabelSet, _, u64>(&view.sent_bytes, None)?;
    }
    Ok(())
}

/// Counters of each stream: name and value of their second label, and the count.
fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    streams: &[NamedStream],
    counts: impl Fn(&QueueStatusView) -> Vec<(&'static str, &'static str, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (stream, view) in streams {
        for (label, value, count) in counts(view) {
            let labels = [("stream", stream.as_str()), (label, value)];
            let mut series = family.encode_family(&labels)?;
            series.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use virtfleet_collector_core::mla::status::{StreamName, StreamState};

    use super::*;
    use crate::api::testing::{NOW, mla_status};

    fn exposition(status: Arc<MlaStatus>) -> String {
        let mut registry = Registry::with_prefix("virtfleet_collector");
        registry.register_collector(Box::new(MlaMetrics {
            status,
            now_ms: || NOW,
        }));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn each_stream_has_all_series_from_the_start() {
        let text = exposition(mla_status());
        for line in [
            "virtfleet_collector_mla_queue_bytes{stream=\"cluster/prod\"} 3145728.0",
            "virtfleet_collector_mla_queue_limit_bytes{stream=\"fleet\"} 1073741824.0",
            "virtfleet_collector_mla_queue_oldest_seconds{stream=\"cluster/prod\"} 400.0",
            "virtfleet_collector_mla_queue_oldest_seconds{stream=\"fleet\"} 0.0",
            "virtfleet_collector_mla_endpoint_up{stream=\"cluster/prod\"} 0.0",
            "virtfleet_collector_mla_endpoint_up{stream=\"fleet\"} 1.0",
            "virtfleet_collector_mla_samples_total{stream=\"fleet\",state=\"sent\"} 90000",
            "virtfleet_collector_mla_samples_dropped_total{stream=\"cluster/prod\",reason=\"queue_full\"} 5000",
            "virtfleet_collector_mla_samples_dropped_total{stream=\"fleet\",reason=\"memory\"} 0",
            "virtfleet_collector_mla_samples_dropped_total{stream=\"fleet\",reason=\"limit\"} 0",
            "virtfleet_collector_mla_samples_dropped_total{stream=\"fleet\",reason=\"not_later\"} 0",
            "virtfleet_collector_mla_samples_dropped_total{stream=\"fleet\",reason=\"collided\"} 0",
            "virtfleet_collector_mla_samples_refused_total{stream=\"fleet\",reason=\"unauthorized\"} 0",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        assert_eq!(exposition(Arc::default()), "# EOF\n");
        let status = MlaStatus::default();
        for number in 0..=MAX_METRIC_STREAMS {
            let name = StreamName::Tenant(format!("c{number}").parse().unwrap());
            assert!(status.publish_queue(QueueStatusView::new(name, StreamState::Live), 0));
        }
        let text = exposition(Arc::new(status));
        let lines = text
            .lines()
            .filter(|line| line.starts_with("virtfleet_collector_mla_queue_bytes{"));
        assert_eq!(lines.count(), MAX_METRIC_STREAMS);
    }
}
