//! What the machine is made of: sensors, firmware, power.

mod dmi;
mod edac;
mod hwmon;
mod powersupplyclass;
mod rapl;
mod thermal_zone;
mod watchdog;

use super::{Entry, Flag};

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("dmi", "What the firmware says of the machine", dmi::new),
    Entry::on("edac", "Memory errors", edac::new),
    Entry::on("hwmon", "Temperatures, fans, voltages and power", hwmon::new).with(&[
        Flag::text("chip-exclude", "chipExclude"),
        Flag::text("chip-include", "chipInclude"),
        Flag::text("sensor-exclude", "sensorExclude"),
        Flag::text("sensor-include", "sensorInclude"),
    ]),
    Entry::on("powersupplyclass", "Batteries and mains", powersupplyclass::new)
        .with(&[Flag::text("powersupply.ignored-supplies", "ignored")]),
    Entry::on("rapl", "Energy that parts of the processor used", rapl::new)
        .with(&[Flag::switch("enable-zone-label", "zoneLabel")]),
    Entry::on(
        "thermal_zone",
        "Temperatures of zones and what cools them",
        thermal_zone::new,
    ),
    Entry::on("watchdog", "Watchdogs and how long they wait", watchdog::new),
];

#[cfg(test)]
mod tests;
