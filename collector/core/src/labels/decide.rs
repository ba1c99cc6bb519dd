//! One key: what becomes of it, and why. The safety of a change and the other member of a pair come afterwards.

use super::{
    guard,
    merge::Wish,
    owned::Entry,
    plan::{Action, LabelInput, Reason},
    policy::{Mode, Takeover},
};
use crate::facts::InfraNode;

/// A key of one Node, as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    /// The key.
    pub(super) key: &'a str,
    /// The label's value.
    pub(super) current: Option<&'a str>,
    /// What the ownership annotation says of it.
    pub(super) owned: Option<&'a Entry>,
    /// The Node.
    pub(super) input: &'a LabelInput,
    /// The infra node on which the VM stands.
    pub(super) host: &'a InfraNode,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) action: Action,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// The label afterwards.
    pub(super) value: Option<String>,
    /// What the annotation says afterwards.
    pub(super) entry: Option<Entry>,
    /// It ends as wanted.
    pub(super) settled: bool,
    /// It changes only if that is safe.
    pub(super) if_safe: bool,
    before: (Option<String>, Option<Entry>),
}

impl Verdict {
    /// Whether the label changes.
    pub(super) fn changes(&self) -> bool {
        self.value != self.before.0
    }

    /// Nothing changes after all.
    pub(super) fn hold(&mut self, action: Action, reason: Reason, message: String) {
        (self.value, self.entry) = self.before.clone();
        (self.action, self.reason, self.message) = (action, reason, message);
        (self.settled, self.if_safe) = (false, false);
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

impl<'a> Case<'a> {
    /// What becomes of a key that `wish` is about, on behalf of `policy`.
    pub(super) fn wanted(&self, wish: &Wish, policy: &str) -> Verdict {
        if let Some(message) = guard::protected(self.key) {
            return self.refused(Reason::Protected, message);
        }
        let syntax = guard::check_key(self.key);
        if let Err(message) =
            syntax.and_then(|()| guard::check_value(wish.desired.as_deref().unwrap_or_default()))
        {
            return self.stays(Action::Report, Reason::InvalidValue, message);
        }
        let mut verdict = match (self.current, wish.desired.as_deref()) {
            (_, None) => self.source_gone(wish),
            (Some(current), Some(desired)) if current == desired => {
                let message = format!("as {} on {}", wish.source, self.place());
                let mut verdict = self.stays(Action::Keep, Reason::InLine, message);
                verdict.settled = true;
                // What is taken back one day is judged by the mode that was asked for last.
                if let Some(entry) = verdict.entry.as_mut().filter(|_| self.ours().is_some()) {
                    entry.if_safe = wish.mode == Mode::FollowIfSafe;
                }
                verdict
            }
            (None, Some(desired)) => self.missing(wish, desired, policy),
            (Some(current), Some(desired)) => self.differs(wish, current, desired, policy),
        };
        if verdict.action == Action::Set
            && let Some(entry) = &mut verdict.entry
        {
            entry.if_safe = wish.mode == Mode::FollowIfSafe;
        }
        Verdict {
            if_safe: wish.mode == Mode::FollowIfSafe && verdict.changes(),
            ..verdict
        }
    }

    /// What becomes of a key that we wrote and nobody asks for any more: it is taken back while it has our value.
    pub(super) fn withdrawn(&self) -> Verdict {
        if let Some(message) = guard::protected(self.key) {
            return self.refused(Reason::Protected, message);
        }
        let Some(entry) = self.owned.filter(|entry| self.current == Some(&entry.value)) else {
            let message = "no LabelPropagation asks for it any more, and it has not the value that was written, so it is \
                           somebody else's";
            return Verdict {
                entry: None,
                ..self.stays(Action::Keep, Reason::Withdrawn, message.to_owned())
            };
        };
        if guard::is_node_restriction(self.key) {
            let message = "no LabelPropagation asks for it any more; it is not removed, because only the Node's annotation says \
                           that it is ours, and a kubelet can edit that; remove it by hand: kubectl label node";
            let message = format!("{message} {} {}-", self.input.node, self.key);
            return self.stays(Action::Report, Reason::Withdrawn, message);
        }
        let verdict = self.taken_back(
            entry,
            Reason::Withdrawn,
            "no LabelPropagation asks for it any more",
        );
        Verdict {
            if_safe: entry.if_safe && verdict.changes(),
            ..verdict
        }
    }

    /// The entry, when the label has the value that we wrote. What a kubelet can edit says nothing about a key that a kubelet
    /// must not touch.
    fn ours(&self) -> Option<&'a Entry> {
        self.remembered()
            .filter(|entry| self.current == Some(&entry.value))
    }

    fn remembered(&self) -> Option<&'a Entry> {
        self.owned.filter(|_| !guard::is_node_restriction(self.key))
    }

    fn place(&self) -> String {
        format!("the infra node {}", self.host.name)
    }

    fn source_gone(&self, wish: &Wish) -> Verdict {
        let why = format!("{} has no {}", self.place(), wish.source);
        match (self.current, self.ours(), wish.mode) {
            (None, ..) => Verdict {
                settled: true,
                entry: self.owned.filter(|_| wish.mode == Mode::InitialOnly).cloned(),
                ..self.stays(
                    Action::Keep,
                    Reason::InLine,
                    format!("{why}, and the Node has none"),
                )
            },
            (_, None, _) if guard::is_node_restriction(self.key) && self.claimed() => {
                let message = format!("{why}; it is never removed from {}", self.key);
                self.stays(Action::Report, Reason::SourceGone, message)
            }
            (Some(_), None, _) => {
                let message = format!("{why}, and the value is not ours");
                self.stays(Action::Keep, Reason::Foreign, message)
            }
            (_, Some(_), Mode::Follow | Mode::FollowIfSafe)
                if self.input.unconfirmed.contains(&wish.source) =>
            {
                let message =
                    format!("{why} since a moment ago; what was written is taken back if it stays so");
                self.stays(Action::Keep, Reason::SourceGone, message)
            }
            (_, Some(entry), Mode::Follow | Mode::FollowIfSafe) => {
                self.taken_back(entry, Reason::SourceGone, &why)
            }
            (_, Some(_), Mode::InitialOnly) => {
                let message = format!("{why}; with InitialOnly what was written stays");
                self.stays(Action::Keep, Reason::Initial, message)
            }
            (_, Some(_), Mode::ReportDrift) => {
                let message = format!("{why}; with ReportDrift nothing is removed");
                self.stays(Action::Report, Reason::Drift, message)
            }
        }
    }

