//! Text files with metrics of other programs, in format 0.0.4. A file with any error is rejected as
//! a whole.
//!
//! The rules are those of Prometheus' parser (`expfmt`), so that files that work with node_exporter
//! work here, too: the last line ends with a line feed; a family has at most one `# HELP` and one
//! `# TYPE`, which precede its samples. Time stamps are rejected, as in node_exporter.

use std::collections::{BTreeMap, HashSet};

use virtfleet_wire::exposition::{Line, LineError, MetricType, Sample, parse_line};

/// Metric family in one file.
#[derive(Debug, Clone, PartialEq)]
pub struct TextFamily {
    /// Text of `# HELP`, if there is one.
    pub help: Option<String>,
    /// Type from `# TYPE`; untyped if missing.
    pub kind: MetricType,
    /// Samples in the order of the file.
    pub samples: Vec<TextSample>,
    typed: bool,
    helped: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TextSample {
    /// Suffix after the family's name: `_bucket`, `_sum`, `_count` or empty.
    pub suffix: &'static str,
    /// Names and values of the labels.
    pub labels: Vec<(String, String)>,
    pub value: f64,
    /// Identity of the series: equal for two samples of a family in the same series. Empty labels
    /// and the order of labels are ignored.
    pub series: String,
}

/// Reason why a file is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextfileError {
    /// The last line is incomplete, as in a file that is being written.
    #[error("the last line does not end with a line feed")]
    CutOff,
    #[error("line {line}: {reason}")]
    Line {
        /// Line number from 1.
        line: usize,
        reason: LineReason,
    },
    #[error("more than {MAX_SAMPLES} samples")]
    TooMany,
}

/// Reason why a line is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineReason {
    #[error(transparent)]
    Unreadable(#[from] LineError),
    /// The metric has a time stamp, so its value would appear as one of the past.
    #[error("a time stamp; Prometheus would store the value as one of the past")]
    Timestamp,
    #[error("a second # HELP of the metric")]
    Help,
    #[error("a second # TYPE of the metric, or one after its samples")]
    Type,
    #[error("a duplicate label, or __name__")]
    Label,
    /// A histogram or summary sample without suffix or without its bound.
    #[error("not a part of a histogram or summary")]
    Part,
    #[error("the series occurs twice")]
    Twice,
}

/// Maximum number of samples in one file. A short line takes thirty times its size in memory.
pub const MAX_SAMPLES: usize = 20_000;

/// Parses the families of a file, by name.
///
/// # Errors
///
/// The file violates the format, or has too many samples.
pub fn families(text: &str) -> Result<BTreeMap<String, TextFamily>, TextfileError> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(TextfileError::CutOff);
    }
    let mut families = BTreeMap::new();
    let mut seen = HashSet::new();
    for (index, line) in text.lines().enumerate() {
        take(&mut families, &mut seen, line).map_err(|reason| TextfileError::Line {
            line: index + 1,
            reason,
        })?;
        if seen.len() > MAX_SAMPLES {
            return Err(TextfileError::TooMany);
        }
    }
    families.retain(|_, family: &mut TextFamily| !family.samples.is_empty());
    Ok(families)
}

fn take(
    families: &mut BTreeMap<String, TextFamily>,
    seen: &mut HashSet<(String, String)>,
    line: &str,
) -> Result<(), LineReason> {
    match parse_line(line)? {
        Line::Blank | Line::Eof => {}
        Line::Help(name, text) => {
            let family = family(families, name);
            if family.helped {
                return Err(LineReason::Help);
            }
            family.helped = true;
            family.help = Some(text.into_owned()).filter(|text| !text.is_empty());
        }
        Line::Type(name, kind) => {
            let family = family(families, name);
            if family.typed || !family.samples.is_empty() {
                return Err(LineReason::Type);
            }
            family.typed = true;
            family.kind = kind;
        }
        Line::Sample(sample) => {
            if sample.timestamp_ms.is_some() {
                return Err(LineReason::Timestamp);
            }
            let (name, suffix) = owner(families, sample.name);
            let name = name.to_owned();
            let family = family(families, &name);
            let taken = read(&sample, suffix, family.kind)?;
            if !seen.insert((name, taken.series.clone())) {
                return Err(LineReason::Twice);
            }
            family.samples.push(taken);
        }
    }
    Ok(())
}

fn family<'all>(families: &'all mut BTreeMap<String, TextFamily>, name: &str) -> &'all mut TextFamily {
    families.entry(name.to_owned()).or_insert_with(|| TextFamily {
        help: None,
        kind: MetricType::Untyped,
        samples: Vec::new(),
        typed: false,
        helped: false,
    })
}

/// Returns the family of a sample, and the sample's suffix.
fn owner<'name>(families: &BTreeMap<String, TextFamily>, name: &'name str) -> (&'name str, &'static str) {
    for suffix in ["_bucket", "_sum", "_count"] {
        let base = name.strip_suffix(suffix);
        let kind = base.and_then(|base| families.get(base)).map(|family| family.kind);
        match (base, kind) {
            (Some(base), Some(MetricType::Histogram)) => return (base, suffix),
            (Some(base), Some(MetricType::Summary)) if suffix != "_bucket" => return (base, suffix),
            _ => {}
        }
    }
    (name, "")
}

