use http::{HeaderMap, Uri};
use virtfleet_collector_core::mla::{FamilyTable, memory::MemoryPool, status::StreamState};
use virtfleet_remote_write::{CompressionSetting, ProtocolSetting};

use super::*;
use crate::{
    dial_guard,
    mla::{send::Endpoint, settings::StreamLimits, stream::tests},
};

fn endpoint(url: &'static str) -> Endpoint {
    Endpoint {
        url: Uri::from_static(url),
        headers: HeaderMap::new(),
        tls: None,
        server_name: None,
        protocol: ProtocolSetting::Auto,
        compression: CompressionSetting::Auto,
        timeout: Duration::from_secs(1),
        user_agent: "test".to_owned(),
    }
}

#[tokio::test]
async fn other_settings_do_not_hide_that_requests_fail() {
    let settings = StreamSettings {
        endpoint: Some(endpoint("http://127.0.0.1:1/push")),
        ..tests::settings()
    };
    let with = |settings: &StreamSettings| WorkerSettings {
        stream: Some(Arc::new(settings.clone())),
        share: 1 << 30,
        common: Arc::new(CommonSettings {
            flush: MlaFlushSettings::default(),
            batch: MlaBatchSettings::default(),
            guard: Arc::new(dial_guard::tests::guard(&[])),
        }),
    };
    let first = with(&settings);
    let common = Arc::clone(&first.common);
    let memory = Arc::new(MemoryPool::new(usize::MAX).share());
    let table = Arc::new(FamilyTable::default()).share();
    let parts = WorkerParts {
        name: StreamName::Fleet,
        stream: Arc::new(Stream::new(table, memory, &settings, &common.batch)),
        settings: watch::channel(first).1,
        status: Arc::default(),
        stop: CancellationToken::new(),
    };
    let status = Arc::clone(&parts.status);
    let mut worker = Worker::new(parts, Arc::new(settings.clone()));
    let asked = Duration::from_mins(4);
    worker.backoff.failed(Duration::ZERO, Some(asked), 0.5);

    // The same receiver has asked to wait.
    let other_limits = StreamSettings {
        limits: StreamLimits {
            series: 7,
            ..settings.limits.clone()
        },
        ..settings.clone()
    };
    worker.configure(WorkerSettings {
        common: Arc::clone(&common),
        ..with(&other_limits)
    });
    assert!(worker.backoff.wait(Duration::ZERO) >= asked);
    // Another one is tried at once, and is not known to accept anything.
    let elsewhere = StreamSettings {
        endpoint: Some(endpoint("http://127.0.0.1:2/push")),
        ..settings
    };
    worker.configure(WorkerSettings {
        common,
        ..with(&elsewhere)
    });
    assert_eq!(worker.backoff.wait(Duration::ZERO), Duration::ZERO);
    worker.publish();
    assert_eq!(status.queues()[0].state, StreamState::Retrying);
}
