//! Hardware of the machine: firmware, sensors, watchdogs.

mod dmi;
mod hwmon;
mod watchdog;

use super::{Entry, Flag};

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("dmi", "The firmware's description of the machine", dmi::new),
    Entry::on("hwmon", "Temperatures, fans, voltages and power", hwmon::new).with(&[
        Flag::text("chip-exclude", "chipExclude"),
        Flag::text("chip-include", "chipInclude"),
        Flag::text("sensor-exclude", "sensorExclude"),
        Flag::text("sensor-include", "sensorInclude"),
    ]),
    Entry::on("watchdog", "Watchdogs and their timeouts", watchdog::new),
];

#[cfg(test)]
mod tests;
