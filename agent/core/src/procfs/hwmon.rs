//! Names of hwmon attributes, and their metric families (kernel:
//! `Documentation/hwmon/sysfs-interface.rst`).

/// Parsed attribute name: `temp1_crit_alarm` has kind `temp`, number 1, property `crit_alarm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeName<'name> {
    pub kind: &'name str,
    /// Number among the chip's sensors of this kind; 0 if the name has none.
    pub number: u64,
    /// Property; empty if the file is the sensor itself, such as `pwm1`.
    pub property: &'name str,
}

/// Kinds of sensors; other files of a chip, such as `name` and `uevent`, are not sensors.
const KINDS: [&str; 14] = [
    "vrm",
    "beep_enable",
    "update_interval",
    "in",
    "cpu",
    "fan",
    "pwm",
    "temp",
    "curr",
    "power",
    "energy",
    "humidity",
    "intrusion",
    "freq",
];

/// Parses the name of a sensor's attribute; `None` for other files.
pub fn attribute(name: &str) -> Option<AttributeName<'_>> {
    let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let (front, rest) = name.split_at(digits);
    let after = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(after);
    let property = match rest.strip_prefix('_') {
        Some(property) if !property.is_empty() => Some(property),
        None if rest.is_empty() => Some(""),
        _ => None,
    };
    let found = if let Some(property) = property {
        AttributeName {
            kind: front,
            number: match number {
                "" => 0,
                number => number.parse().ok()?,
            },
            property,
        }
    } else {
        // The digits belong to the property.
        let (kind, _) = front.rsplit_once('_')?;
        AttributeName {
            kind,
            number: 0,
            property: &name[kind.len() + 1..],
        }
    };
    KINDS.contains(&found.kind).then_some(found)
}

/// Metric family of sensor values, and their scale.
#[derive(Debug, Clone, PartialEq)]
pub struct SensorFamily {
    pub name: String,
    pub help: String,
    pub is_counter: bool,
    /// Divisor that converts the attribute's value to the unit of the family.
    pub divisor: f64,
}

/// Returns the family of an attribute's value; `None` for attributes that are not values.
/// `sensor_has_value` says whether the sensor has a file without a property, such as `pwm1` next to
/// `pwm1_input`.
pub fn family(attribute: &AttributeName<'_>, sensor_has_value: bool) -> Option<SensorFamily> {
    let AttributeName { kind, property, .. } = *attribute;
    let plain = |name: &str, help: &str, divisor: f64| {
        Some(SensorFamily {
            name: name.to_owned(),
            help: help.to_owned(),
            is_counter: false,
            divisor,
        })
    };
    match kind {
        "vrm" => {
            let help = "The version of the voltage regulators.";
            return plain("node_hwmon_voltage_regulator_version", help, 1.0).filter(|_| property.is_empty());
        }
        "beep_enable" => {
            let help = "Whether the hardware may beep.";
            return plain("node_hwmon_beep_enabled", help, 1.0).filter(|_| property.is_empty());
        }
        "update_interval" => {
            let help = "How often the hardware monitor measures, in seconds.";
            return plain("node_hwmon_update_interval_seconds", help, 1000.0).filter(|_| property.is_empty());
        }
        _ => {}
    }
    if property == "label" {
        return None;
    }
    let mut name = format!("node_hwmon_{kind}");
    if property == "input" {
        if sensor_has_value {
            name.push_str("_input");
        }
    } else if !property.is_empty() {
        name.push('_');
        name.push_str(&clean(property));
    }
    let (suffix, what, divisor, is_counter) = match (kind, property) {
        (_, "fault") => ("", "whether it is at fault", 1.0, false),
        (_, "alarm") => ("", "whether there is an alarm", 1.0, false),
        (_, "beep") => ("_enabled", "whether its alarm beeps", 1.0, false),
        ("in" | "cpu", _) => ("_volts", "in volts", 1000.0, false),
        ("temp", "type") => ("", "the kind of the sensor", 1.0, false),
        ("temp", _) => ("_celsius", "in degrees Celsius", 1000.0, false),
        ("curr", _) => ("_amps", "in amperes", 1000.0, false),
        ("energy", _) => ("_joule_total", "used so far, in joules", 1e6, true),
        ("power", "accuracy") => ("", "as a ratio", 1e6, false),
        ("power", "average_interval" | "average_interval_min" | "average_interval_max") => {
            ("_seconds", "in seconds", 1000.0, false)
        }
        ("power", _) => ("_watt", "in watts", 1e6, false),
        ("humidity", _) => ("", "as a ratio", 1e6, false),
        ("fan", "input" | "min" | "max" | "target") => ("_rpm", "in revolutions per minute", 1.0, false),
        ("freq", "input") => ("_freq_mhz", "of a GPU, in MHz", 1e6, false),
        _ => ("", "as the driver has it", 1.0, false),
    };
    name.push_str(suffix);
    let of = if property.is_empty() { "value" } else { property };
    Some(SensorFamily {
        help: format!("Hardware monitor: {kind} ({of}), {what}."),
        name,
        is_counter,
        divisor,
    })
}

