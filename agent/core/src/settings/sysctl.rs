//! Sysctls in the settings.

use std::collections::HashSet;

use virtfleet_wire::{exposition::is_metric_name, settings::SysctlSettings};

use super::RegistryError;

const INCLUDE: &str = "metrics.sysctl.include";
const INCLUDE_INFO: &str = "metrics.sysctl.includeInfo";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// Name in the settings, e.g. `kernel.pid_max`.
    pub name: String,
    /// Path below `/proc/sys`.
    pub path: String,
    /// Metric names: `node_sysctl_…`, or one name per value.
    pub families: Vec<String>,
    /// Whether the values have names.
    pub named: bool,
}

/// Parses the sysctls that are exported as numbers.
///
/// # Errors
///
/// A name is invalid or occurs twice.
pub fn numbers(settings: &SysctlSettings) -> Result<Vec<Sysctl>, RegistryError> {
    let mut families = HashSet::new();
    let mut numbers = Vec::new();
    for include in &settings.include {
        let sysctl = parse(INCLUDE, include)?;
        let all_new = sysctl
            .families
            .iter()
            .all(|family| families.insert(family.clone()));
        if !all_new {
            return Err(wrong(INCLUDE, "a sysctl, or the name of a value, occurs twice"));
        }
        numbers.push(sysctl);
    }
    Ok(numbers)
}

/// Parses the sysctls that are exported as text.
///
/// # Errors
///
/// A name is invalid, or has names of values.
pub fn infos(settings: &SysctlSettings) -> Result<Vec<Sysctl>, RegistryError> {
    let mut infos: Vec<Sysctl> = Vec::new();
    for include in &settings.include_info {
        let sysctl = parse(INCLUDE_INFO, include)?;
        if sysctl.named {
            return Err(wrong(INCLUDE_INFO, "only numeric values can have names"));
        }
        if infos.iter().all(|other| other.name != sysctl.name) {
            infos.push(sysctl);
        }
    }
    Ok(infos)
}

fn wrong(key: &'static str, reason: &'static str) -> RegistryError {
    RegistryError::Value { key, reason }
}

/// Parses `kernel.pid_max`, or `net.ipv4.tcp_rmem:min,default,max` with a name for each value.
fn parse(key: &'static str, include: &str) -> Result<Sysctl, RegistryError> {
    let (name, keys) = match include.split_once(':') {
        Some((name, keys)) => (name, Some(keys)),
        None => (include, None),
    };
    // Dots are replaced by slashes, so no name leads out of /proc/sys.
    let path = name.replace('.', "/");
    if name.is_empty() || name.contains('\0') || path.starts_with('/') {
        return Err(wrong(key, "must be the name of a sysctl such as kernel.pid_max"));
    }
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == ':' || c == '_' {
            c
        } else {
            '_'
        }
    };
    let family: String = "node_sysctl_".chars().chain(name.chars().map(plain)).collect();
    let families: Vec<_> = match keys {
        Some(keys) => keys.split(',').map(|key| format!("{family}_{key}")).collect(),
        None => vec![family],
    };
    if !families.iter().all(|family| is_metric_name(family)) {
        return Err(wrong(
            key,
            "names of values must consist of letters, digits and underscores",
        ));
    }
    Ok(Sysctl {
        name: name.to_owned(),
        path,
        families,
        named: keys.is_some(),
    })
}
