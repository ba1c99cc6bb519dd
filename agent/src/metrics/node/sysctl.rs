//! `sysctl`: the sysctls that the settings name, from `/proc/sys`.

use std::{collections::HashSet, path::PathBuf};

use virtfleet_wire::exposition::{MetricType, Page, is_metric_name};

use crate::host::slurp;
use crate::metrics::{CollectError, Collector, Context, RegistryError};

const INCLUDE: &str = "metrics.sysctl.include";
const INCLUDE_INFO: &str = "metrics.sysctl.includeInfo";
/// Far more than a sysctl holds.
const LIMIT: usize = 64 << 10;
/// Values of one sysctl that are exported at the most.
const VALUES: usize = 256;

struct Sysctls {
    numbers: Vec<Sysctl>,
    infos: Vec<Sysctl>,
    buffer: Vec<u8>,
}

struct Sysctl {
    /// As the settings name it, e.g. `kernel.pid_max`.
    name: String,
    file: PathBuf,
    /// `node_sysctl_…`, or one name for each value.
    families: Vec<String>,
    /// Whether each value has a name.
    named: bool,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.sysctl;
    let mut families = HashSet::new();
    let mut numbers = Vec::new();
    for include in &settings.include {
        let sysctl = sysctl(context, INCLUDE, include)?;
        if !sysctl
            .families
            .iter()
            .all(|family| families.insert(family.clone()))
        {
            return Err(wrong(INCLUDE, "a sysctl, or the name of a value, comes twice"));
        }
        numbers.push(sysctl);
    }
    let mut infos: Vec<Sysctl> = Vec::new();
    for include in &settings.include_info {
        let sysctl = sysctl(context, INCLUDE_INFO, include)?;
        if sysctl.named {
            return Err(wrong(INCLUDE_INFO, "only the values of numbers can be named"));
        }
        if infos.iter().all(|other| other.name != sysctl.name) {
            infos.push(sysctl);
        }
    }
    Ok(Box::new(Sysctls {
        numbers,
        infos,
        buffer: Vec::new(),
    }))
}

fn wrong(key: &'static str, reason: &'static str) -> RegistryError {
    RegistryError::Value { key, reason }
}

/// `kernel.pid_max`, or `net.ipv4.tcp_rmem:min,default,max` with a name for each value.
fn sysctl(context: &Context, key: &'static str, include: &str) -> Result<Sysctl, RegistryError> {
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
        file: context.roots.proc("sys").join(path),
        families,
        named: keys.is_some(),
    })
}

impl Collector for Sysctls {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        for sysctl in &self.numbers {
            let text = String::from_utf8_lossy(slurp(&sysctl.file, &mut self.buffer, LIMIT)?);
            sysctl.write(&text, page)?;
        }
        let mut family = page.family(
            "node_sysctl_info",
            "The text of a sysctl, always 1.",
            MetricType::Gauge,
        );
        for sysctl in &self.infos {
            let text = String::from_utf8_lossy(slurp(&sysctl.file, &mut self.buffer, LIMIT)?);
            let mut words = text.split_ascii_whitespace().peekable();
            if words.peek().is_none() {
                return Err(CollectError::failed(format!(
                    "sysctl {} has no value",
                    sysctl.name
                )));
            }
            for (index, word) in words.take(VALUES).enumerate() {
                let index = index.to_string();
                family.sample(&[("name", &sysctl.name), ("value", word), ("index", &index)], 1.0);
            }
        }
        Ok(())
    }
}

impl Sysctl {
    fn write(&self, text: &str, page: &mut Page) -> Result<(), CollectError> {
        let name = &self.name;
        let mut values = Vec::new();
        for word in text.split_ascii_whitespace().take(VALUES) {
            let value: i64 = word.parse().map_err(|_| {
                let word: String = word.chars().take(40).collect();
                CollectError::failed(format!("sysctl {name}: {word:?} is no whole number"))
            })?;
            values.push(value as f64);
        }
        let untyped = MetricType::Untyped;
        match values.as_slice() {
            [] => Err(CollectError::failed(format!("sysctl {name} has no value"))),
            values if self.named && values.len() != self.families.len() => {
                Err(CollectError::failed(format!(
                    "sysctl {name} has {} values, and {INCLUDE} names {}",
                    values.len(),
                    self.families.len()
                )))
            }
            values if self.named => {
                for (index, (family, value)) in self.families.iter().zip(values).enumerate() {
                    let help = format!("sysctl {name}, field {index}.");
                    page.family(family, &help, untyped).sample(&[], *value);
                }
                Ok(())
            }
            [value] => {
                let help = format!("sysctl {name}.");
                page.family(&self.families[0], &help, untyped).sample(&[], *value);
                Ok(())
            }
            values => {
                let help = format!("sysctl {name}.");
                let mut family = page.family(&self.families[0], &help, untyped);
                for (index, value) in values.iter().enumerate() {
                    family.sample(&[("index", &index.to_string())], *value);
                }
                Ok(())
            }
        }
    }
}
