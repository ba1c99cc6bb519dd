//! Loading of the settings files.

use virtfleet_wire::{
    layered::{Expect, Fragment, Loaded, load},
    settings::CONFIG_API_VERSION,
};

use super::{COLLECTOR_CONFIG_KIND, CollectorConfig, check};

impl CollectorConfig {
    /// Loads settings files, lowest precedence first, and validates them. Each problem has file and
    /// line; without problems all keys were applied.
    pub fn load(fragments: &[Fragment]) -> Loaded<Self> {
        let expect = Expect {
            api_version: CONFIG_API_VERSION,
            kind: COLLECTOR_CONFIG_KIND,
        };
        let mut loaded = load::<Self>(fragments, expect, &[]);
        loaded
            .problems
            .extend(check::check(&loaded.value, &loaded.origins));
        loaded
    }
}
