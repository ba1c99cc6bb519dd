//! Names of metric families.

use crate::message::MessageMetricType;

/// The name of the family of a series of this name and type, which metadata of 1.0 is keyed by.
pub(crate) fn family(name: &str, kind: MessageMetricType) -> &str {
    let suffixes: &[&str] = match kind {
        MessageMetricType::Histogram => &["_bucket", "_count", "_sum"],
        MessageMetricType::GaugeHistogram => &["_bucket", "_gcount", "_gsum"],
        MessageMetricType::Summary => &["_count", "_sum"],
        MessageMetricType::Info
        | MessageMetricType::StateSet
        | MessageMetricType::Counter
        | MessageMetricType::Gauge
        | MessageMetricType::Unspecified => &[],
    };
    suffixes
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix).filter(|family| !family.is_empty()))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_family_have_one_name() {
        for (name, kind, expected) in [
            ("t_bucket", MessageMetricType::Histogram, "t"),
            ("t_sum", MessageMetricType::Histogram, "t"),
            ("t_count", MessageMetricType::Histogram, "t"),
            ("t_gsum", MessageMetricType::GaugeHistogram, "t"),
            ("t", MessageMetricType::Summary, "t"),
            ("t_count", MessageMetricType::Summary, "t"),
            ("t_bucket", MessageMetricType::Summary, "t_bucket"),
            ("t_total", MessageMetricType::Counter, "t_total"),
            ("t_sum", MessageMetricType::Gauge, "t_sum"),
            ("_sum", MessageMetricType::Histogram, "_sum"),
        ] {
            assert_eq!(family(name, kind), expected, "{name} {kind:?}");
        }
    }
}