    fn missing(&self, wish: &Wish, desired: &str, policy: &str) -> Verdict {
        let there = format!("{} on {} is {desired:?}", wish.source, self.place());
        match (wish.mode, self.remembered()) {
            (Mode::ReportDrift, _) => {
                let message = format!("the Node has none, {there}; with ReportDrift nothing is written");
                self.stays(Action::Report, Reason::Drift, message)
            }
            (Mode::InitialOnly, Some(_)) => {
                let message = "it was written once and somebody removed it; with InitialOnly it stays so";
                self.stays(Action::Keep, Reason::Initial, message.to_owned())
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

    fn differs(&self, wish: &Wish, current: &str, desired: &str, policy: &str) -> Verdict {
        let there = format!("{} on {} is {desired:?}", wish.source, self.place());
        let ours = self.ours();
        let imposed = guard::kubelet_imposes(self.key) && self.input.kubelet_labels.contains(self.key);
        if ours.is_none() && imposed {
            let message = format!(
                "{there}, and the Node's kubelet writes {current:?} whenever it starts; remove {} from its --node-labels",
                self.key
            );
            return Verdict {
                entry: self.owned.cloned(),
                ..self.stays(Action::Report, Reason::KubeletImposes, message)
            };
        }
        match (wish.mode, ours) {
            (Mode::ReportDrift, _) => {
                let message =
                    format!("{there}, the Node has {current:?}; with ReportDrift nothing is written");
                self.stays(Action::Report, Reason::Drift, message)
            }
            (Mode::InitialOnly, _) => {
                let message = format!("{there}; with InitialOnly {current:?} stays");
                self.stays(Action::Keep, Reason::Initial, message)
            }
            (_, Some(_)) if self.input.unconfirmed.contains(&wish.source) => {
                let message = format!("{there} since a moment ago; {current:?} is replaced if it stays so");
                self.stays(Action::Keep, Reason::Moved, message)
            }
            (_, Some(entry)) => {
                let message = format!("{there}, and {current:?} was written before");
                self.set(desired, entry.previous.clone(), policy, (Reason::Moved, message))
            }
            (_, None) => self.foreign(wish, current, desired, policy),
        }
    }

    fn foreign(&self, wish: &Wish, current: &str, desired: &str, policy: &str) -> Verdict {
        let there = format!("{} on {} is {desired:?}", wish.source, self.place());
        // The value of a place where the VM stood was copied from there and has gone stale.
        let hosts = self.input.stood_on.iter().chain([&self.host.labels]);
        let mut values = hosts
            .filter_map(|labels| super::pairs::value(labels, &wish.source, super::pairs::unit(self.key)));
        let refusal = match wish.takeover {
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
            return self.stays(Action::Report, Reason::Foreign, message);
        }
        let older = self.remembered().and_then(|entry| entry.previous.clone());
        let previous = older.or_else(|| Some(current.to_owned()));
        let message = format!(
            "{there}; {current:?}, which others wrote, is replaced (takeover {:?})",
            wish.takeover
        );
        self.set(desired, previous, policy, (Reason::TakenOver, message))
    }

    /// Whether the annotation says that the label as it is was written by us, authorised or not.
    fn claimed(&self) -> bool {
        self.owned.is_some_and(|entry| self.current == Some(&entry.value))
    }

    /// Nothing changes. An entry stays while the label has its value or nobody has put another one there.
    fn stays(&self, action: Action, reason: Reason, message: String) -> Verdict {
        let before = (self.current.map(str::to_owned), self.owned.cloned());
        Verdict {
            action,
            reason,
            message,
            value: before.0.clone(),
            entry: before
                .1
                .clone()
                .filter(|_| self.current.is_none() || self.claimed()),
            settled: false,
            if_safe: false,
            before,
        }
    }

    /// As [`Case::stays`], and a claim of the annotation that nobody could have earned is dropped.
    fn refused(&self, reason: Reason, message: String) -> Verdict {
        Verdict {
            entry: None,
            ..self.stays(Action::Report, reason, message)
        }
    }

    fn set(
        &self,
        desired: &str,
        previous: Option<String>,
        policy: &str,
        (reason, message): (Reason, String),
    ) -> Verdict {
        let entry = Entry {
            value: desired.to_owned(),
            // Never restored, as it is never removed.
            previous: previous.filter(|_| !guard::is_node_restriction(self.key)),
            if_safe: false,
            infra_node_uid: self.host.uid.clone(),
            vmi_uid: self.input.vmi_uid.clone(),
            policy: policy.to_owned(),
        };
        Verdict {
            value: Some(desired.to_owned()),
            entry: Some(entry),
            settled: true,
            ..self.stays(Action::Set, reason, message)
        }
    }

    fn taken_back(&self, entry: &Entry, reason: Reason, why: &str) -> Verdict {
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
        Verdict {
            value: previous,
            entry: None,
            settled: true,
            ..self.stays(action, reason, message)
        }
    }
}
