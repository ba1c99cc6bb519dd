use virtfleet_wire::finding::Finding;

use super::*;

/// A settings file whose fourth line is the section.
fn text(mla: &str) -> String {
    format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\nenrolment: {{trustDomain: d}}\n{mla}\n"
    )
}

fn follower(text: &str) -> SectionFollower {
    let loaded = CollectorConfig::load(&[Fragment {
        file: "c.yaml".to_owned(),
        text: text.to_owned(),
    }]);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let registry = StreamRegistry::new(StreamDefaults::new(&loaded.value), || 0);
    SectionFollower::new(Path::new("c.yaml"), &loaded.value, Arc::new(registry))
}

impl SectionFollower {
    fn twice(&mut self, text: &FileText) {
        self.observe(text.clone());
        self.observe(text.clone());
    }

    /// Limits of one queue in the section and in the registry.
    fn limits(&self) -> (Option<u64>, Option<u64>) {
        let section = self.section.borrow();
        (
            section.as_ref().map(|mla| mla.queue.max_bytes_per_stream),
            self.registry.defaults().map(|defaults| defaults.queue_bytes),
        )
    }

    fn findings(&self) -> Vec<Finding> {
        self.registry.findings().borrow().clone()
    }
}

#[test]
fn a_changed_section_is_used_once_two_reads_are_equal() {
    let first = text("mla: {queue: {maxBytesPerStream: 1100001}}");
    let second = text("mla: {queue: {maxBytesPerStream: 2000002}}");
    let mut follower = follower(&first);
    let mut section = follower.section();
    follower.twice(&Ok(first));
    assert!(!section.has_changed().unwrap(), "it is in use");
    // The beginning of a file that is being written has no section.
    follower.observe(Ok(text("")));
    follower.observe(Ok(second.clone()));
    assert_eq!(follower.limits(), (Some(1_100_001), Some(1_100_001)));
    follower.observe(Ok(second));
    assert_eq!(follower.limits(), (Some(2_000_002), Some(2_000_002)));
    assert!(section.has_changed().unwrap());
    section.mark_unchanged();
    // Other sections are those of the start.
    let other = text("mla: {queue: {maxBytesPerStream: 2000002}}\nscrape: {maxSamples: 7}");
    follower.twice(&Ok(other));
    assert!(!section.has_changed().unwrap());
    assert_ne!(follower.registry.defaults().unwrap().samples_per_page, 7);
    follower.twice(&Ok(text("")));
    assert_eq!(follower.limits(), (None, None));
    follower.twice(&Ok(text("mla: {}")));
    assert_eq!(follower.limits(), (Some(1 << 30), Some(1 << 30)));
}

#[test]
fn a_bad_section_changes_nothing_and_is_a_finding_with_its_path() {
    let mut follower = follower(&text("mla: {}"));
    let section = follower.section();
    let remote_write =
        |more: &str| format!("mla: {{fleet: {{remoteWrite: {{url: 'https://a/push', {more}}}}}}}");
    let header = remote_write("headers: [{name: A, value: 83713}]");
    for (text, expected) in [
        (
            Ok(text("mla: {queue: {maxBytes: 5}}")),
            "c.yaml:4: mla.queue.maxBytes: 5 is less than 16777216",
        ),
        (
            Ok(text("mla: {series: {maxPerVm: 3, maxPerStream: 2}}")),
            "mla.series.maxPerStream: must be at least",
        ),
        (Ok(text("mla: {flsh: {}}")), "mla.flsh: unknown key"),
        (
            Ok(text("mla: {fleet: {}}")),
            "mla.fleet.remoteWrite.url: required",
        ),
        (Ok(text(&header)), "mla.fleet.remoteWrite.headers["),
        (
            Ok(text(&remote_write("auth: token-83713"))),
            "mla.fleet.remoteWrite.auth: not valid",
        ),
        (Ok(" \n".to_owned()), "c.yaml is empty"),
        (Ok(text("mla: {}\nscrape: {port: 0}")), "scrape.port"),
        (
            Err("cannot read c.yaml: gone".to_owned()),
            "cannot read c.yaml: gone",
        ),
    ] {
        follower.twice(&text);
        let found = follower.findings();
        assert_eq!(found.len(), 1, "{expected}: {found:?}");
        assert_eq!(found[0].subject.name, "mla");
        assert!(
            found[0].message.contains(expected),
            "{expected}: {}",
            found[0].message
        );
        assert!(!found[0].message.contains("83713"), "{}", found[0].message);
        assert!(!section.has_changed().unwrap(), "{expected}");
    }
    follower.twice(&Ok(text("mla: {}")));
    assert!(follower.findings().is_empty());
}

#[test]
fn a_process_that_pulls_no_agents_has_no_metrics_to_send() {
    let mut follower = follower("apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\n");
    follower.twice(&Ok(text("mla: {}")));
    assert_eq!(follower.limits(), (None, None));
    let found = follower.findings();
    assert!(
        found[0].message.contains("mla: this process pulls no agents"),
        "{found:?}"
    );
}

#[test]
fn a_process_that_pulls_too_rarely_sends_no_metrics() {
    let mut follower = follower(&text("scrape: {interval: 3m}"));
    follower.twice(&Ok(text("mla: {}\nscrape: {interval: 1m}")));
    assert_eq!(follower.limits(), (None, None));
    let found = follower.findings();
    assert!(
        found[0].message.contains("this process pulls agents every 3m"),
        "{found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_file_is_read_at_the_interval_of_pulls_if_that_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let mut follower = follower(&text("scrape: {interval: 1s, timeout: 1s}"));
    follower.file = folder.path().join("c.yaml");
    fs::write(&follower.file, text("mla: {}")).unwrap();
    let (mut section, stop) = (follower.section(), CancellationToken::new());
    let running = tokio::spawn(follower.run(stop.clone()));
    let changed = tokio::time::timeout(Duration::from_secs(3), section.changed());
    changed.await.unwrap().unwrap();
    assert!(section.borrow().is_some());
    stop.cancel();
    running.await.unwrap();
}
