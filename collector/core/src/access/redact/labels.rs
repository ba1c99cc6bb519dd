//! Labels, label decisions and their inputs with pseudonyms.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Redactor,
    terms::{is_flag, is_place, is_public},
};
use crate::{
    facts::{InfraNode, Labels},
    labels::plan::{Decision, LabelInput},
};

impl Redactor {
    pub(super) fn infra_labels(&self, labels: &Labels) -> Labels {
        let replaced = labels.iter().map(|(key, value)| {
            let value = if is_public(key, value) {
                self.known_value(value)
            } else {
                self.pseudonym(value)
            };
            (key.to_owned(), value)
        });
        replaced.collect()
    }

    /// Labels of a tenant's object; those under `copied` have values of an infra node.
    pub(super) fn tenant_labels(&self, labels: &Labels, copied: &BTreeSet<String>) -> Labels {
        let replaced = labels
            .iter()
            .map(|(key, value)| (key.to_owned(), self.tenant_value(key, value, copied)));
        replaced.collect()
    }

    fn tenant_value(&self, key: &str, value: &str, copied: &BTreeSet<String>) -> String {
        if (is_place(key) || copied.contains(key)) && !is_flag(value) {
            self.pseudonym(value)
        } else {
            self.known_value(value)
        }
    }

    /// The pseudonym of a value that an infra node has; else the value.
    fn known_value(&self, value: &str) -> String {
        if self.terms.has(value) {
            self.pseudonym(value)
        } else {
            value.to_owned()
        }
    }

    /// The input of a label plan. Values that were equal stay equal, so the plan is the same.
    pub fn label_input(&self, input: LabelInput) -> LabelInput {
        let copied = owned_keys(input.owned.as_deref());
        LabelInput {
            labels: self.tenant_labels(&input.labels, &copied),
            owned: input.owned.map(|text| self.annotation(&text, &copied)),
            host: input.host.and_then(|host| {
                Some(InfraNode {
                    name: self.node(&host.name)?,
                    uid: None,
                    labels: self.infra_labels(&host.labels),
                    ready: host.ready,
                    conditions: host.conditions.clone(),
                    reported_ms: None,
                    unschedulable: host.unschedulable,
                    taints: host.taints.clone(),
                    allocatable: host.allocatable,
                })
            }),
            stood_on: input
                .stood_on
                .iter()
                .map(|labels| self.infra_labels(labels))
                .collect(),
            ..input
        }
    }

    /// The ownership annotation of a Node.
    fn annotation(&self, text: &str, copied: &BTreeSet<String>) -> String {
        let Ok(mut annotation) = serde_json::from_str::<Value>(text) else {
            return self.text(text);
        };
        for (key, entry) in annotation["labels"].as_object_mut().into_iter().flatten() {
            for field in ["value", "previous"] {
                if let Some(Value::String(value)) = entry.get_mut(field) {
                    *value = self.tenant_value(key, value, copied);
                }
            }
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("infraNodeUid");
            }
        }
        annotation.to_string()
    }

    /// A decision about a label of a Node with the annotation `owned`.
    pub fn decision(&self, decision: Decision, owned: Option<&str>) -> Decision {
        let copied = owned_keys(owned);
        let source = decision.source.as_deref().unwrap_or_default();
        let desired = decision.desired.as_ref().map(|value| {
            if is_public(source, value) {
                self.known_value(value)
            } else {
                self.pseudonym(value)
            }
        });
        let current = decision
            .current
            .as_ref()
            .map(|value| self.tenant_value(&decision.key, value, &copied));
        let values = [(&decision.desired, &desired), (&decision.current, &current)];
        let hidden: Vec<&str> = values
            .into_iter()
            .filter(|(before, after)| before != after)
            .filter_map(|(before, _)| before.as_deref())
            .collect();
        Decision {
            message: self.text_with(&decision.message, &hidden),
            desired,
            current,
            ..decision
        }
    }
}

/// The keys whose values the collector has copied from an infra node, by the annotation's text.
fn owned_keys(owned: Option<&str>) -> BTreeSet<String> {
    let annotation = owned.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let labels = annotation.as_ref().and_then(|one| one.get("labels")?.as_object());
    labels
        .into_iter()
        .flat_map(|labels| labels.keys().cloned())
        .collect()
}
