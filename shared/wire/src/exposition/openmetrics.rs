//! Brings a program's own metrics, as prometheus-client writes them (OpenMetrics 1.0), onto a page
//! of format 0.0.4.

use super::{Line, LineError, MetricType, Page, parse_line};

/// Appends an OpenMetrics text to `page`. The formats differ in this: OpenMetrics names a counter's
/// family without `_total` and an info's without `_info`, format 0.0.4 with it; OpenMetrics ends
/// with `# EOF`; and it says with `_created` when something began to be counted, for which format
/// 0.0.4 has no place: such lines are passed over.
///
/// Errors: the number (from 1) of the first line that cannot be read, or whose sample is not of the
/// family before it, and why; the page is then as it was.
pub fn append_openmetrics(page: &mut Page, text: &str) -> Result<(), (usize, LineError)> {
    let mark = page.mark();
    let mut state = State::default();
    for (index, line) in text.lines().enumerate() {
        if let Err(error) = state.line(page, line) {
            page.rollback(mark);
            return Err((index + 1, error));
        }
    }
    Ok(())
}

#[derive(Default)]
struct State {
    /// The family's name as OpenMetrics has it.
    base: String,
    /// The family's name as it goes onto the page.
    name: String,
    help: String,
    kind: Option<MetricType>,
    /// Whether `# TYPE` named it an OpenMetrics `info`.
    info: bool,
    started: bool,
}

impl State {
    fn line(&mut self, page: &mut Page, line: &str) -> Result<(), LineError> {
        match parse_line(line)? {
            Line::Blank | Line::Eof => {}
            Line::Help(name, text) => {
                self.enter(name);
                self.help = text.trim_end_matches('.').to_owned() + ".";
            }
            Line::Type(name, kind) => {
                self.enter(name);
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
                let counts = !matches!(kind, MetricType::Gauge | MetricType::Untyped);
                if counts && sample.name.strip_prefix(self.base.as_str()) == Some("_created") {
                    return Ok(());
                }
                let labels = sample.labels.clone().collect::<Result<Vec<_>, _>>()?;
                let labels: Vec<_> = labels
                    .iter()
                    .map(|(name, value)| (*name, value.as_ref()))
                    .collect();
                // No family was named, or another one: there is nothing that the sample could stand
                // under.
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

    fn enter(&mut self, name: &str) {
        if self.base != name || self.started {
            *self = Self {
                base: name.to_owned(),
                ..Self::default()
            };
        }
    }
}

/// What may follow a family's name in its samples.
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
    fn counters_infos_and_histograms_take_their_0_0_4_names() {
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
    fn a_bad_line_is_named_and_leaves_the_page_as_it_was() {
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
    fn when_something_began_to_be_counted_is_passed_over() {
        let text = "# TYPE a counter\na_created 1.5e9\na_total 2\n# TYPE b summary\nb{quantile=\"0.5\"} 1\nb_sum 3\n\
                    b_count 4\nb_created 1.5e9\n";
        let mut page = Page::new();
        append_openmetrics(&mut page, text).unwrap();
        let said = page.to_text();
        let samples: Vec<_> = said.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            ["a_total 2", "b{quantile=\"0.5\"} 1", "b_sum 3", "b_count 4"]
        );
    }

    #[test]
    fn a_sample_of_no_family_or_of_another_is_refused() {
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
