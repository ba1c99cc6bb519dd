//! `rapl`: energy used by parts of the processor, from `/sys/class/powercap`. Only root can read
//! the counters.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    time::Instant,
};

use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{
    CollectError, Collector, Context, RegistryError, Skipped, attributes::number, metric_name::sanitized,
};

struct Rapl {
    directory: PathBuf,
    /// Each entry with its name, if it is a zone.
    zones: Devices<Option<String>>,
    /// True if all zones are in one family.
    zone_label: bool,
    families: Vec<Family>,
    buffer: Box<AttributeBuffer>,
}

/// The zones with the same name.
struct Family {
    name: String,
    help: String,
    rows: Vec<Row>,
}

struct Row {
    zone: String,
    index: String,
    path: String,
    energy: Attribute,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let directory = context.roots.sys("class/powercap");
    Ok(Box::new(Rapl {
        zones: Devices::new(&directory),
        zone_label: context.settings.rapl.zone_label,
        directory,
        families: Vec::new(),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Rapl {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let buffer = &mut self.buffer;
        let refreshed = self.zones.refresh_with(
            |_| true,
            |_, path| {
                // A control type has neither file; a zone has both.
                let range: Option<u64> = Attribute::new(path.join("max_energy_range_uj"))
                    .number(buffer)
                    .ok()
                    .flatten();
                range?;
                let mut name = Attribute::new(path.join("name"));
                Some(name.read(buffer).ok()?.into_owned())
            },
            Option::is_none,
            Instant::now(),
        );
        match refreshed {
            Err(error) if error.is_missing() || error.is_denied() => {
                return Err(CollectError::no_data("this kernel has no energy counters"));
            }
            Ok(true) => self.rebuild_families(),
            done => drop(done?),
        }
        let mut skipped = Skipped::default();
        for family in &mut self.families {
            let mut samples = page.family(&family.name, &family.help, MetricType::Counter);
            for row in &mut family.rows {
                if let Err(error) = row.energy.read(&mut self.buffer)
                    && error.is_denied()
                {
                    return Err(CollectError::no_data("only root can read the energy counters"));
                }
                if let Some(energy) = number::<u64>(&mut row.energy, &mut self.buffer, &mut skipped) {
                    let labels = [
                        ("index", row.index.as_str()),
                        ("path", &row.path),
                        ("rapl_zone", &row.zone),
                    ];
                    let labels = if self.zone_label {
                        &labels[..]
                    } else {
                        &labels[..2]
                    };
                    samples.sample(labels, energy as f64 / 1e6);
                }
            }
        }
        skipped.end()
    }
}

impl Rapl {
    /// Groups zones by name: `package-0` is number 0 of `package`. Zones without a number are
    /// numbered consecutively.
    fn rebuild_families(&mut self) {
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut counts: HashMap<String, u64> = HashMap::new();
        for zone in self.zones.all() {
            let Some(full) = &zone.kept else { continue };
            let (name, index) = match full.split_once('-') {
                Some((name, number)) if !number.contains('-') => match number.parse() {
                    Ok(number) => (name, number),
                    Err(_) => (full.as_str(), counts.get(full).copied().unwrap_or_default()),
                },
                _ => (full.as_str(), counts.get(full).copied().unwrap_or_default()),
            };
            counts.insert(name.to_owned(), u64::saturating_add(index, 1));
            let (family, help) = if self.zone_label {
                let help = "Energy used by a zone, in joules.";
                ("node_rapl_joules_total".to_owned(), help.to_owned())
            } else {
                let help = format!("Energy used by {name}, in joules.");
                (format!("node_rapl_{}_joules_total", sanitized(name)), help)
            };
            let family = families.entry(family.clone()).or_insert_with(|| Family {
                name: family,
                help,
                rows: Vec::new(),
            });
            family.rows.push(Row {
                zone: name.to_owned(),
                index: index.to_string(),
                // The path in the guest, independent of the root of sysfs.
                path: format!("/sys/class/powercap/{}", zone.name),
                energy: Attribute::new(self.directory.join(&zone.name).join("energy_uj")),
            });
        }
        self.families = families.into_values().collect();
    }
}
