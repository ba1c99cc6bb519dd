//! The registry rejects exactly the settings that the settings check rejects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use virtfleet_agent_host::Roots;
use virtfleet_wire::{
    layered::Origins,
    settings::{AgentConfig, MetricsSettings},
};

use super::{COLLECTORS, Registry};

/// `metrics` settings with one invalid value, for every value that is a text or a list.
fn with_one_invalid_value() -> Vec<MetricsSettings> {
    let defaults = serde_json::to_value(MetricsSettings::default()).unwrap();
    let mut all = Vec::new();
    for (section, values) in defaults.as_object().unwrap() {
        for key in values.as_object().into_iter().flatten().map(|(key, _)| key) {
            for wrong in ["(", "[a", "0s", "a,b", "../x", "kernel.pid_max:"] {
                for value in [Value::from(wrong), Value::from(vec![wrong, wrong])] {
                    let mut settings = defaults.clone();
                    settings[section][key] = value;
                    all.extend(serde_json::from_value::<MetricsSettings>(settings));
                }
            }
        }
    }
    all
}

/// The settings check without collectors and the constructors of collectors must agree.
#[test]
fn the_registry_rejects_exactly_what_the_check_rejects() {
    let names: BTreeSet<_> = COLLECTORS.iter().map(|entry| entry.name).collect();
    let known: Vec<_> = names.into_iter().collect();
    assert_eq!(virtfleet_agent_core::settings::COLLECTOR_NAMES, known);
    let all = with_one_invalid_value();
    let mut refused = BTreeSet::new();
    for settings in all {
        let built = Registry::new(&Roots::default(), &settings, &BTreeMap::new()).err();
        let mut config = AgentConfig {
            metrics: settings.clone(),
            ..AgentConfig::default()
        };
        let problems = virtfleet_agent_core::settings::check(&mut config, &Origins::default());
        let found = problems
            .into_iter()
            .find(|problem| problem.path.starts_with("metrics."));
        let found = found.map(|problem| (problem.path, problem.message));
        let built = built.map(|error| (error.key(), error.message()));
        assert_eq!(found, built, "{settings:?}");
        refused.extend(built.map(|(key, _)| key));
    }
    assert!(refused.len() > 20, "{refused:?}");
}
