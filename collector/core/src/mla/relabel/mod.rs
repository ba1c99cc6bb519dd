//! Relabelling rules with the words and the semantics of Prometheus 3.
//!
//! Source of the rules: Prometheus documentation, "Configuration", sections `relabel_config` and
//! `write_relabel_configs`; names of labels are those of the validation scheme `legacy`, which
//! Cortex requires. Differences: a name that `labelmap` makes and that is invalid is ignored, and a
//! series over [`MAX_RELABELLED_LABELS`] or with a value over [`MAX_RELABELLED_BYTES`] is dropped.

mod case;
mod labels;
mod re2;
mod template;

use std::{fmt, sync::Arc};

use md5::{Digest as _, Md5};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::exposition::is_label_name;

pub use labels::{LabelValue, WorkingLabels};
use template::{Template, is_name_template};

/// Maximum number of rules of one stream.
pub const MAX_RULES: usize = 200;
/// Maximum number of source labels of a rule.
const MAX_SOURCE_LABELS: usize = 32;
/// Maximum length of a rule's label names, separator and replacement, in bytes each.
const MAX_RULE_TEXT_BYTES: usize = 1024;
/// Maximum number of labels of a series after a rule.
pub const MAX_RELABELLED_LABELS: usize = 64;
/// Maximum length of a label's name or value that a rule makes, in bytes.
pub const MAX_RELABELLED_BYTES: usize = 2048;

const DEFAULT_SEPARATOR: &str = ";";
const DEFAULT_REGEX: &str = "(.*)";
const DEFAULT_REPLACEMENT: &str = "$1";

/// A relabelling rule, as an entry of Prometheus' `write_relabel_configs`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RelabelRule {
    /// Labels whose values are joined with the separator and matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_labels: Vec<String>,
    /// Text between the values of the source labels; `;` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<String>,
    /// Pattern (RE2) that must match the whole text; `(.*)` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// Modulus of the hash of the source labels' values, for `hashmod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modulus: Option<u64>,
    /// Label that the rule sets or compares. `$1` and `${name}` mean a group of the regex for
    /// `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_label: Option<String>,
    /// New value; for `labelmap`, new name. `$1` and `${name}` mean a group of the regex; `$1` if
    /// absent. An empty value removes the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// What the rule does; `replace` if absent.
    #[serde(default)]
    pub action: RelabelAction,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum RelabelAction {
    /// Sets the target label to the replacement if the regex matches.
    #[default]
    Replace,
    /// Drops series whose source labels do not match.
    Keep,
    /// Drops series whose source labels match.
    Drop,
    /// Drops series whose source labels differ from the target label.
    KeepEqual,
    /// Drops series whose source labels equal the target label.
    DropEqual,
    /// Sets the target label to the hash of the source labels modulo `modulus`.
    HashMod,
    /// Copies labels whose name matches to the name that the replacement gives.
    LabelMap,
    /// Removes labels whose name matches.
    LabelDrop,
    /// Removes labels whose name does not match.
    LabelKeep,
    /// Sets the target label to the source labels' values in lower case.
    Lowercase,
    /// Sets the target label to the source labels' values in upper case.
    Uppercase,
}

impl RelabelAction {
    /// The word in a rule.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An invalid rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelabelError {
    /// Index of the rule, from 0.
    pub index: usize,
    pub why: String,
}

impl fmt::Display for RelabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "relabel[{}]: {}", self.index, self.why)
    }
}

impl std::error::Error for RelabelError {}

/// What the rules make of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelabelVerdict {
    /// It is kept, with the changed labels.
    Kept,
    Dropped,
    /// A rule makes too many labels or too long a value; the series is dropped.
    OverLimit,
    /// A rule reads [`LabelValue::Target`]: the outcome differs from VM to VM.
    DependsOnTarget,
}

/// Rules ready to be applied. Immutable; clones share the compiled patterns.
#[derive(Debug, Clone, Default)]
pub struct CompiledRules(Arc<[Rule]>);

#[derive(Debug)]
struct Rule {
    source_labels: Box<[String]>,
    separator: String,
    /// The label to which the rule copies the whole value of its only source label, and nothing
    /// else.
    copies_to: Option<String>,
    effect: Effect,
}

#[derive(Debug)]
enum Effect {
    Replace(Regex, Template, Template),
    Keep(Regex),
    Drop(Regex),
    KeepEqual(String),
    DropEqual(String),
    HashMod(u64, String),
    LabelMap(Regex, Template),
    LabelDrop(Regex),
    LabelKeep(Regex),
    Case(fn(&str) -> String, String),
}

impl CompiledRules {
    /// Validates and compiles rules.
    ///
    /// # Errors
    /// The first invalid rule.
    pub fn new(rules: &[RelabelRule]) -> Result<Self, RelabelError> {
        if rules.len() > MAX_RULES {
            let why = format!("more than {MAX_RULES} rules");
            return Err(RelabelError {
                index: MAX_RULES,
                why,
            });
        }
        let compiled = rules.iter().enumerate();
        let compiled =
            compiled.map(|(index, rule)| Rule::new(rule).map_err(|why| RelabelError { index, why }));
        compiled
            .collect::<Result<Vec<_>, _>>()
            .map(|rules| Self(rules.into()))
    }

