//! Settings of the collector and of the operator's stream, and their changes.

use super::*;

#[test]
fn without_mla_in_the_settings_nothing_is_sent() {
    let registry = StreamRegistry::new(None, || NOW);
    let mla = json!({ "remoteWrite": { "url": "http://127.0.0.1/" } });
    let status = registry.set_tenant(&cluster(), Some(&tenant(&mla, &[]))).unwrap();
    assert_eq!((status.configured, status.reason), (false, "Disabled"));
    assert!(registry.settings().borrow().is_empty());
    assert_eq!(registry.findings().borrow()[0].evidence["cluster"], "blue");
}

#[test]
fn a_suspended_stream_keeps_its_settings() {
    let registry = registry();
    let mla = json!({ "remoteWrite": { "url": "http://127.0.0.1/" }, "suspend": true });
    let status = registry.set_tenant(&cluster(), Some(&tenant(&mla, &[]))).unwrap();
    assert_eq!((status.configured, status.reason), (true, "Suspended"));
    assert!(in_use(&registry).unwrap().suspend);
    registry.retain_tenants(|_| false);
    assert!(registry.settings().borrow().is_empty());
}

#[tokio::test]
async fn the_operators_stream_follows_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "one\n").unwrap();
    let text = json!({ "queue": {}, "fleet": {
        "remoteWrite": { "url": "http://127.0.0.1/push", "auth": { "tokenFile": token } }, "guests": true,
    } });
    let mla: crate::config::MlaSettings = serde_json::from_value(text).unwrap();
    let registry = Arc::new(registry());
    let fleet = mla.fleet.clone().unwrap();
    let read = |expected: &str| {
        let files = read_files(&fleet);
        fleet::set_fleet(&registry, &fleet, &files, NOW);
        let all = registry.settings().borrow().clone();
        let endpoint = all[&StreamName::Fleet].endpoint.clone().unwrap();
        assert_eq!(endpoint.headers["authorization"], expected);
        all[&StreamName::Fleet].problem.clone()
    };
    assert_eq!(read("Bearer one"), None);
    std::fs::write(&token, "two").unwrap();
    assert_eq!(read("Bearer two"), None);
    std::fs::remove_file(&token).unwrap();
    let problem = read("Bearer two").unwrap();
    assert!(
        problem.contains("mla.fleet.remoteWrite.auth.tokenFile"),
        "{problem}"
    );
    let findings = registry.findings().borrow().clone();
    assert_eq!(findings[0].subject.name, "mla.fleet");
}

#[test]
fn the_nearest_pull_is_taken_for_a_longer_interval() {
    for (pulls, interval, seconds) in [
        (30, None, 0),
        (30, Some("10s"), 0),
        (30, Some("30s"), 0),
        (30, Some("1m"), 45),
        (30, Some("2m"), 105),
        // Every second pull would be 158 s after the last one.
        (79, Some("2m"), 71),
    ] {
        let defaults = StreamDefaults {
            pull_interval: Duration::from_secs(pulls),
            ..defaults()
        };
        let registry = StreamRegistry::new(Some(defaults), || NOW);
        let mut mla = json!({ "remoteWrite": { "url": "http://127.0.0.1/" } });
        if let Some(interval) = interval {
            mla["interval"] = json!(interval);
        }
        let status = registry.set_tenant(&cluster(), Some(&tenant(&mla, &[]))).unwrap();
        assert!(status.configured, "{}", status.message);
        let gap = in_use(&registry).unwrap().min_gap;
        assert_eq!(gap, Duration::from_secs(seconds), "{pulls} s, {interval:?}");
    }
}

#[test]
fn other_limits_of_the_collector_are_used_when_a_stream_is_set_again() {
    let registry = registry();
    let mla = json!({ "remoteWrite": { "url": "http://127.0.0.1/" } });
    let known = tenant(&mla, &[]);
    let set = || registry.set_tenant(&cluster(), Some(&known)).unwrap();
    assert_eq!(set().reason, "Configured");
    let mut settings = registry.settings();
    settings.mark_unchanged();
    registry.set_defaults(Some(defaults()));
    set();
    assert!(!settings.has_changed().unwrap(), "equal limits change nothing");
    registry.set_defaults(Some(StreamDefaults {
        queue_bytes: 1 << 20,
        ..defaults()
    }));
    assert_eq!(set().reason, "Configured");
    assert_eq!(in_use(&registry).unwrap().limits.queue_bytes, 1 << 20);
    registry.set_defaults(None);
    assert_eq!(set().reason, "Disabled");
    assert!(in_use(&registry).is_none());
    registry.set_defaults(Some(defaults()));
    assert_eq!(set().reason, "Configured");
    assert_eq!(in_use(&registry).unwrap().limits.queue_bytes, 1 << 30);
}
