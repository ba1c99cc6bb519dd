//! The labels of one series while rules change them.

use std::sync::Arc;

/// A label's value while rules are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelValue {
    Text(Arc<str>),
    /// The value of the target's label with this index, which differs from VM to VM. Rules that
    /// only move or remove it have the same outcome for all VMs.
    Target(u8),
}

/// Labels of a series. Order as in Prometheus' label builder: labels that the series had from the
/// beginning by name, then added and changed ones by the time of the change. Only `labelmap`
/// depends on it, when it gives two labels the same name.
#[derive(Debug, Clone, Default)]
pub struct WorkingLabels {
    labels: Vec<(Arc<str>, LabelValue)>,
    /// The number of labels at the beginning of `labels` that no rule has changed.
    unchanged: usize,
}

impl WorkingLabels {
    /// The labels of a series, with unique names; empty values are removed.
    pub fn new(mut labels: Vec<(Arc<str>, LabelValue)>) -> Self {
        labels.retain(|(_, value)| *value != LabelValue::Text("".into()));
        labels.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let unchanged = labels.len();
        Self { labels, unchanged }
    }

    /// The labels, sorted by name.
    pub fn into_sorted(mut self) -> Vec<(Arc<str>, LabelValue)> {
        self.labels.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        self.labels
    }

    pub fn get(&self, name: &str) -> Option<&LabelValue> {
        self.labels
            .iter()
            .find(|(known, _)| &**known == name)
            .map(|(_, value)| value)
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Sets a label; an empty value removes it.
    pub(super) fn set(&mut self, name: &str, value: LabelValue) {
        if value == LabelValue::Text("".into()) {
            return self.remove(name);
        }
        let changed = self.labels[self.unchanged..]
            .iter_mut()
            .find(|(known, _)| &**known == name);
        if let Some((_, known)) = changed {
            *known = value;
            return;
        }
        self.remove(name);
        self.labels.push((name.into(), value));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.retain(|known| known != name);
    }

    /// Keeps the labels whose name is accepted.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        let before = self.unchanged;
        let mut index = 0;
        self.labels.retain(|(name, _)| {
            let kept = keep(name);
            if !kept && index < before {
                self.unchanged -= 1;
            }
            index += 1;
            kept
        });
    }

    /// All labels, in the order of the builder.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &LabelValue)> {
        self.labels.iter().map(|(name, value)| (&**name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> LabelValue {
        LabelValue::Text(value.into())
    }

    #[test]
    fn changed_labels_follow_unchanged_ones() {
        let mut labels = WorkingLabels::new(vec![
            ("c".into(), text("3")),
            ("a".into(), text("1")),
            ("b".into(), LabelValue::Target(0)),
            ("e".into(), text("")),
        ]);
        labels.set("d", text("4"));
        labels.set("a", text("5"));
        labels.set("d", text("6"));
        labels.remove("b");
        labels.set("c", text(""));
        let order: Vec<_> = labels.iter().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(order, ["d", "a"]);
        assert_eq!(labels.get("d"), Some(&text("6")));
        let sorted = labels.into_sorted();
        assert_eq!(sorted[0], ("a".into(), text("5")));
    }
}
