//! One key: what becomes of it, and why. The safety of a change and the other member of a pair come afterwards.

use super::{
    guard,
    merge::AgreedRule,
    owned::OwnedLabel,
    plan::{Action, LabelInput, Reason},
    policy::{Mode, Takeover},
};
use crate::facts::InfraNode;

/// A key of one Node, as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct LabelState<'a> {
    /// The key.
    pub(super) key: &'a str,
    /// The label's value.
    pub(super) current: Option<&'a str>,
    /// What the ownership annotation says of it.
    pub(super) owned: Option<&'a OwnedLabel>,
    /// The Node.
    pub(super) input: &'a LabelInput,
    /// The infra node on which the VM stands.
    pub(super) host: &'a InfraNode,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelOutcome {
    pub(super) action: Action,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// The label afterwards.
    pub(super) value: Option<String>,
    /// What the annotation says afterwards.
    pub(super) entry: Option<OwnedLabel>,
    /// It ends as wanted.
    pub(super) reached: bool,
    /// It changes only if that is safe.
    pub(super) if_safe: bool,
    before: (Option<String>, Option<OwnedLabel>),
}

impl LabelOutcome {
    /// Whether the label changes.
    pub(super) fn changes(&self) -> bool {
        self.value != self.before.0
    }

    /// Nothing changes after all.
    pub(super) fn hold(&mut self, action: Action, reason: Reason, message: String) {
        (self.value, self.entry) = self.before.clone();
        (self.action, self.reason, self.message) = (action, reason, message);
        (self.reached, self.if_safe) = (false, false);
    }

    /// Nothing changes after all, because the other member of the pair does not.
    pub(super) fn hold_with(&mut self, other: &Self) {
        if self.changes() {
            let message = format!(
                "it and its other name change together or not at all, and the other one does not: {}",
                other.message
            );
            self.hold(other.action, other.reason, message);
        }
    }
}

impl<'a> LabelState<'a> {
    /// What becomes of a key that `rule` is about, on behalf of `policy`.
    pub(super) fn wanted(&self, rule: &AgreedRule, policy: &str) -> LabelOutcome {
        if let Some(message) = guard::protected(self.key) {
            return self.rejected(Reason::Protected, message);
        }
        let syntax = guard::check_key(self.key);
        if let Err(message) =
            syntax.and_then(|()| guard::check_value(rule.desired.as_deref().unwrap_or_default()))
        {
            return self.unchanged(Action::Report, Reason::InvalidValue, message);
        }
        let mut outcome = match (self.current, rule.desired.as_deref()) {
            (_, None) => self.source_gone(rule),
            (Some(current), Some(desired)) if current == desired => {
                let message = format!("as {} on {}", rule.source, self.infra_node());
                let mut outcome = self.unchanged(Action::Keep, Reason::InLine, message);
                outcome.reached = true;
                // What is taken back one day is judged by the mode that was asked for last.
                if let Some(entry) = outcome.entry.as_mut().filter(|_| self.owned_by_us().is_some()) {
                    entry.if_safe = rule.mode == Mode::FollowIfSafe;
                }
                outcome
            }
            (None, Some(desired)) => self.missing(rule, desired, policy),
            (Some(current), Some(desired)) => self.differs(rule, current, desired, policy),
        };
        if outcome.action == Action::Set
            && let Some(entry) = &mut outcome.entry
        {
            entry.if_safe = rule.mode == Mode::FollowIfSafe;
        }
        LabelOutcome {
            if_safe: rule.mode == Mode::FollowIfSafe && outcome.changes(),
            ..outcome
        }
    }

    /// What becomes of a key that we wrote and nobody asks for any more: it is taken back while it has our value.
    pub(super) fn withdrawn(&self) -> LabelOutcome {
        if let Some(message) = guard::protected(self.key) {
            return self.rejected(Reason::Protected, message);
        }
        let Some(entry) = self.owned.filter(|entry| self.current == Some(&entry.value)) else {
            let message = "no LabelPropagation asks for it any more, and it has not the value that was written, so it is \
                           somebody else's";
            return LabelOutcome {
                entry: None,
                ..self.unchanged(Action::Keep, Reason::Withdrawn, message.to_owned())
            };
        };
        if guard::is_node_restriction(self.key) {
            let message = "no LabelPropagation asks for it any more; it is not removed, because only the Node's annotation says \
                           that it is ours, and a kubelet can edit that; remove it by hand: kubectl label node";
            let message = format!("{message} {} {}-", self.input.node, self.key);
            return self.unchanged(Action::Report, Reason::Withdrawn, message);
        }
        let outcome = self.revert(
            entry,
            Reason::Withdrawn,
            "no LabelPropagation asks for it any more",
        );
        LabelOutcome {
            if_safe: entry.if_safe && outcome.changes(),
            ..outcome
        }
    }

