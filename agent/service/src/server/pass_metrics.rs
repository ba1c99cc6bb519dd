//! Metrics of root's reconcile runs: `virtfleet_agent_pass_*{stage}`, from
//! `/run/virtfleet/state/guest.json`.

use virtfleet_agent_core::pass::{GuestRecord, RunOutcome, Stage, StageRecord};
use virtfleet_agent_host::{Roots, clock};
use virtfleet_agent_state::{CachedState, GUEST_RECORD};
use virtfleet_wire::{
    exposition::{MetricType, Page},
    report::Clock,
};

/// Metrics of the record. It is parsed when it has changed, which costs one `stat` per scrape.
#[derive(Debug)]
pub(super) struct PassMetrics {
    record: CachedState<GuestRecord>,
}

impl PassMetrics {
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            record: CachedState::new(roots, &GUEST_RECORD),
        }
    }

    /// Appends the metrics. Stages that have not run in this boot are absent.
    pub(super) fn append(&mut self, page: &mut Page) {
        if let Ok(Some(record)) = self.record.get() {
            append(page, record, &clock());
        }
    }
}

type Value<'a> = &'a dyn Fn(&StageRecord) -> f64;

fn append(page: &mut Page, record: &GuestRecord, now: &Clock) {
    // Calculated from its age, so that a later change of the wall clock does not make it wrong.
    let ended = |stage: &StageRecord| {
        let age = now.boottime_ns.saturating_sub(stage.ended_at_boottime_ns);
        (now.realtime_ns.saturating_sub(age) as f64 / 1e9).round()
    };
    let families: [(&str, &str, Value<'_>); 3] = [
        (
            "virtfleet_agent_pass_success",
            "1 if the last reconcile run of the stage in this boot had no failed step, else 0.",
            &|stage| f64::from(u8::from(stage.outcome != RunOutcome::Failed)),
        ),
        (
            "virtfleet_agent_pass_timestamp_seconds",
            "End of the last reconcile run of the stage, in seconds since 1970.",
            &ended,
        ),
        (
            "virtfleet_agent_pass_duration_seconds",
            "Duration of the last reconcile run of the stage, in seconds.",
            &|stage| stage.duration_ms as f64 / 1e3,
        ),
    ];
    for (name, help, value) in families {
        let mut family = page.family(name, help, MetricType::Gauge);
        for stage in Stage::ALL {
            if let Some(done) = record.stages.get(&stage) {
                family.sample(&[("stage", stage.word())], value(done));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const BOOT: &str = "11111111-2222-3333-4444-555555555555";

    #[test]
    fn only_the_record_of_this_boot_is_exported() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            procfs: dir.path().join("proc"),
            ..Roots::default()
        };
        let write = |path: &std::path::Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(&roots.proc("sys/kernel/random/boot_id"), BOOT);
        let mut metrics = PassMetrics::new(&roots);
        let mut text = || {
            let mut page = Page::new();
            metrics.append(&mut page);
            page.to_text()
        };
        assert_eq!(text(), "", "nothing ran yet");
        let mut record = GuestRecord::new(BOOT);
        let mut put = |boot: &str| {
            let stage = StageRecord {
                outcome: RunOutcome::Failed,
                duration_ms: 1500,
                ..StageRecord::default()
            };
            record.stages.insert(Stage::Reconcile, stage);
            boot.clone_into(&mut record.boot_id);
            write(
                &roots.root(GUEST_RECORD.path),
                &serde_json::to_string(&record).unwrap(),
            );
        };
        put(BOOT);
        let page = text();
        for line in [
            "virtfleet_agent_pass_success{stage=\"reconcile\"} 0\n",
            "virtfleet_agent_pass_duration_seconds{stage=\"reconcile\"} 1.5\n",
        ] {
            assert!(page.contains(line), "{line:?} is not in\n{page}");
        }
        put("another boot");
        assert_eq!(text(), "");
    }

    #[test]
    fn a_later_clock_step_does_not_move_the_run() {
        let mut record = GuestRecord::new(BOOT);
        let stage = StageRecord {
            started_at: 1,
            ended_at_boottime_ns: 60_000_000_000,
            ..StageRecord::default()
        };
        record.stages.insert(Stage::Dns, stage);
        let now = Clock {
            boottime_ns: 100_000_000_000,
            monotonic_ns: 0,
            realtime_ns: 1_800_000_000_000_000_000,
        };
        let mut page = Page::new();
        append(&mut page, &record, &now);
        let line = "virtfleet_agent_pass_timestamp_seconds{stage=\"dns\"} 1799999960\n";
        assert!(page.to_text().contains(line), "{}", page.to_text());
    }
}
