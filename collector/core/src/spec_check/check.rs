//! One check.

use super::value::{SpecPath, SpecValue};
use crate::{
    health::HealthCause,
    spec_view::{SpecCheckView, SpecResult},
};

/// What a difference means for the verdict. Ordered: what matters first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpecWeight {
    /// The VM lacks something that it was promised: it is `Degraded`.
    Matters,
    /// Worth knowing; the verdict stays as it is.
    Notice,
}

/// Comparison of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpecCheck<'a> {
    pub(crate) path: SpecPath<'a>,
    pub(crate) asked: SpecValue<'a>,
    pub(crate) seen: Option<SpecValue<'a>>,
    pub(crate) result: SpecResult,
    pub(crate) weight: SpecWeight,
    /// What a difference comes from.
    pub(crate) cause: HealthCause,
    /// Reason of the condition if this is the first difference.
    pub(crate) reason: &'static str,
    pub(crate) why: &'static str,
    /// Without it nothing can be said about the specification.
    pub(crate) is_required: bool,
}

impl<'a> SpecCheck<'a> {
    /// A check with a result; `why` is for a difference.
    pub(super) fn new(
        path: SpecPath<'a>,
        asked: SpecValue<'a>,
        seen: SpecValue<'a>,
        agrees: bool,
        why: &'static str,
    ) -> Self {
        let result = if agrees {
            SpecResult::Agrees
        } else {
            SpecResult::Differs
        };
        Self {
            path,
            asked,
            seen: Some(seen),
            result,
            weight: SpecWeight::Notice,
            cause: HealthCause::Vm,
            reason: "SpecDiffers",
            why,
            is_required: false,
        }
    }

    /// A check whose value is not seen, and why.
    pub(super) fn not_seen(path: SpecPath<'a>, asked: SpecValue<'a>, why: &'static str) -> Self {
        Self {
            seen: None,
            result: SpecResult::NotSeen,
            ..Self::new(path, asked, asked, true, why)
        }
    }

    /// As [`SpecCheck::new`] if the value is seen.
    pub(super) fn compare(
        path: SpecPath<'a>,
        asked: SpecValue<'a>,
        seen: Option<SpecValue<'a>>,
        agrees: impl FnOnce(SpecValue<'a>) -> bool,
        why: &'static str,
    ) -> Self {
        match seen {
            Some(seen) => Self::new(path, asked, seen, agrees(seen), why),
            None => Self::not_seen(path, asked, NOT_REPORTED),
        }
    }

    /// Makes a difference one that matters.
    pub(super) fn matters(self, cause: HealthCause, reason: &'static str) -> Self {
        Self {
            weight: SpecWeight::Matters,
            cause,
            reason,
            ..self
        }
    }

    pub(super) fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }

    /// One sentence about a difference.
    pub(crate) fn sentence(&self) -> String {
        let Self { path, asked, why, .. } = self;
        let seen = self
            .seen
            .map_or_else(|| "nothing".to_owned(), |seen| seen.to_string());
        format!("{path} asks for {asked}, the guest sees {seen}: {why}")
    }

    /// The check for people and programs.
    pub(super) fn view(&self) -> SpecCheckView {
        let why = Some(self.why).filter(|_| self.result != SpecResult::Agrees);
        SpecCheckView {
            path: self.path.to_string(),
            asked: self.asked.to_string(),
            seen: self.seen.map(|seen| seen.to_string()),
            result: self.result,
            matters: self.weight == SpecWeight::Matters,
            why: why.unwrap_or_default().to_owned(),
        }
    }
}

/// Why a value is not seen that a newer or a complete report would have.
pub(super) const NOT_REPORTED: &str = "the agent's report does not have it";