    /// Rules that drop every series.
    pub fn drop_all() -> Self {
        // A label of this name is on no series, and equals the value of no source label.
        let rule = Rule {
            source_labels: Box::default(),
            separator: String::new(),
            copies_to: None,
            effect: Effect::DropEqual("__none".to_owned()),
        };
        Self(Arc::new([rule]))
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies all rules in order. Unless the verdict is [`RelabelVerdict::Kept`], the labels are
    /// unspecified afterwards.
    pub fn apply(&self, labels: &mut WorkingLabels) -> RelabelVerdict {
        for rule in self.0.iter() {
            match rule.apply(labels) {
                RelabelVerdict::Kept if labels.len() > MAX_RELABELLED_LABELS => {
                    return RelabelVerdict::OverLimit;
                }
                RelabelVerdict::Kept => {}
                other => return other,
            }
        }
        RelabelVerdict::Kept
    }
}

impl Rule {
    fn new(rule: &RelabelRule) -> Result<Self, String> {
        check(rule)?;
        let regex = re2::compile(rule.regex.as_deref().unwrap_or(DEFAULT_REGEX))?;
        let target = rule.target_label.clone().unwrap_or_default();
        let replacement = rule.replacement.as_deref().unwrap_or(DEFAULT_REPLACEMENT);
        let replacement = Template::new(replacement, &regex);
        let effect = match rule.action {
            RelabelAction::Replace => {
                let target = Template::new(&target, &regex);
                Effect::Replace(regex, target, replacement)
            }
            RelabelAction::Keep => Effect::Keep(regex),
            RelabelAction::Drop => Effect::Drop(regex),
            RelabelAction::KeepEqual => Effect::KeepEqual(target),
            RelabelAction::DropEqual => Effect::DropEqual(target),
            RelabelAction::HashMod => Effect::HashMod(rule.modulus.unwrap_or(1).max(1), target),
            RelabelAction::LabelMap => Effect::LabelMap(regex, replacement),
            RelabelAction::LabelDrop => Effect::LabelDrop(regex),
            RelabelAction::LabelKeep => Effect::LabelKeep(regex),
            RelabelAction::Lowercase => Effect::Case(case::lower, target),
            RelabelAction::Uppercase => Effect::Case(case::upper, target),
        };
        Ok(Self {
            source_labels: rule.source_labels.clone().into(),
            separator: rule.separator.as_deref().unwrap_or(DEFAULT_SEPARATOR).to_owned(),
            copies_to: copies_to(rule),
            effect,
        })
    }

    fn apply(&self, labels: &mut WorkingLabels) -> RelabelVerdict {
        use RelabelVerdict::{DependsOnTarget, Dropped, Kept, OverLimit};
        match &self.effect {
            Effect::LabelMap(regex, replacement) => return label_map(regex, replacement, labels),
            Effect::LabelDrop(regex) => {
                labels.retain(|name| !regex.is_match(name));
                return Kept;
            }
            Effect::LabelKeep(regex) => {
                labels.retain(|name| regex.is_match(name));
                return Kept;
            }
            _ => {}
        }
        let Some(value) = self.joined(labels) else {
            let source = self.source_labels.first().and_then(|name| labels.get(name));
            if let (Some(target), Some(value)) = (&self.copies_to, source) {
                let value = value.clone();
                labels.set(target, value);
                return Kept;
            }
            return DependsOnTarget;
        };
        let kept = |kept: bool| if kept { Kept } else { Dropped };
        let (target, result) = match &self.effect {
            Effect::Keep(regex) => return kept(regex.is_match(&value)),
            Effect::Drop(regex) => return kept(!regex.is_match(&value)),
            Effect::KeepEqual(target) | Effect::DropEqual(target) => {
                let known = match labels.get(target) {
                    Some(LabelValue::Target(_)) => return DependsOnTarget,
                    Some(LabelValue::Text(known)) => known,
                    None => "",
                };
                return kept((known == value) == matches!(self.effect, Effect::KeepEqual(_)));
            }
            Effect::Replace(regex, target, replacement) => {
                let Some(captures) = regex.captures(&value) else {
                    return Kept;
                };
                let expand = |template: &Template| template.expand(&captures, MAX_RELABELLED_BYTES);
                let (Some(target), Some(result)) = (expand(target), expand(replacement)) else {
                    return OverLimit;
                };
                if !is_label_name(&target) {
                    return Kept;
                }
                (target, result)
            }
            Effect::HashMod(modulus, target) => {
                let hash = Md5::digest(value.as_bytes());
                let mut last = [0; 8];
                last.copy_from_slice(&hash[8..]);
                (target.clone(), (u64::from_be_bytes(last) % modulus).to_string())
            }
            Effect::Case(convert, target) => (target.clone(), convert(&value)),
            Effect::LabelMap(..) | Effect::LabelDrop(_) | Effect::LabelKeep(_) => return Kept,
        };
        if result.len() > MAX_RELABELLED_BYTES {
            return OverLimit;
        }
        labels.set(&target, LabelValue::Text(result.into()));
        Kept
    }

