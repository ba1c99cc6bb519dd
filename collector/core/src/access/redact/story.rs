//! A VM's story with pseudonyms.

use virtfleet_wire::ids::NodeName;

use super::Redactor;
use crate::story::{MigrationView, StoryView, TimelineEntry};

impl Redactor {
    /// Timeline and migrations of a VM.
    pub fn story(&self, story: StoryView) -> StoryView {
        StoryView {
            timeline: self.timeline(story.timeline),
            migrations: self.migrations(story.migrations),
        }
    }

    pub(super) fn timeline(&self, timeline: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
        let entries = timeline.into_iter();
        entries
            .map(|entry| {
                let hosts: Vec<&str> = entry.hosts.iter().map(NodeName::as_str).collect();
                TimelineEntry {
                    text: self.text_with(&entry.text, &hosts),
                    hosts: Box::default(),
                    ..entry
                }
            })
            .collect()
    }

    pub(super) fn migrations(&self, migrations: Vec<MigrationView>) -> Vec<MigrationView> {
        let migrations = migrations.into_iter();
        migrations
            .map(|one| MigrationView {
                source: one.source.as_ref().and_then(|node| self.node(node)),
                target: one.target.as_ref().and_then(|node| self.node(node)),
                failure_reason: one.failure_reason.map(|text| self.text(&text)),
                ..one
            })
            .collect()
    }

    /// The labels by which a VM is selected.
    pub fn vm_labels(&self, labels: &crate::facts::Labels) -> crate::facts::Labels {
        self.tenant_labels(labels, &std::collections::BTreeSet::new())
    }
}
