//! `sysctl`: the sysctls selected in the settings, from `/proc/sys`.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::settings::sysctl;
use virtfleet_agent_host::read_once;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum size of a sysctl in bytes.
const MAX_SYSCTL_BYTES: usize = 64 << 10;
/// Maximum number of exported values of one sysctl.
const MAX_VALUES: usize = 256;

struct Sysctls {
    numbers: Vec<Sysctl>,
    infos: Vec<Sysctl>,
    buffer: Vec<u8>,
}

struct Sysctl {
    /// Name as in the settings, e.g. `kernel.pid_max`.
    name: String,
    file: PathBuf,
    /// `node_sysctl_…`; one name for each value if the values are named.
    families: Vec<String>,
    /// Whether each value has its own name.
    named: bool,
}

impl Sysctl {
    fn new(root: &Path, named: sysctl::Sysctl) -> Self {
        Self {
            name: named.name,
            file: root.join(named.path),
            families: named.families,
            named: named.named,
        }
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.sysctl;
    let rooted = |sysctls: Vec<sysctl::Sysctl>| {
        let root = context.roots.proc("sys");
        let sysctls = sysctls.into_iter();
        sysctls.map(|named| Sysctl::new(&root, named)).collect()
    };
    let numbers = rooted(sysctl::numbers(settings)?);
    let infos = rooted(sysctl::infos(settings)?);
    Ok(Box::new(Sysctls {
        numbers,
        infos,
        buffer: Vec::new(),
    }))
}

impl Collector for Sysctls {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut skipped = Skipped::default();
        for sysctl in &self.numbers {
            let read = read_once(&sysctl.file, &mut self.buffer, MAX_SYSCTL_BYTES);
            if let Some(text) = skipped.take(read) {
                skipped.take(sysctl.write(&String::from_utf8_lossy(text), page));
            }
        }
        let mut family = page.family(
            "node_sysctl_info",
            "Text of a sysctl, always 1.",
            MetricType::Gauge,
        );
        for sysctl in &self.infos {
            let read = read_once(&sysctl.file, &mut self.buffer, MAX_SYSCTL_BYTES);
            let Some(text) = skipped.take(read) else { continue };
            let text = String::from_utf8_lossy(text);
            let mut words = text.split_ascii_whitespace().peekable();
            if words.peek().is_none() {
                let none = format!("sysctl {} has no value", sysctl.name);
                skipped.take::<()>(Err(CollectError::failed(none)));
            }
            for (index, word) in words.take(MAX_VALUES).enumerate() {
                let index = index.to_string();
                family.sample(&[("name", &sysctl.name), ("value", word), ("index", &index)], 1.0);
            }
        }
        skipped.end()
    }
}

impl Sysctl {
    fn write(&self, text: &str, page: &mut Page) -> Result<(), CollectError> {
        let name = &self.name;
        let mut values = Vec::new();
        for word in text.split_ascii_whitespace().take(MAX_VALUES) {
            let value: i64 = word.parse().map_err(|_| {
                let word: String = word.chars().take(40).collect();
                CollectError::failed(format!("sysctl {name}: {word:?} is not an integer"))
            })?;
            values.push(value as f64);
        }
        let untyped = MetricType::Untyped;
        match values.as_slice() {
            [] => Err(CollectError::failed(format!("sysctl {name} has no value"))),
            values if self.named && values.len() != self.families.len() => {
                Err(CollectError::failed(format!(
                    "sysctl {name} has {} values, but metrics.sysctl.include names {}",
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