    /// The values of the source labels; none if one of them differs from VM to VM.
    fn joined(&self, labels: &WorkingLabels) -> Option<String> {
        let mut joined = String::new();
        for (index, name) in self.source_labels.iter().enumerate() {
            if index > 0 {
                joined.push_str(&self.separator);
            }
            match labels.get(name) {
                Some(LabelValue::Text(text)) => joined.push_str(text),
                Some(LabelValue::Target(_)) => return None,
                None => {}
            }
        }
        Some(joined)
    }
}

/// The target label of a rule that only copies the value of one label. It has the same outcome for
/// all VMs even if that label differs from VM to VM.
fn copies_to(rule: &RelabelRule) -> Option<String> {
    let regex = rule.regex.as_deref().unwrap_or(DEFAULT_REGEX);
    let replacement = rule.replacement.as_deref().unwrap_or(DEFAULT_REPLACEMENT);
    let target = rule.target_label.as_ref()?;
    let is_copy = rule.action == RelabelAction::Replace
        && rule.source_labels.len() == 1
        && matches!(regex, "(.*)" | "(.+)")
        && matches!(replacement, "$1" | "${1}")
        && is_label_name(target);
    is_copy.then(|| target.clone())
}

fn label_map(regex: &Regex, replacement: &Template, labels: &mut WorkingLabels) -> RelabelVerdict {
    let mut mapped = Vec::new();
    for (name, value) in labels.iter() {
        if let Some(captures) = regex.captures(name) {
            let Some(name) = replacement.expand(&captures, MAX_RELABELLED_BYTES) else {
                return RelabelVerdict::OverLimit;
            };
            mapped.push((name, value.clone()));
        }
    }
    for (name, value) in mapped {
        if is_label_name(&name) {
            labels.set(&name, value);
        }
    }
    RelabelVerdict::Kept
}

/// Checks everything but the pattern, as Prometheus does.
fn check(rule: &RelabelRule) -> Result<(), String> {
    use RelabelAction as Action;
    let action = rule.action.as_str();
    if rule.source_labels.len() > MAX_SOURCE_LABELS {
        return Err(format!("more than {MAX_SOURCE_LABELS} sourceLabels"));
    }
    if let Some(bad) = rule.source_labels.iter().find(|name| !is_label_name(name)) {
        return Err(format!("{bad:?} is no valid label name in sourceLabels"));
    }
    let texts = [&rule.separator, &rule.target_label, &rule.replacement];
    let is_long = |text: &String| text.len() > MAX_RULE_TEXT_BYTES;
    if texts
        .into_iter()
        .flatten()
        .chain(&rule.source_labels)
        .any(is_long)
    {
        return Err(format!("a text of more than {MAX_RULE_TEXT_BYTES} bytes"));
    }
    let differs = |given: &Option<String>, default| given.as_ref().is_some_and(|text| text != default);
    let has_replacement = differs(&rule.replacement, DEFAULT_REPLACEMENT);
    let has_modulus = rule.modulus.is_some_and(|modulus| modulus != 0);
    let target = rule.target_label.as_deref().unwrap_or_default();
    match rule.action {
        Action::Keep | Action::Drop => {}
        Action::LabelMap => {
            let replacement = rule.replacement.as_deref().unwrap_or(DEFAULT_REPLACEMENT);
            if !is_name_template(replacement) {
                return Err(format!("{replacement:?} is no valid replacement for {action}"));
            }
        }
        Action::LabelDrop | Action::LabelKeep => {
            let others = !rule.source_labels.is_empty()
                || !target.is_empty()
                || has_modulus
                || differs(&rule.separator, DEFAULT_SEPARATOR)
                || has_replacement;
            if others {
                return Err(format!("{action} takes regex only"));
            }
        }
        _ if target.is_empty() => return Err(format!("{action} requires targetLabel")),
        Action::Replace if target.contains('$') && is_name_template(target) => {}
        _ if !is_label_name(target) => {
            return Err(format!("{target:?} is no valid targetLabel for {action}"));
        }
        Action::Replace => {}
        Action::HashMod if !has_modulus => return Err("hashmod requires a modulus above 0".to_owned()),
        Action::HashMod => {}
        _ if has_replacement => return Err(format!("{action} takes no replacement")),
        Action::KeepEqual | Action::DropEqual => {
            let others = differs(&rule.regex, DEFAULT_REGEX)
                || has_modulus
                || differs(&rule.separator, DEFAULT_SEPARATOR);
            if others {
                return Err(format!("{action} takes sourceLabels and targetLabel only"));
            }
        }
        Action::Lowercase | Action::Uppercase => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
