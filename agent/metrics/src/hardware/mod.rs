//! Hardware of the machine: sensors, firmware, power.

mod dmi;
mod edac;
mod hwmon;
mod powersupplyclass;
mod rapl;
mod thermal_zone;
mod watchdog;

use super::{Entry, Flag};

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("dmi", "The firmware's description of the machine", dmi::new),
    Entry::on("edac", "Memory errors", edac::new),
    Entry::on("hwmon", "Temperatures, fans, voltages and power", hwmon::new).with(&[
        Flag::text("chip-exclude", "chipExclude"),
        Flag::text("chip-include", "chipInclude"),
        Flag::text("sensor-exclude", "sensorExclude"),
        Flag::text("sensor-include", "sensorInclude"),
    ]),
    Entry::on("powersupplyclass", "Batteries and mains", powersupplyclass::new)
        .with(&[Flag::text("powersupply.ignored-supplies", "ignored")]),
    Entry::on("rapl", "Energy used by parts of the processor", rapl::new)
        .with(&[Flag::switch("enable-zone-label", "zoneLabel")]),
    Entry::on(
        "thermal_zone",
        "Temperatures of thermal zones and states of cooling devices",
        thermal_zone::new,
    ),
    Entry::on("watchdog", "Watchdogs and their timeouts", watchdog::new),
];

#[cfg(test)]
mod tests;
