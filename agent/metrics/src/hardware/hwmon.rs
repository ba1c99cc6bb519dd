//! `hwmon`: temperatures, fans, voltages and power, from `/sys/class/hwmon`.
//!
//! A chip's sensors do not change after its driver is loaded. The families are built when a chip
//! appears or disappears; a scrape only reads the values.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    time::Instant,
};

use virtfleet_agent_core::procfs::hwmon::{AttributeName, SensorFamily, attribute, clean, family};
use virtfleet_agent_host::{
    Attribute, AttributeBuffer, Devices, attribute_buffer, attribute_names, attribute_once, real_path,
};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};
use virtfleet_agent_core::settings::{NameFilter, filters};

struct Hwmon {
    chips: Devices<Chip>,
    chip_filter: NameFilter,
    sensor_filter: NameFilter,
    buffer: Box<AttributeBuffer>,
    /// `chip`, `chip_name`.
    names: Vec<[String; 2]>,
    /// `chip`, `sensor`, `label`.
    labels: Vec<[String; 3]>,
    families: Vec<Sensors>,
}

struct Chip {
    /// Name derived from its device, or its driver's name for it.
    base: Option<String>,
    /// Its driver's name for it.
    name: String,
    attributes: Attributes,
}

/// The files of a chip's sensors, by sensor and property.
type Attributes = BTreeMap<(String, String), PathBuf>;

/// A family and its sensors.
struct Sensors {
    family: SensorFamily,
    rows: Vec<Row>,
}

struct Row {
    chip: String,
    sensor: String,
    file: Attribute,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.hwmon;
    Ok(Box::new(Hwmon {
        chip_filter: filters::hwmon_chips(settings)?,
        sensor_filter: filters::hwmon_sensors(settings)?,
        chips: Devices::new(context.roots.sys("class/hwmon")),
        buffer: attribute_buffer(),
        names: Vec::new(),
        labels: Vec::new(),
        families: Vec::new(),
    }))
}

impl Collector for Hwmon {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let refreshed = self.chips.refresh_with(
            |_| true,
            |_, path| Chip::new(path),
            |chip| chip.attributes.is_empty(),
            Instant::now(),
        );
        match refreshed {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("this kernel has no hardware monitors"));
            }
            Ok(true) => self.rebuild_families(),
            done => drop(done?),
        }
        let mut family = page.family(
            "node_hwmon_chip_names",
            "Name of a chip, from its driver, always 1.",
            MetricType::Gauge,
        );
        for [chip, name] in &self.names {
            family.sample(&[("chip", chip), ("chip_name", name)], 1.0);
        }
        let mut family = page.family(
            "node_hwmon_sensor_label",
            "Label of a sensor, from its driver, always 1.",
            MetricType::Gauge,
        );
        for [chip, sensor, label] in &self.labels {
            family.sample(&[("chip", chip), ("sensor", sensor), ("label", label)], 1.0);
        }
        for Sensors { family: about, rows } in &mut self.families {
            let kind = if about.is_counter {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            let mut family = page.family(&about.name, &about.help, kind);
            for row in rows {
                // A sensor without a value is left out.
                if let Ok(Some(value)) = row.file.number::<f64>(&mut self.buffer)
                    && value.is_finite()
                {
                    let labels = [("chip", row.chip.as_str()), ("sensor", &row.sensor)];
                    family.sample(&labels, value / about.divisor);
                }
            }
        }
        Ok(())
    }
}

impl Chip {
    fn new(directory: &Path) -> Self {
        let name = attribute_once(&directory.join("name"), &mut attribute_buffer())
            .map(Cow::into_owned)
            .unwrap_or_default();
        Self {
            base: base(directory, &name),
            name,
            attributes: attributes(directory),
        }
    }
}

/// Attributes of the sensors: those of the chip, and those of its device, which old drivers use.
fn attributes(directory: &Path) -> Attributes {
    let mut found = BTreeMap::new();
    for directory in [directory.to_owned(), directory.join("device")] {
        for file in attribute_names(&directory) {
            if let Some(AttributeName {
                kind,
                number,
                property,
            }) = attribute(&file)
            {
                let sensor = format!("{kind}{number}");
                found.insert((sensor, property.to_owned()), directory.join(&file));
            }
        }
    }
    found
}

/// The device's path is stable across boots; the number of a chip is not.
fn base(directory: &Path, name: &str) -> Option<String> {
    let part = |path: Option<&Path>| {
        let name = path.and_then(Path::file_name);
        name.map(|name| clean(&name.to_string_lossy()))
            .unwrap_or_default()
    };
    if let Some(device) = real_path(&directory.join("device")) {
        match (part(device.parent()), part(Some(&device))) {
            (_, device) if device.is_empty() => {}
            (bus, device) if bus.is_empty() => return Some(device),
            (bus, device) => return Some(format!("{bus}_{device}")),
        }
    }
    let real = real_path(directory);
    [clean(name), part(real.as_deref())]
        .into_iter()
        .find(|name| !name.is_empty())
}

impl Hwmon {
    fn rebuild_families(&mut self) {
        self.names.clear();
        self.labels.clear();
        let mut families: BTreeMap<String, Sensors> = BTreeMap::new();
        let (mut by_base, mut by_name) = (HashMap::new(), HashMap::new());
        for chip in self.chips.all() {
            *by_base.entry(chip.kept.base.clone()).or_insert(0) += 1;
            *by_name
                .entry((chip.kept.base.clone(), clean(&chip.kept.name)))
                .or_insert(0) += 1;
        }
        for chip in self.chips.all() {
            let Chip {
                base: Some(base),
                name,
                attributes,
            } = &chip.kept
            else {
                continue;
            };
            let mut label = base.clone();
            // Chips of one device are distinguished by their names or numbers.
            if by_base[&chip.kept.base] > 1 {
                let mut suffix = clean(name);
                if suffix.is_empty() || by_name[&(chip.kept.base.clone(), suffix.clone())] > 1 {
                    suffix = clean(&chip.name);
                }
                label = format!("{base}_{suffix}");
            }
            if !self.chip_filter.takes(&label) {
                continue;
            }
            if !clean(name).is_empty() {
                self.names.push([label.clone(), clean(name)]);
            }
            let mut taken = BTreeSet::new();
            for ((sensor, property), path) in attributes {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let Some(found) = attribute(&file) else { continue };
                if !self.sensor_filter.takes(&format!("{label};{sensor}")) {
                    continue;
                }
                if property == "label" {
                    if let Ok(text) = attribute_once(path, &mut self.buffer) {
                        self.labels
                            .push([label.clone(), sensor.clone(), text.into_owned()]);
                    }
                    continue;
                }
                let has_value = attributes.contains_key(&(sensor.clone(), String::new()));
                let Some(about) = family(&found, has_value) else {
                    continue;
                };
                let mut shown = sensor.clone();
                if found.kind == "freq" && property == "input" {
                    // Clocks of a GPU are distinguished by their labels.
                    let path = attributes.get(&(sensor.clone(), "label".to_owned()));
                    match path.map(|path| attribute_once(path, &mut self.buffer)) {
                        Some(Ok(text)) => shown = clean(&text),
                        _ => continue,
                    }
                }
                if !taken.insert((about.name.clone(), shown.clone())) {
                    continue;
                }
                let row = Row {
                    chip: label.clone(),
                    sensor: shown,
                    file: Attribute::new(path),
                };
                families
                    .entry(about.name.clone())
                    .or_insert_with(|| Sensors {
                        family: about,
                        rows: Vec::new(),
                    })
                    .rows
                    .push(row);
            }
        }
        self.families = families.into_values().collect();
    }
}