fn read(sample: &Sample<'_>, suffix: &'static str, kind: MetricType) -> Result<TextSample, LineReason> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for label in sample.labels.clone() {
        let (name, value) = label?;
        if name == "__name__" || labels.iter().any(|(other, _)| other == name) {
            return Err(LineReason::Label);
        }
        labels.push((name.to_owned(), value.into_owned()));
    }
    let bound = match (kind, suffix) {
        (MetricType::Histogram, "_bucket") => Some("le"),
        (MetricType::Summary, "") => Some("quantile"),
        (MetricType::Histogram, "") => return Err(LineReason::Part),
        _ => None,
    };
    if let Some(bound) = bound
        && !labels
            .iter()
            .any(|(name, value)| name == bound && value.parse::<f64>().is_ok())
    {
        return Err(LineReason::Part);
    }
    Ok(TextSample {
        suffix,
        series: series(suffix, &labels),
        labels,
        value: sample.value,
    })
}

fn series(suffix: &str, labels: &[(String, String)]) -> String {
    let mut sorted: Vec<_> = labels.iter().filter(|(_, value)| !value.is_empty()).collect();
    sorted.sort_unstable();
    let mut key = suffix.to_owned();
    for (name, value) in sorted {
        // A name contains no NUL. A value may, so its length is included.
        let length = value.len().to_string();
        key.extend(["\0", name, "\0", &length, "\0", value]);
    }
    key
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = "# HELP job_ok Whether it went well.\n# TYPE job_ok gauge\njob_ok{job=\"a\"} 1\nfree 2.5\n\
                          job_ok{job=\"b\",x=\"\"} 0\n# TYPE took histogram\ntook_bucket{le=\"1\"} 1\n\
                          took_bucket{le=\"+Inf\"} 2\ntook_sum 3\ntook_count 2\n# TYPE rest summary\n\
                          rest{quantile=\"0.5\"} 1\nrest_sum 1\nrest_count 1\nrest_bucket 4\n";

    #[test]
    fn families_of_a_file_are_parsed() {
        let all = families(SAMPLE).unwrap();
        let names: Vec<_> = all.keys().map(String::as_str).collect();
        assert_eq!(names, ["free", "job_ok", "rest", "rest_bucket", "took"]);
        assert_eq!(all["job_ok"].samples.len(), 2, "they need not be adjacent");
        assert_eq!(all["job_ok"].help.as_deref(), Some("Whether it went well."));
        assert_eq!(all["free"].kind, MetricType::Untyped);
        let suffixes: Vec<_> = all["took"].samples.iter().map(|sample| sample.suffix).collect();
        assert_eq!(suffixes, ["_bucket", "_bucket", "_sum", "_count"]);
        assert!(families("").unwrap().is_empty());
        assert!(
            families("# TYPE a counter\n").unwrap().is_empty(),
            "no sample, no family"
        );
    }

    #[test]
    fn malformed_files_are_rejected() {
        for (text, message) in [
            ("a 1", "the last line does not end with a line feed"),
            ("a 1\nb\n", "line 2: bad value \"\""),
            (
                "a 1 1395066363000\n",
                "line 1: a time stamp; Prometheus would store the value as one of the past",
            ),
            (
                "# HELP a b\n# HELP a b\n",
                "line 2: a second # HELP of the metric",
            ),
            (
                "a 1\n# TYPE a gauge\n",
                "line 2: a second # TYPE of the metric, or one after its samples",
            ),
            ("a{b=\"1\",b=\"2\"} 1\n", "line 1: a duplicate label, or __name__"),
            (
                "a{b=\"1\",c=\"\"} 1\na{b=\"1\"} 2\n",
                "line 2: the series occurs twice",
            ),
            (
                "# TYPE a histogram\na_bucket 1\n",
                "line 2: not a part of a histogram or summary",
            ),
            (
                "# TYPE a histogram\na 1\n",
                "line 2: not a part of a histogram or summary",
            ),
        ] {
            assert_eq!(families(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn too_many_samples_are_rejected() {
        let text = |count: usize| {
            (0..count)
                .map(|n| format!("x{{n=\"{n}\"}} 1\n"))
                .collect::<Vec<_>>()
                .concat()
        };
        assert_eq!(
            families(&text(MAX_SAMPLES)).unwrap()["x"].samples.len(),
            MAX_SAMPLES
        );
        assert_eq!(families(&text(MAX_SAMPLES + 1)), Err(TextfileError::TooMany));
    }

    proptest! {
        #[test]
        fn no_input_panics(
            at in any::<prop::sample::Index>(),
            cut in 0..40_usize,
            noise in "[ -~\t\n\0é]{0,20}",
        ) {
            let at = at.index(SAMPLE.len() + 1);
            let rest = SAMPLE.get(at + cut..).unwrap_or_default();
            families(&format!("{}{noise}{rest}", &SAMPLE[..at])).ok();
        }
    }
}
