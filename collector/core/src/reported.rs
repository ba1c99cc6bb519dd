//! Conditions that Kubernetes and KubeVirt report in the status of their objects, without their
//! times: a heartbeat is no change.

use std::sync::Arc;

use crate::findings::escaped;

/// Maximum conditions kept of one object. KubeVirt and Kubernetes write fewer than 20.
pub const MAX_REPORTED_CONDITIONS: usize = 32;
/// Maximum bytes kept of a condition's message.
const MAX_MESSAGE_BYTES: usize = 256;
/// Maximum bytes kept of a type or a reason.
const MAX_WORD_BYTES: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReportedStatus {
    True,
    False,
    Unknown,
}

impl ReportedStatus {
    /// The status of this name; any other name is [`ReportedStatus::Unknown`].
    pub fn of(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedCondition {
    /// `type`.
    pub kind: Arc<str>,
    pub status: ReportedStatus,
    /// `reason`; none if it is empty.
    pub reason: Option<Arc<str>>,
    /// `message`, escaped and cut; none if it is empty or not kept.
    pub message: Option<Box<str>>,
}

impl ReportedCondition {
    /// A condition; texts are escaped and cut.
    pub fn new(kind: &str, status: ReportedStatus, reason: Option<&str>, message: Option<&str>) -> Self {
        Self {
            kind: escaped(kind, MAX_WORD_BYTES).into(),
            status,
            reason: reason.map(|reason| escaped(reason, MAX_WORD_BYTES).into()),
            message: message.map(|message| escaped(message, MAX_MESSAGE_BYTES).into()),
        }
    }

    /// The message, else the reason, else a fixed text.
    pub fn text(&self) -> &str {
        self.message
            .as_deref()
            .or(self.reason.as_deref())
            .unwrap_or("no reason is given")
    }
}

/// All conditions of an object, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportedConditions(Box<[ReportedCondition]>);

impl ReportedConditions {
    /// The first [`MAX_REPORTED_CONDITIONS`] of these.
    pub fn new(all: impl IntoIterator<Item = ReportedCondition>) -> Self {
        Self(all.into_iter().take(MAX_REPORTED_CONDITIONS).collect())
    }

    pub fn get(&self, kind: &str) -> Option<&ReportedCondition> {
        self.0.iter().find(|one| &*one.kind == kind)
    }

    /// The status of the condition of this type; none if the object has no such condition.
    pub fn status(&self, kind: &str) -> Option<ReportedStatus> {
        self.get(kind).map(|one| one.status)
    }

    /// The condition of this type, if it has this status.
    pub fn with_status(&self, kind: &str, status: ReportedStatus) -> Option<&ReportedCondition> {
        self.get(kind).filter(|one| one.status == status)
    }

    pub fn iter(&self) -> impl Iterator<Item = &ReportedCondition> {
        self.0.iter()
    }

    /// The types and reasons, to share equal ones between objects.
    pub(crate) fn words_mut(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        let words = self.0.iter_mut();
        words.flat_map(|one| std::iter::once(&mut one.kind).chain(one.reason.as_mut()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_texts_are_bounded_and_escaped() {
        let one = |n: usize| {
            let text = format!("{n}\u{1b}{}", "x".repeat(1000));
            ReportedCondition::new(&text, ReportedStatus::of("true"), Some(&text), Some(&text))
        };
        let all = ReportedConditions::new((0..100).map(one));
        assert_eq!(all.0.len(), MAX_REPORTED_CONDITIONS);
        for one in &all.0 {
            let message = one.message.as_deref().unwrap();
            assert!(one.kind.len() <= MAX_WORD_BYTES && message.len() <= MAX_MESSAGE_BYTES);
            assert!(!message.contains('\u{1b}'));
            assert_eq!(one.status, ReportedStatus::Unknown, "only the exact names count");
        }
    }
}
