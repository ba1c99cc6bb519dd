//! Decides the action for one key, and the reason. Pairs of keys and the safety of changes are
//! checked afterwards.

pub(super) use super::outcome::LabelOutcome;
use super::{
    guard,
    merge::AgreedRule,
    owned::OwnedLabel,
    plan::{Action, LabelInput, Reason},
    policy::{Mode, Takeover},
};
use crate::facts::InfraNode;

/// State of one key of one Node.
#[derive(Debug, Clone, Copy)]
pub(super) struct LabelState<'a> {
    pub(super) key: &'a str,
    pub(super) current: Option<&'a str>,
    /// Its entry in the ownership annotation.
    pub(super) owned: Option<&'a OwnedLabel>,
    pub(super) input: &'a LabelInput,
    /// The infra node on which the VM runs.
    pub(super) host: &'a InfraNode,
}

impl<'a> LabelState<'a> {
    /// The outcome for a key with the agreed rule `rule` of the policies `policy`.
    pub(super) fn required(&self, rule: &AgreedRule, policy: &str) -> LabelOutcome {
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
                let message = format!("same value as {} on {}", rule.source, self.infra_node());
                let mut outcome = self.unchanged(Action::Keep, Reason::InLine, message);
                outcome.reached = true;
                // The mode that applied last decides how the label is reverted later.
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

    /// The outcome for a key that the collector wrote and no policy selects any more: the label is
    /// reverted while it has the value that the collector wrote.
    pub(super) fn withdrawn(&self) -> LabelOutcome {
        if let Some(message) = guard::protected(self.key) {
            return self.rejected(Reason::Protected, message);
        }
        let Some(entry) = self.owned.filter(|entry| self.current == Some(&entry.value)) else {
            let message = "no LabelPropagation selects it any more, and its value is not the one that was written, so it belongs to \
                           another writer";
            return LabelOutcome {
                entry: None,
                ..self.unchanged(Action::Keep, Reason::Withdrawn, message.to_owned())
            };
        };
        if guard::is_node_restriction(self.key) {
            let message = "no LabelPropagation selects it any more; it is not removed, because only the Node's annotation records \
                           that virtfleet wrote it, and a kubelet can edit the annotation; remove it by hand: kubectl label node";
            let message = format!("{message} {} {}-", self.input.node, self.key);
            return self.unchanged(Action::Report, Reason::Withdrawn, message);
        }
        let outcome = self.revert(
            entry,
            Reason::Withdrawn,
            "no LabelPropagation selects it any more",
        );
        LabelOutcome {
            if_safe: entry.if_safe && outcome.changes(),
            ..outcome
        }
    }

    /// The entry, if the label has the value that the collector wrote. A kubelet can edit the
    /// annotation, so it is ignored for keys that a kubelet must not write.
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
                let message = format!("{why}; {} is never removed", self.key);
                self.unchanged(Action::Report, Reason::SourceGone, message)
            }
            (Some(_), None, _) => {
                let message = format!("{why}, and virtfleet did not write the value");
                self.unchanged(Action::Keep, Reason::Foreign, message)
            }
            (_, Some(_), Mode::Follow | Mode::FollowIfSafe)
                if self.input.unconfirmed.contains(&rule.source) =>
            {
                let message = format!("{why} since recently; the written label is reverted if that persists");
                self.unchanged(Action::Keep, Reason::SourceGone, message)
            }
            (_, Some(entry), Mode::Follow | Mode::FollowIfSafe) => {
                self.revert(entry, Reason::SourceGone, &why)
            }
            (_, Some(_), Mode::InitialOnly) => {
                let message = format!("{why}; with InitialOnly the written label is kept");
                self.unchanged(Action::Keep, Reason::Initial, message)
            }
            (_, Some(_), Mode::ReportDrift) => {
                let message = format!("{why}; with ReportDrift nothing is removed");
                self.unchanged(Action::Report, Reason::Drift, message)
            }
        }
    }

    fn missing(&self, rule: &AgreedRule, desired: &str, policy: &str) -> LabelOutcome {
        let source_value = format!("{} on {} is {desired:?}", rule.source, self.infra_node());
        match (rule.mode, self.owned_entry()) {
            (Mode::ReportDrift, _) => {
                let message =
                    format!("the Node has none, {source_value}; with ReportDrift nothing is written");
                self.unchanged(Action::Report, Reason::Drift, message)
            }
            (Mode::InitialOnly, Some(_)) => {
                let message = "it was written once and then removed by another writer; with InitialOnly it is not written again";
                self.unchanged(Action::Keep, Reason::Initial, message.to_owned())
            }
            // The previous value of other writers is not restored either: it was removed together
            // with the label.
            (_, Some(_)) => {
                let message = format!("another writer removed the label; {source_value}");
                self.set(desired, None, policy, (Reason::Repaired, message))
            }
            (_, None) => {
                let message = format!("the Node has none; {source_value}");
                self.set(desired, None, policy, (Reason::Missing, message))
            }
        }
    }

    fn differs(&self, rule: &AgreedRule, current: &str, desired: &str, policy: &str) -> LabelOutcome {
        let source_value = format!("{} on {} is {desired:?}", rule.source, self.infra_node());
        let ours = self.owned_by_us();
        let imposed = guard::kubelet_imposes(self.key) && self.input.kubelet_labels.contains(self.key);
        if ours.is_none() && imposed {
            let message = format!(
                "{source_value}, and the Node's kubelet writes {current:?} at every start; remove {} from its --node-labels",
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
                    format!("{source_value}, the Node has {current:?}; with ReportDrift nothing is written");
                self.unchanged(Action::Report, Reason::Drift, message)
            }
            (Mode::InitialOnly, _) => {
                let message = format!("{source_value}; with InitialOnly {current:?} is kept");
                self.unchanged(Action::Keep, Reason::Initial, message)
            }
            (_, Some(_)) if self.input.unconfirmed.contains(&rule.source) => {
                let message =
                    format!("{source_value} since recently; {current:?} is replaced if that persists");
                self.unchanged(Action::Keep, Reason::Moved, message)
            }
            (_, Some(entry)) => {
                let message = format!("{source_value}, and {current:?} was written before");
                self.set(desired, entry.previous.clone(), policy, (Reason::Moved, message))
            }
            (_, None) => self.foreign(rule, current, desired, policy),
        }
    }

    fn foreign(&self, rule: &AgreedRule, current: &str, desired: &str, policy: &str) -> LabelOutcome {
        let source_value = format!("{} on {} is {desired:?}", rule.source, self.infra_node());
        // The value of an infra node on which the VM ran was copied from there and is outdated.
        let hosts = self.input.stood_on.iter().chain([&self.host.labels]);
        let mut values = hosts.filter_map(|labels| {
            super::pairs::value(labels, &rule.source, super::pairs::group_key(self.key))
        });
        let refusal = match rule.takeover {
            Takeover::Always => None,
            Takeover::IfPlacementMatches if values.any(|value| value == current) => None,
            Takeover::IfPlacementMatches => {
                Some("it is not the value of an infra node on which the VM is known to have run")
            }
            Takeover::Never => Some("takeover is Never"),
        };
        if let Some(refusal) = refusal {
            let message = format!(
                "{source_value}; another writer set {current:?}, and {refusal}; remove the label, or set takeover: Always in {policy}"
            );
            return self.unchanged(Action::Report, Reason::Foreign, message);
        }
        let older = self.owned_entry().and_then(|entry| entry.previous.clone());
        let previous = older.or_else(|| Some(current.to_owned()));
        let message = format!(
            "{source_value}; {current:?}, set by another writer, is replaced (takeover {:?})",
            rule.takeover
        );
        self.set(desired, previous, policy, (Reason::TakenOver, message))
    }

    /// Whether the annotation lists the label with its present value, authorised or not.
    fn claimed(&self) -> bool {
        self.owned.is_some_and(|entry| self.current == Some(&entry.value))
    }

    /// No change. The entry is kept while the label has the entry's value or no other writer has
    /// set one.
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

    /// As [`LabelState::unchanged`], but drops an entry of the annotation for a key that is never
    /// written.
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
            // The value under a key that is never removed is not recorded, because it is never
            // restored.
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
        // The annotation may have been edited: values that the API server would reject are not
        // sent.
        let previous = entry
            .previous
            .clone()
            .filter(|value| guard::check_value(value).is_ok());
        let (action, message) = match &previous {
            Some(value) if self.current == Some(value) => (
                Action::Keep,
                format!("{why}; {value:?} was source_value before, too"),
            ),
            Some(value) => (
                Action::Restore,
                format!("{why}; {value:?} was source_value before"),
            ),
            None => (Action::Remove, format!("{why}, and virtfleet wrote it")),
        };
        LabelOutcome {
            value: previous,
            entry: None,
            reached: true,
            ..self.unchanged(action, reason, message)
        }
    }
}
