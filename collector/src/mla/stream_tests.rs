use virtfleet_collector_core::mla::{FamilyTable, PageReader, memory::MemoryPool, page_reader::PageSeries};
use virtfleet_queue::BacklogStatus;
use virtfleet_wire::ids::VmKey;

use super::*;
use crate::mla::{
    progress::StreamProgress,
    settings::{StreamLimits, StreamName},
};

/// Settings of a stream without a receiver.
pub(in crate::mla) fn settings() -> StreamSettings {
    StreamSettings {
        endpoint: None,
        external_labels: Vec::new(),
        placement_labels: Vec::new(),
        relabel: Vec::new(),
        min_gap: Duration::ZERO,
        limits: StreamLimits {
            queue_bytes: 1 << 20,
            queue_age: Duration::from_hours(1),
            samples_per_page: 100,
            series_per_vm: 3,
            series: 100,
            label_names: 40,
            label_value_bytes: 100,
        },
        suspend: false,
        guests: true,
        certificate_ends: None,
        problem: None,
    }
}

fn stream(settings: &StreamSettings) -> Stream {
    let table = Arc::new(FamilyTable::default()).share();
    let memory = Arc::new(MemoryPool::new(usize::MAX).share());
    Stream::new(table, memory, settings, &MlaBatchSettings::default())
}

fn vm() -> SourceKey {
    SourceKey::Vm(VmKey {
        namespace: "ns".parse().unwrap(),
        name: "vm".parse().unwrap(),
    })
}

/// Writes a page of the VM.
fn page(stream: &Stream, at_ms: i64, text: &str) -> StreamPageResult {
    let limits = SampleLimits::new(100);
    let mut reader = PageReader::new(Arc::clone(&stream.table), limits, PageSeries::default());
    for line in text.lines() {
        reader.read(line).unwrap();
    }
    let page = reader.finish().unwrap();
    let time = PullTime { at_ms, seconds: 0.1 };
    stream.page(
        &vm(),
        &TargetValues::default(),
        &StreamPage::Complete(&page),
        time,
    )
}

#[test]
fn samples_that_are_not_sent_are_counted_with_their_reason() {
    let rule = r#"[{"regex":"x","action":"labeldrop"}]"#;
    let settings = StreamSettings {
        relabel: serde_json::from_str(rule).unwrap(),
        ..settings()
    };
    let stream = stream(&settings);
    let pair = "a{x=\"1\"} 1\na{x=\"2\"} 2\n";
    assert_eq!(page(&stream, 1000, pair).written, 1 + 5);
    assert_eq!(page(&stream, 1000, pair).written, 0);
    let large = page(&stream, 2000, "a 1\nb 1\nc 1\nd 1\n");
    assert_eq!(large.written, 5, "those about the pull");
    assert!(stream.is_naming_due() && !stream.is_naming_due());
    // A higher limit is used from the next page on.
    let higher = StreamLimits {
        series_per_vm: 4,
        ..settings.limits.clone()
    };
    stream.configure(&StreamSettings {
        limits: higher,
        ..settings.clone()
    });
    assert_eq!(page(&stream, 3000, "a 1\nb 1\nc 1\nd 1\n").written, 4 + 5);
    let progress = StreamProgress::new(&StreamName::Fleet);
    let backlog = BacklogStatus::default();
    let counts = StreamCounts {
        untaken: 8,
        ..stream.counts()
    };
    let view = progress.view(&settings, (&backlog, 0), counts, false, 0, false);
    let dropped = view.dropped;
    assert_eq!((dropped.collided, dropped.not_later, dropped.limit), (1, 2, 4));
    assert_eq!((dropped.memory, dropped.total()), (8, 7 + 8));
    assert_eq!(view.scraped_samples, 6 + 5 + 1 + 9, "with one staleness marker");
}

#[test]
fn pages_are_taken_at_the_interval_of_the_stream() {
    // Pulls every 30 s, and an interval of 60 s.
    let settings = StreamSettings {
        min_gap: Duration::from_secs(45),
        ..settings()
    };
    let stream = stream(&settings);
    let is_due = |at_ms| stream.page_settings(&vm(), at_ms).map(|page| page.is_due);
    assert_eq!(is_due(0), Some(true));
    page(&stream, 100_000, "a 1\n");
    assert_eq!((is_due(130_200), is_due(159_800)), (Some(false), Some(true)));
    // With a clock that was set back, the page is counted as not later.
    assert_eq!((is_due(100_000), is_due(50_000)), (Some(true), Some(true)));
    assert!(stream.takes_platform(130_200), "it has another time");
    stream.configure(&StreamSettings {
        suspend: true,
        ..settings.clone()
    });
    assert_eq!(is_due(159_800), None);
    assert!(!stream.takes_platform(159_800));
}
