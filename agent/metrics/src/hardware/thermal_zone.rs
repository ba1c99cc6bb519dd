//! `thermal_zone`: temperatures of zones and states of cooling devices, from `/sys/class/thermal`.

use std::path::Path;

use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

const ZONE: &str = "thermal_zone";
const COOLING_DEVICE: &str = "cooling_device";

struct ThermalZone {
    devices: Devices<ThermalDevice>,
    buffer: Box<AttributeBuffer>,
}

/// A zone or a cooling device.
struct ThermalDevice {
    is_zone: bool,
    /// The number in its name.
    number: String,
    kind: Attribute,
    label: String,
    /// A zone's `temp`, or a cooling device's `cur_state` and `max_state`.
    files: Vec<Attribute>,
    values: Vec<i64>,
}

impl ThermalDevice {
    fn new(name: &str, path: &Path) -> Self {
        let is_zone = name.starts_with(ZONE);
        let names: &[&str] = if is_zone {
            &["temp"]
        } else {
            &["cur_state", "max_state"]
        };
        Self {
            is_zone,
            number: name[if is_zone { ZONE } else { COOLING_DEVICE }.len()..].to_owned(),
            kind: Attribute::new(path.join("type")),
            label: String::new(),
            files: names.iter().map(|name| Attribute::new(path.join(name))).collect(),
            values: Vec::new(),
        }
    }

    /// A zone without a value, e.g. because its sensor is off, is left out.
    fn read(&mut self, buffer: &mut AttributeBuffer) {
        self.values.clear();
        if self.label.is_empty() {
            match self.kind.read(buffer) {
                Ok(kind) => self.label.push_str(&kind),
                Err(_) => return,
            }
        }
        for file in &mut self.files {
            match file.number(buffer) {
                Ok(Some(value)) => self.values.push(value),
                Ok(None) | Err(_) => return self.values.clear(),
            }
        }
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(ThermalZone {
        devices: Devices::new(context.roots.sys("class/thermal")),
        buffer: attribute_buffer(),
    }))
}

impl Collector for ThermalZone {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let wanted = |name: &str| {
            let number = name
                .strip_prefix(ZONE)
                .or_else(|| name.strip_prefix(COOLING_DEVICE));
            number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
        };
        match self.devices.refresh(wanted, ThermalDevice::new) {
            // node_exporter reports nothing and success in this case.
            Err(error) if error.is_missing() => return Ok(()),
            done => done?,
        };
        for device in self.devices.all() {
            device.kept.read(&mut self.buffer);
        }
        for (name, help, is_zone, index) in [
            (
                "node_thermal_zone_temp",
                "Temperature of a zone in degrees Celsius.",
                true,
                0,
            ),
            (
                "node_cooling_device_cur_state",
                "Current throttling state of a cooling device.",
                false,
                0,
            ),
            (
                "node_cooling_device_max_state",
                "Maximum throttling state of a cooling device.",
                false,
                1,
            ),
        ] {
            let mut family = page.family(name, help, MetricType::Gauge);
            let (label, divisor) = if is_zone { ("zone", 1000.0) } else { ("name", 1.0) };
            for device in self.devices.all().iter().map(|device| &device.kept) {
                if let Some(value) = device.values.get(index)
                    && device.is_zone == is_zone
                {
                    let labels = [(label, device.number.as_str()), ("type", &device.label)];
                    family.sample(&labels, *value as f64 / divisor);
                }
            }
        }
        Ok(())
    }
}
