//! The labels of a series as its guest exports it.

use std::borrow::Cow;

use virtfleet_wire::exposition::Sample;

/// The labels of a series, sorted by name, with `__name__` and without empty values.
#[derive(Debug)]
pub(super) struct GuestLabels<'a> {
    pairs: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> GuestLabels<'a> {
    /// The labels of a sample.
    ///
    /// # Errors
    /// A label is there twice or is malformed.
    pub(super) fn of(sample: &Sample<'a>) -> Result<Self, String> {
        let mut pairs: Vec<(&str, Cow<'_, str>)> = vec![("__name__", sample.name.into())];
        for label in sample.labels.clone() {
            pairs.push(label.map_err(|error| error.to_string())?);
        }
        // An empty value is the same as no label.
        pairs.retain(|(_, value)| !value.is_empty());
        pairs.sort_unstable_by_key(|(name, _)| *name);
        if let Some(twice) = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("the label {:?} is there twice", twice[0].0));
        }
        Ok(Self { pairs })
    }

    /// Names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (*name, &**value))
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::exposition::{Line, parse_line};

    use super::*;

    #[test]
    fn labels_are_sorted_and_unique() {
        let labels = |line: &str| {
            let Ok(Line::Sample(sample)) = parse_line(line) else {
                panic!("{line:?}");
            };
            let labels = GuestLabels::of(&sample)?;
            let pairs = labels.iter().map(|(name, value)| format!("{name}={value}"));
            Ok::<_, String>(pairs.collect::<Vec<_>>())
        };
        assert_eq!(
            labels("a{c=\"1\",b=\"2\\n\",d=\"\"} 1").unwrap(),
            ["__name__=a", "b=2\n", "c=1"]
        );
        assert!(labels("a{b=\"1\",b=\"2\"} 1").unwrap_err().contains("twice"));
        assert!(labels("a{__name__=\"b\"} 1").unwrap_err().contains("twice"));
    }
}