/// Converts a text to a part of a metric name: lower case, invalid characters as `_`, none at the
/// ends.
pub fn clean(text: &str) -> String {
    let text: String = text
        .chars()
        .flat_map(char::to_lowercase)
        .map(|c| match c {
            'a'..='z' | '0'..='9' | ':' | '_' => c,
            _ => '_',
        })
        .collect();
    text.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(name: &str) -> Option<(&str, u64, &str)> {
        attribute(name).map(|found| (found.kind, found.number, found.property))
    }

    #[test]
    fn names_are_parsed() {
        for (name, found) in [
            ("temp1_input", Some(("temp", 1, "input"))),
            ("temp01_crit_alarm", Some(("temp", 1, "crit_alarm"))),
            ("pwm1", Some(("pwm", 1, ""))),
            ("pwm1_auto_point2_temp", Some(("pwm", 1, "auto_point2_temp"))),
            ("update_interval", Some(("update_interval", 0, ""))),
            ("beep_enable", Some(("beep_enable", 0, ""))),
            (
                "power1_average_interval_max",
                Some(("power", 1, "average_interval_max")),
            ),
            ("temp_foo1x", Some(("temp", 0, "foo1x"))),
            ("fan1x", None),
            ("fan1_", None),
            ("name", None),
            ("uevent", None),
            ("temp99999999999999999999_input", None),
            ("1", None),
            ("", None),
        ] {
            assert_eq!(parts(name), found, "{name}");
        }
    }

    #[test]
    fn families_and_units() {
        for (file, has_value, name, divisor) in [
            ("temp1_input", false, "node_hwmon_temp_celsius", 1000.0),
            (
                "temp1_crit_hyst",
                false,
                "node_hwmon_temp_crit_hyst_celsius",
                1000.0,
            ),
            (
                "temp1_crit_alarm",
                false,
                "node_hwmon_temp_crit_alarm_celsius",
                1000.0,
            ),
            ("temp1_alarm", false, "node_hwmon_temp_alarm", 1.0),
            ("temp1_type", false, "node_hwmon_temp_type", 1.0),
            ("in0_beep", false, "node_hwmon_in_beep_enabled", 1.0),
            ("in0_min", false, "node_hwmon_in_min_volts", 1000.0),
            ("fan1_input", false, "node_hwmon_fan_rpm", 1.0),
            ("fan1_div", false, "node_hwmon_fan_div", 1.0),
            ("fan2_fault", false, "node_hwmon_fan_fault", 1.0),
            ("pwm1", true, "node_hwmon_pwm", 1.0),
            ("pwm1_input", true, "node_hwmon_pwm_input", 1.0),
            ("curr1_input", false, "node_hwmon_curr_amps", 1000.0),
            ("energy1_input", false, "node_hwmon_energy_joule_total", 1e6),
            ("power1_average", false, "node_hwmon_power_average_watt", 1e6),
            (
                "power1_average_interval",
                false,
                "node_hwmon_power_average_interval_seconds",
                1000.0,
            ),
            ("power1_accuracy", false, "node_hwmon_power_accuracy", 1e6),
            ("humidity1_input", false, "node_hwmon_humidity", 1e6),
            ("freq1_input", false, "node_hwmon_freq_freq_mhz", 1e6),
            ("intrusion0_alarm", false, "node_hwmon_intrusion_alarm", 1.0),
            ("vrm", true, "node_hwmon_voltage_regulator_version", 1.0),
            (
                "update_interval",
                true,
                "node_hwmon_update_interval_seconds",
                1000.0,
            ),
        ] {
            let found = family(&attribute(file).unwrap(), has_value).unwrap();
            assert_eq!((found.name.as_str(), found.divisor), (name, divisor), "{file}");
            assert_eq!(found.is_counter, name.ends_with("_total"));
        }
        assert_eq!(family(&attribute("temp1_label").unwrap(), false), None);
        assert_eq!(clean("_Core 0 Temp-"), "core_0_temp");
    }

    proptest! {
        #[test]
        fn no_name_panics(name in "(temp|pwm|fan|freq|power)?[ -~_0-9é]{0,20}") {
            if let Some(found) = attribute(&name) {
                let _ = family(&found, true);
            }
        }
    }
}
