//! Dial rules with the service networks of a cluster.

use ipnet::IpNet;
use virtfleet_collector_core::dial::{DEFAULT_SERVICE, DialRules};

/// Dial rules with the service networks of the settings, else with the default ones.
pub(super) fn with_service(allow: Vec<IpNet>, service: Option<&[IpNet]>, port: u16) -> DialRules {
    match service {
        Some(service) => DialRules::new(allow, service.to_vec(), port),
        None => DialRules::new(allow, DEFAULT_SERVICE.to_vec(), port).with_default_service_networks(),
    }
}
