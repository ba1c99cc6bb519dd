//! Maximum number of series of one collector.

use virtfleet_wire::settings::MetricsSettings;

/// Default maximum number of series per collector.
pub(super) const MAX_SERIES: usize = 10_000;

/// Maximum number of series of a collector.
pub(super) fn limit(settings: &MetricsSettings, name: &str) -> usize {
    let set = settings.max_series_of.get(name).copied();
    set.or(settings.max_series)
        .map_or(MAX_SERIES, |limit| limit as usize)
}
