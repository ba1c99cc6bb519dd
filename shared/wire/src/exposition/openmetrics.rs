//! Converts a program's own metrics from OpenMetrics 1.0, which prometheus-client writes, to the
//! text format 0.0.4.

use super::{Line, LineError, MetricType, Page, parse_line};

/// Appends an OpenMetrics text to `page`. The formats differ as follows:
/// - In OpenMetrics the name of a counter's family has no suffix `_total`, and that of an info no
///   suffix `_info`. In format 0.0.4 it has.
/// - In OpenMetrics the sample `_created` has the time at which a counter, histogram or summary was
///   created. Format 0.0.4 has no such sample, so it is skipped.
/// - OpenMetrics ends with `# EOF`.
///
/// # Errors
/// The number (from 1) of the first line that is malformed, or whose sample does not belong to the
/// family declared before it, and the reason. The page is then unchanged.
pub fn append_openmetrics(page: &mut Page, text: &str) -> Result<(), (usize, LineError)> {
    let mark = page.mark();
    let mut converter = Converter::default();
    for (index, line) in text.lines().enumerate() {
        if let Err(error) = converter.line(page, line) {
            page.rollback(mark);
            return Err((index + 1, error));
        }
    }
    Ok(())
}

/// Converts line by line. The fields describe the current family.
#[derive(Default)]
struct Converter {
    /// Name of the family in OpenMetrics. Empty before the first family.
    base: String,
    /// Name of the family on the page. Set with its first sample.
    name: String,
    help: String,
    /// `None` if there was no `# TYPE` line.
    kind: Option<MetricType>,
    /// True if its type is OpenMetrics' `info`.
    info: bool,
    /// True if the page has a sample of the family.
    started: bool,
}

impl Converter {
    fn line(&mut self, page: &mut Page, line: &str) -> Result<(), LineError> {
        match parse_line(line)? {
            Line::Blank | Line::Eof => {}
            Line::Help(name, text) => {
                self.start_family(name);
                // prometheus-client appends a full stop to every text.
                self.help = text.trim_end_matches('.').to_owned() + ".";
            }
            Line::Type(name, kind) => {
                self.start_family(name);
                self.kind = Some(kind);
                self.info = line.trim_end().ends_with(" info");
            }
            Line::Sample(sample) => {
                let kind = self.kind.unwrap_or(MetricType::Untyped);
                if !self.started {
                    self.name = match kind {
                        MetricType::Counter => format!("{}_total", self.base),
                        _ if self.info => format!("{}_info", self.base),
                        _ => self.base.clone(),
                    };
                }
                let may_have_created = !matches!(kind, MetricType::Gauge | MetricType::Untyped);
                if may_have_created && sample.name.strip_prefix(self.base.as_str()) == Some("_created") {
                    return Ok(());
                }
                let labels = sample.labels.clone().collect::<Result<Vec<_>, _>>()?;
                let labels: Vec<_> = labels
                    .iter()
                    .map(|(name, value)| (*name, value.as_ref()))
                    .collect();
                // Fails if no `# HELP` or `# TYPE` line precedes the sample, or if the line names
                // another family.
                let suffix = Some(sample.name)
                    .filter(|_| !self.base.is_empty())
                    .and_then(|name| name.strip_prefix(self.name.as_str()))
                    .filter(|suffix| suffixes(kind).contains(suffix))
                    .ok_or_else(|| LineError::Name(sample.name.chars().take(40).collect()))?;
                let mut family = page.family(&self.name, &self.help, kind);
                if self.started {
                    family = family.continued();
                }
                family.suffixed(suffix, &labels, sample.value);
                self.started = true;
            }
        }
        Ok(())
    }

    /// Starts a family, unless `name` is the current one and has no samples yet.
    fn start_family(&mut self, name: &str) {
        if self.base != name || self.started {
            *self = Self {
                base: name.to_owned(),
                ..Self::default()
            };
        }
    }
}

/// Suffixes that the samples of a family append to its name on the page.
fn suffixes(kind: MetricType) -> &'static [&'static str] {
    match kind {
        MetricType::Counter | MetricType::Gauge | MetricType::Untyped => &[""],
        MetricType::Histogram => &["_bucket", "_sum", "_count"],
        MetricType::Summary => &["", "_sum", "_count"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_infos_and_histograms_get_their_names_of_format_0_0_4() {
        let text = "# HELP requests Requests served.\n# TYPE requests counter\nrequests_total{code=\"200\"} 3\n\
                    requests_total{code=\"500\"} 1\n# HELP build Build.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
                    # HELP took_seconds Time.\n# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
                    took_seconds_sum 1.5\ntook_seconds_count 2\ntook_seconds_bucket{le=\"+Inf\"} 2\n# EOF\n";
        let mut page = Page::new();
        append_openmetrics(&mut page, text).unwrap();
        assert_eq!(
            page.to_text(),
            "# HELP requests_total Requests served.\n# TYPE requests_total counter\n\
             requests_total{code=\"200\"} 3\nrequests_total{code=\"500\"} 1\n\
             # HELP build_info Build.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
             # HELP took_seconds Time.\n# TYPE took_seconds histogram\n\
             took_seconds_sum 1.5\ntook_seconds_count 2\ntook_seconds_bucket{le=\"+Inf\"} 2\n"
        );
    }

    #[test]
    fn an_invalid_line_is_reported_by_number_and_the_page_is_unchanged() {
        let mut page = Page::new();
        page.gauge("a", "A.", 1.0);
        let before = page.to_text();
        assert_eq!(
            append_openmetrics(&mut page, "# TYPE b gauge\nb 1\nb x\n")
                .unwrap_err()
                .0,
            3
        );
        assert_eq!(page.to_text(), before);
    }

    #[test]
    fn created_samples_are_skipped() {
        let text = "# TYPE a counter\na_created 1.5e9\na_total 2\n# TYPE b summary\nb{quantile=\"0.5\"} 1\nb_sum 3\n\
                    b_count 4\nb_created 1.5e9\n";
        let mut page = Page::new();
        append_openmetrics(&mut page, text).unwrap();
        let output = page.to_text();
        let samples: Vec<_> = output.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            ["a_total 2", "b{quantile=\"0.5\"} 1", "b_sum 3", "b_count 4"]
        );
    }

    #[test]
    fn a_sample_that_does_not_belong_to_the_declared_family_is_rejected() {
        for text in [
            "a 1\n",
            "# TYPE a gauge\nb 1\n",
            "# TYPE a gauge\nabc 1\n",
            "# TYPE a gauge\na_sum 1\n",
            "# TYPE a gauge\na_created 1\n",
            "# TYPE a counter\na 1\n",
            "# TYPE a counter\na_total_created 1\n",
            "# TYPE a histogram\na 1\n",
            "# TYPE a summary\na_bucket 1\n",
            "a_created 1\n",
        ] {
            let mut page = Page::new();
            assert!(append_openmetrics(&mut page, text).is_err(), "{text:?}");
            assert_eq!(page.to_text(), "", "{text:?}");
        }
    }
}
