//! A parsed metrics page, for comparison.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context as _, Result};
use virtfleet_wire::exposition::{Line, MetricType, parse_line};

/// A series: the sample's name and its labels by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The sample's name; for a histogram it is the family's name with a suffix.
    pub name: String,
    /// Sorted by name.
    pub labels: Vec<(String, String)>,
}

impl Key {
    /// The key without the labels `names`.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        let labels = self
            .labels
            .iter()
            .filter(|(label, _)| !names.contains(&label.as_str()));
        Self {
            name: self.name.clone(),
            labels: labels.cloned().collect(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.labels.is_empty() {
            return Ok(());
        }
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        write!(f, "{{{}}}", labels.join(","))
    }
}

/// A family.
#[derive(Debug, Clone)]
pub struct Family {
    /// Its type.
    pub kind: MetricType,
    /// Its samples.
    pub series: BTreeMap<Key, f64>,
}

/// The families of a page by name.
#[derive(Debug, Clone, Default)]
pub struct Page(pub BTreeMap<String, Family>);

impl Page {
    /// Parses a page; each sample belongs to the `# TYPE` line before it.
    pub fn read(text: &str) -> Result<Self> {
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut current = String::new();
        for line in text.lines() {
            match parse_line(line).with_context(|| line.to_owned())? {
                Line::Type(name, kind) => {
                    name.clone_into(&mut current);
                    let series = BTreeMap::new();
                    families.insert(current.clone(), Family { kind, series });
                }
                Line::Sample(sample) => {
                    let mut labels = Vec::new();
                    for label in sample.labels {
                        let (name, value) = label.with_context(|| line.to_owned())?;
                        labels.push((name.to_owned(), value.into_owned()));
                    }
                    labels.sort();
                    let family = families
                        .get_mut(&current)
                        .filter(|_| sample.name.starts_with(&current))
                        .with_context(|| format!("outside its family: {line}"))?;
                    let name = sample.name.to_owned();
                    family.series.insert(Key { name, labels }, sample.value);
                }
                Line::Help(..) | Line::Blank | Line::Eof => {}
            }
        }
        Ok(Self(families))
    }

    /// The value of a series.
    pub fn value(&self, family: &str, key: &Key) -> Option<f64> {
        self.0.get(family)?.series.get(key).copied()
    }
}
