//! The sysctls that the settings name.

use std::collections::HashSet;

use virtfleet_wire::{exposition::is_metric_name, settings::SysctlSettings};

use super::RegistryError;

const INCLUDE: &str = "metrics.sysctl.include";
const INCLUDE_INFO: &str = "metrics.sysctl.includeInfo";

/// A sysctl that is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// Its name as the settings have it, e.g. `kernel.pid_max`.
    pub name: String,
    /// Its path below `/proc/sys`.
    pub path: String,
    /// `node_sysctl_…`, or one name for each value.
    pub families: Vec<String>,
    /// Whether each value has a name.
    pub named: bool,
}

/// Sysctls that are exported as numbers.
///
/// # Errors
/// What is named is no sysctl, or comes twice.
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
            return Err(wrong(INCLUDE, "a sysctl, or the name of a value, comes twice"));
        }
        numbers.push(sysctl);
    }
    Ok(numbers)
}

/// Sysctls that are exported as texts.
///
/// # Errors
/// What is named is no sysctl, or names values.
pub fn infos(settings: &SysctlSettings) -> Result<Vec<Sysctl>, RegistryError> {
    let mut infos: Vec<Sysctl> = Vec::new();
    for include in &settings.include_info {
        let sysctl = parse(INCLUDE_INFO, include)?;
        if sysctl.named {
            return Err(wrong(INCLUDE_INFO, "only the values of numbers can be named"));
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

/// `kernel.pid_max`, or `net.ipv4.tcp_rmem:min,default,max` with a name for each value.
fn parse(key: &'static str, include: &str) -> Result<Sysctl, RegistryError> {
    let (name, keys) = match include.split_once(':') {
        Some((name, keys)) => (name, Some(keys)),
        None => (include, None),
    };
    // With dots for slashes no name leads out of /proc/sys.
    let path = name.replace('.', "/");
    if name.is_empty() || name.contains('\0') || path.starts_with('/') {
        return Err(wrong(key, "a sysctl is named as in kernel.pid_max"));
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
            "the names of values are letters, digits and underscores",
        ));
    }
    Ok(Sysctl {
        name: name.to_owned(),
        path,
        families,
        named: keys.is_some(),
    })
}
