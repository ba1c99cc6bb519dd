//! Follows the section `mla` of the settings file: a change is used without a restart.
//!
//! A file with a problem changes nothing. The other sections are those of the start.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use virtfleet_wire::layered::{Fragment, Problem};

use super::settings::{MAX_INTERVAL, StreamDefaults, StreamRegistry};
use crate::config::{CollectorConfig, MlaSettings};

/// Maximum interval at which the file is read again: that of pulls, if it is shorter.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of problems that are named.
const MAX_NAMED: usize = 5;

/// The section in use, and its changes; none: MLA is off.
pub(crate) type MlaSection = watch::Receiver<Option<Arc<MlaSettings>>>;

/// Text of the file, or why it cannot be read.
type FileText = Result<String, String>;

/// Follows the file.
pub(super) struct SectionFollower {
    file: PathBuf,
    /// The settings at the start.
    started: CollectorConfig,
    section: watch::Sender<Option<Arc<MlaSettings>>>,
    registry: Arc<StreamRegistry>,
    /// What was read last.
    seen: Option<FileText>,
    /// What was evaluated last.
    evaluated: Option<FileText>,
}

impl SectionFollower {
    /// A follower of a file from which the process has started with the settings `started`.
    pub(super) fn new(file: &Path, started: &CollectorConfig, registry: Arc<StreamRegistry>) -> Self {
        Self {
            file: file.to_owned(),
            section: watch::Sender::new(started.mla.clone().map(Arc::new)),
            started: started.clone(),
            registry,
            seen: None,
            evaluated: None,
        }
    }

    /// The section in use, and its changes.
    pub(super) fn section(&self) -> MlaSection {
        self.section.subscribe()
    }

    /// Reads the file from time to time, until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(RELOAD_INTERVAL.min(self.started.scrape.interval.0));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let file = self.file.clone();
            if let Ok(text) = tokio::task::spawn_blocking(move || read(&file)).await {
                self.observe(text);
            }
        }
    }

    /// Takes note of what the file has now. It is used once two reads are equal: it may just be
    /// written.
    fn observe(&mut self, text: FileText) {
        let is_settled = self.seen.as_ref() == Some(&text);
        if is_settled && self.evaluated.as_ref() != Some(&text) {
            self.evaluated = Some(text.clone());
            let section = text.as_ref().map_err(Clone::clone);
            match section.and_then(|text| self.section_of(text)) {
                Ok(section) => self.apply(section),
                Err(why) => self.registry.set_section_problem(Some(why)),
            }
        }
        self.seen = Some(text);
    }

    /// The section in a text of the whole file.
    ///
    /// # Errors
    /// The problems of the file, with the path of each key.
    fn section_of(&self, text: &str) -> Result<Option<MlaSettings>, String> {
        // A full disk leaves such a file. Without `mla`, all streams would end.
        if text.trim().is_empty() {
            return Err(format!("{} is empty", self.file.display()));
        }
        let loaded = CollectorConfig::load(&[Fragment {
            file: self.file.display().to_string(),
            text: text.to_owned(),
        }]);
        let problems = loaded.problems.iter().take(MAX_NAMED).map(described);
        let problems: Vec<_> = problems.collect();
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        if loaded.value.mla.is_some() && !self.started.pulls_agents() {
            let why =
                "mla: this process pulls no agents; enrolment and scrape.tls are used from the next start on";
            return Err(why.to_owned());
        }
        let pulls = self.started.scrape.interval;
        if loaded.value.mla.is_some() && pulls > MAX_INTERVAL {
            return Err(format!(
                "mla: this process pulls agents every {pulls}; a scrape.interval of at most {MAX_INTERVAL} is used \
                 from the next start on"
            ));
        }
        Ok(loaded.value.mla)
    }

    fn apply(&self, section: Option<MlaSettings>) {
        self.registry.set_section_problem(None);
        let section = section.map(Arc::new);
        if *self.section.borrow() == section {
            return;
        }
        let config = CollectorConfig {
            mla: section.as_deref().cloned(),
            ..self.started.clone()
        };
        tracing::info!(file = %self.file.display(), "the section mla of the settings has changed and is used");
        // First the section: without it, the workers end and keep their queues, before the streams
        // of tenants go.
        self.section.send_replace(section);
        self.registry.set_defaults(StreamDefaults::new(&config));
    }
}

fn read(file: &Path) -> FileText {
    fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// A problem for people, without the value of a header or a credential: a value of a wrong type is
/// quoted by serde.
fn described(problem: &Problem) -> String {
    let path = &problem.path;
    let key = path.rsplit('.').next().unwrap_or_default();
    let may_quote = path.contains(".headers[") || ["headers", "auth"].contains(&key);
    if may_quote && problem.nearest.is_none() {
        return format!(
            "{}:{}: {}: not valid; virtfleet-collector check-config says why",
            problem.file, problem.line, path
        );
    }
    problem.to_string()
}

#[cfg(test)]
#[path = "section_tests.rs"]
mod tests;
