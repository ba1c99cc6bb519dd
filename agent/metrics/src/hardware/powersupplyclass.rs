//! `powersupplyclass`: batteries and mains, from `/sys/class/power_supply`.

use std::{path::Path, time::Instant};

use virtfleet_agent_core::settings::{NameFilter, filters};
use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer, attribute_names};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped, attributes::number};

/// A file, its family, HELP, and the divisor of its number.
struct Number(&'static str, &'static str, &'static str, f64);

/// sysfs uses millionths (kernel: `Documentation/power/power_supply_class.rst`).
const MICRO: f64 = 1e6;
/// Temperatures are in tenths of a degree.
const TENTH: f64 = 10.0;

macro_rules! numbers {
    ($($file:literal $name:literal $divisor:expr;)*) => {
        [$(Number(
            $file,
            concat!("node_power_supply_", $name),
            concat!("A power supply's ", $file, "."),
            $divisor,
        ),)*]
    };
}

static NUMBERS: [Number; 49] = numbers! {
    "authentic" "authentic" 1.0;
    "calibrate" "calibrate" 1.0;
    "capacity" "capacity" 1.0;
    "capacity_alert_max" "capacity_alert_max" 1.0;
    "capacity_alert_min" "capacity_alert_min" 1.0;
    "cycle_count" "cyclecount" 1.0;
    "online" "online" 1.0;
    "present" "present" 1.0;
    "time_to_empty_now" "time_to_empty_seconds" 1.0;
    "time_to_full_now" "time_to_full_seconds" 1.0;
    "current_boot" "current_boot" MICRO;
    "current_max" "current_max" MICRO;
    "current_now" "current_ampere" MICRO;
    "energy_empty" "energy_empty" MICRO;
    "energy_empty_design" "energy_empty_design" MICRO;
    "energy_full" "energy_full" MICRO;
    "energy_full_design" "energy_full_design" MICRO;
    "energy_now" "energy_watthour" MICRO;
    "voltage_boot" "voltage_boot" MICRO;
    "voltage_max" "voltage_max" MICRO;
    "voltage_max_design" "voltage_max_design" MICRO;
    "voltage_min" "voltage_min" MICRO;
    "voltage_min_design" "voltage_min_design" MICRO;
    "voltage_now" "voltage_volt" MICRO;
    "voltage_ocv" "voltage_ocv" MICRO;
    "charge_control_limit" "charge_control_limit" MICRO;
    "charge_control_limit_max" "charge_control_limit_max" MICRO;
    "charge_counter" "charge_counter" MICRO;
    "charge_empty" "charge_empty" MICRO;
    "charge_empty_design" "charge_empty_design" MICRO;
    "charge_full" "charge_full" MICRO;
    "charge_full_design" "charge_full_design" MICRO;
    "charge_now" "charge_ampere" MICRO;
    "charge_term_current" "charge_term_current" MICRO;
    "constant_charge_current" "constant_charge_current" MICRO;
    "constant_charge_current_max" "constant_charge_current_max" MICRO;
    "constant_charge_voltage" "constant_charge_voltage" MICRO;
    "constant_charge_voltage_max" "constant_charge_voltage_max" MICRO;
    "precharge_current" "precharge_current" MICRO;
    "input_current_limit" "input_current_limit" MICRO;
    "power_now" "power_watt" MICRO;
    "temp" "temp_celsius" TENTH;
    "temp_alert_max" "temp_alert_max_celsius" TENTH;
    "temp_alert_min" "temp_alert_min_celsius" TENTH;
    "temp_ambient" "temp_ambient_celsius" TENTH;
    "temp_ambient_max" "temp_ambient_max_celsius" TENTH;
    "temp_ambient_min" "temp_ambient_min_celsius" TENTH;
    "temp_max" "temp_max_celsius" TENTH;
    "temp_min" "temp_min_celsius" TENTH;
};

/// Files that are labels of `node_power_supply_info`. An empty file has no label.
const TEXTS: [&str; 11] = [
    "capacity_level",
    "charge_type",
    "health",
    "manufacturer",
    "model_name",
    "scope",
    "serial_number",
    "status",
    "technology",
    "type",
    "usb_type",
];

struct PowerSupplies {
    supplies: Devices<Supply>,
    filter: NameFilter,
    buffer: Box<AttributeBuffer>,
}

/// A supply's files by index in the tables, and their content in this scrape.
struct Supply {
    numbers: Vec<(usize, Attribute, Option<i64>)>,
    texts: Vec<(&'static str, Attribute, String)>,
}

impl Supply {
    fn new(path: &Path) -> Self {
        let present = attribute_names(path);
        let there = |file: &str| present.binary_search_by(|name| name.as_str().cmp(file)).is_ok();
        let numbers = NUMBERS.iter().enumerate().filter(|(_, number)| there(number.0));
        let texts = TEXTS.iter().filter(|text| there(text));
        Self {
            numbers: numbers
                .map(|(index, number)| (index, Attribute::new(path.join(number.0)), None))
                .collect(),
            texts: texts
                .map(|text| (*text, Attribute::new(path.join(text)), String::new()))
                .collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.texts.is_empty()
    }

    fn read(&mut self, buffer: &mut AttributeBuffer, skipped: &mut Skipped) {
        for (_, file, now) in &mut self.numbers {
            *now = number(file, buffer, skipped);
        }
        for (_, file, now) in &mut self.texts {
            now.clear();
            if let Ok(text) = file.read(buffer) {
                now.push_str(&text);
            }
        }
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.powersupplyclass;
    Ok(Box::new(PowerSupplies {
        supplies: Devices::new(context.roots.sys("class/power_supply")),
        filter: filters::powersupplyclass(settings)?,
        buffer: attribute_buffer(),
    }))
}

impl Collector for PowerSupplies {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let make = |_: &str, path: &Path| Supply::new(path);
        match self
            .supplies
            .refresh_with(|_| true, make, Supply::is_empty, Instant::now())
        {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("this kernel has no power supplies"));
            }
            done => done?,
        };
        let filter = &mut self.filter;
        let mut supplies = Vec::new();
        let mut skipped = Skipped::default();
        for supply in self.supplies.all() {
            if filter.takes(&supply.name) {
                supply.kept.read(&mut self.buffer, &mut skipped);
                supplies.push(&*supply);
            }
        }
        for (index, Number(_, name, help, divisor)) in NUMBERS.iter().enumerate() {
            let mut family = page.family(name, help, MetricType::Gauge);
            for supply in &supplies {
                let found = supply.kept.numbers.iter().find(|(at, ..)| *at == index);
                if let Some((_, _, Some(value))) = found {
                    let labels = [("power_supply", supply.name.as_str())];
                    family.sample(&labels, *value as f64 / divisor);
                }
            }
        }
        let mut family = page.family(
            "node_power_supply_info",
            "Properties and state of a power supply, always 1.",
            MetricType::Gauge,
        );
        for supply in &supplies {
            let mut labels = vec![("power_supply", supply.name.as_str())];
            let texts = supply.kept.texts.iter().filter(|(_, _, now)| !now.is_empty());
            labels.extend(texts.map(|(label, _, now)| (*label, now.as_str())));
            family.sample(&labels, 1.0);
        }
        skipped.end()
    }
}