    /// The entry, when the label has the value that we wrote. What a kubelet can edit says nothing about a key that a kubelet
    /// must not touch.
    fn owned_by_us(&self) -> Option<&'a OwnedLabel> {
        self.owned_entry()
            .filter(|entry| self.current == Some(&entry.value))
    }

    fn owned_entry(&self) -> Option<&'a OwnedLabel> {
        self.owned.filter(|_| !guard::is_node_restriction(self.key))
    }

    fn infra_node(&self) -> String {
        format!("the infra node {}", self.host.name)
    }

    fn source_gone(&self, rule: &AgreedRule) -> LabelOutcome {
        let why = format!("{} has no {}", self.infra_node(), rule.source);
        match (self.current, self.owned_by_us(), rule.mode) {
            (None, ..) => LabelOutcome {
                reached: true,
                entry: self.owned.filter(|_| rule.mode == Mode::InitialOnly).cloned(),
                ..self.unchanged(
                    Action::Keep,
                    Reason::InLine,
                    format!("{why}, and the Node has none"),
                )
            },
            (_, None, _) if guard::is_node_restriction(self.key) && self.claimed() => {
                let message = format!("{why}; it is never removed from {}", self.key);
                self.unchanged(Action::Report, Reason::SourceGone, message)
            }
            (Some(_), None, _) => {
                let message = format!("{why}, and the value is not ours");
                self.unchanged(Action::Keep, Reason::Foreign, message)
            }
            (_, Some(_), Mode::Follow | Mode::FollowIfSafe)
                if self.input.unconfirmed.contains(&rule.source) =>
            {
                let message =
                    format!("{why} since a moment ago; what was written is taken back if it stays so");
                self.unchanged(Action::Keep, Reason::SourceGone, message)
            }
            (_, Some(entry), Mode::Follow | Mode::FollowIfSafe) => {
                self.revert(entry, Reason::SourceGone, &why)
            }
            (_, Some(_), Mode::InitialOnly) => {
                let message = format!("{why}; with InitialOnly what was written stays");
                self.unchanged(Action::Keep, Reason::Initial, message)
            }
            (_, Some(_), Mode::ReportDrift) => {
                let message = format!("{why}; with ReportDrift nothing is removed");
                self.unchanged(Action::Report, Reason::Drift, message)
            }
        }
    }

    fn missing(&self, rule: &AgreedRule, desired: &str, policy: &str) -> LabelOutcome {
        let there = format!("{} on {} is {desired:?}", rule.source, self.infra_node());
        match (rule.mode, self.owned_entry()) {
            (Mode::ReportDrift, _) => {
                let message = format!("the Node has none, {there}; with ReportDrift nothing is written");
                self.unchanged(Action::Report, Reason::Drift, message)
            }
            (Mode::InitialOnly, Some(_)) => {
                let message = "it was written once and somebody removed it; with InitialOnly it stays so";
                self.unchanged(Action::Keep, Reason::Initial, message.to_owned())
            }
            // What others had there went with the label: whoever removed it wanted neither.
            (_, Some(_)) => {
                let message = format!("somebody removed what was written; {there}");
                self.set(desired, None, policy, (Reason::Repaired, message))
            }
            (_, None) => {
                let message = format!("the Node has none; {there}");
                self.set(desired, None, policy, (Reason::Missing, message))
            }
        }
    }

    fn differs(&self, rule: &AgreedRule, current: &str, desired: &str, policy: &str) -> LabelOutcome {
        let there = format!("{} on {} is {desired:?}", rule.source, self.infra_node());
        let ours = self.owned_by_us();
        let imposed = guard::kubelet_imposes(self.key) && self.input.kubelet_labels.contains(self.key);
        if ours.is_none() && imposed {
            let message = format!(
                "{there}, and the Node's kubelet writes {current:?} whenever it starts; remove {} from its --node-labels",
                self.key
            );
            return LabelOutcome {
                entry: self.owned.cloned(),
                ..self.unchanged(Action::Report, Reason::KubeletImposes, message)
            };
        }
        match (rule.mode, ours) {
            (Mode::ReportDrift, _) => {
                let message =
                    format!("{there}, the Node has {current:?}; with ReportDrift nothing is written");
                self.unchanged(Action::Report, Reason::Drift, message)
            }
            (Mode::InitialOnly, _) => {
                let message = format!("{there}; with InitialOnly {current:?} stays");
                self.unchanged(Action::Keep, Reason::Initial, message)
            }
            (_, Some(_)) if self.input.unconfirmed.contains(&rule.source) => {
                let message = format!("{there} since a moment ago; {current:?} is replaced if it stays so");
                self.unchanged(Action::Keep, Reason::Moved, message)
            }
            (_, Some(entry)) => {
                let message = format!("{there}, and {current:?} was written before");
                self.set(desired, entry.previous.clone(), policy, (Reason::Moved, message))
            }
            (_, None) => self.foreign(rule, current, desired, policy),
        }
    }

    fn foreign(&self, rule: &AgreedRule, current: &str, desired: &str, policy: &str) -> LabelOutcome {
        let there = format!("{} on {} is {desired:?}", rule.source, self.infra_node());
        // The value of a place where the VM stood was copied from there and has gone stale.
        let hosts = self.input.stood_on.iter().chain([&self.host.labels]);
        let mut values = hosts.filter_map(|labels| {
            super::pairs::value(labels, &rule.source, super::pairs::group_key(self.key))
        });
        let refusal = match rule.takeover {
            Takeover::Always => None,
            Takeover::IfPlacementMatches if values.any(|value| value == current) => None,
            Takeover::IfPlacementMatches => {
                Some("it is not the value of an infra node on which the VM is known to have stood")
            }
            Takeover::Never => Some("takeover is Never"),
        };
        if let Some(refusal) = refusal {
            let message = format!(
                "{there}; others wrote {current:?}, and {refusal}; remove the label, or set takeover: Always in {policy}"
            );
            return self.unchanged(Action::Report, Reason::Foreign, message);
        }
        let older = self.owned_entry().and_then(|entry| entry.previous.clone());
        let previous = older.or_else(|| Some(current.to_owned()));
        let message = format!(
            "{there}; {current:?}, which others wrote, is replaced (takeover {:?})",
            rule.takeover
        );
        self.set(desired, previous, policy, (Reason::TakenOver, message))
    }

    /// Whether the annotation says that the label as it is was written by us, authorised or not.
    fn claimed(&self) -> bool {
        self.owned.is_some_and(|entry| self.current == Some(&entry.value))
    }

    /// Nothing changes. An entry stays while the label has its value or nobody has put another one there.
    fn unchanged(&self, action: Action, reason: Reason, message: String) -> LabelOutcome {
        let before = (self.current.map(str::to_owned), self.owned.cloned());
        LabelOutcome {
            action,
            reason,
            message,
            value: before.0.clone(),
            entry: before
                .1
                .clone()
                .filter(|_| self.current.is_none() || self.claimed()),
            reached: false,
            if_safe: false,
            before,
        }
    }

    /// As [`LabelState::unchanged`], and a claim of the annotation that nobody could have earned is dropped.
    fn rejected(&self, reason: Reason, message: String) -> LabelOutcome {
        LabelOutcome {
            entry: None,
            ..self.unchanged(Action::Report, reason, message)
        }
    }

    fn set(
        &self,
        desired: &str,
        previous: Option<String>,
        policy: &str,
        (reason, message): (Reason, String),
    ) -> LabelOutcome {
        let entry = OwnedLabel {
            value: desired.to_owned(),
            // Never restored, as it is never removed.
            previous: previous.filter(|_| !guard::is_node_restriction(self.key)),
            if_safe: false,
            infra_node_uid: self.host.uid.clone(),
            vmi_uid: self.input.vmi_uid.clone(),
            policy: policy.to_owned(),
        };
        LabelOutcome {
            value: Some(desired.to_owned()),
            entry: Some(entry),
            reached: true,
            ..self.unchanged(Action::Set, reason, message)
        }
    }

    fn revert(&self, entry: &OwnedLabel, reason: Reason, why: &str) -> LabelOutcome {
        // The annotation may have been edited: what the API server would refuse is not sent.
        let previous = entry
            .previous
            .clone()
            .filter(|value| guard::check_value(value).is_ok());
        let (action, message) = match &previous {
            Some(value) if self.current == Some(value) => {
                (Action::Keep, format!("{why}; {value:?} stood there before, too"))
            }
            Some(value) => (Action::Restore, format!("{why}; {value:?} stood there before")),
            None => (Action::Remove, format!("{why}, and it was written by us")),
        };
        LabelOutcome {
            value: previous,
            entry: None,
            reached: true,
            ..self.unchanged(action, reason, message)
        }
    }
}
