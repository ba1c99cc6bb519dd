//! `watchdog`: watchdogs and their timeouts, from `/sys/class/watchdog`.

use std::{path::Path, time::Instant};

use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer, attribute_names};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// A file with one number, its family and HELP.
struct Number(&'static str, &'static str, &'static str);

#[rustfmt::skip]
static NUMBERS: [Number; 7] = [
    Number("bootstatus", "node_watchdog_bootstatus", "Status of the watchdog at boot (bootstatus)."),
    Number("fw_version", "node_watchdog_fw_version", "Firmware version of the watchdog (fw_version)."),
    Number("nowayout", "node_watchdog_nowayout", "Whether the watchdog cannot be stopped after its start (nowayout)."),
    Number("timeleft", "node_watchdog_timeleft_seconds", "Time until the watchdog resets the machine (timeleft)."),
    Number("timeout", "node_watchdog_timeout_seconds", "Timeout of the watchdog (timeout)."),
    Number("pretimeout", "node_watchdog_pretimeout_seconds", "Time between the watchdog's warning and the reset (pretimeout)."),
    Number("access_cs0", "node_watchdog_access_cs0", "Whether the watchdog booted from its alternate flash (access_cs0)."),
];

/// Files that are labels of `node_watchdog_info`.
const TEXTS: [&str; 5] = ["options", "identity", "state", "status", "pretimeout_governor"];

struct Watchdog {
    dogs: Devices<WatchdogDevice>,
    buffer: Box<AttributeBuffer>,
}

/// A watchdog's files, if it has them, and their content in this scrape.
struct WatchdogDevice {
    numbers: [Option<Attribute>; NUMBERS.len()],
    values: [Option<i64>; NUMBERS.len()],
    texts: [Option<Attribute>; TEXTS.len()],
    labels: [String; TEXTS.len()],
}

impl WatchdogDevice {
    fn new(path: &Path) -> Self {
        let present = attribute_names(path);
        let attribute = |name: &str| {
            let there = present.iter().any(|other| other == name);
            there.then(|| Attribute::new(path.join(name)))
        };
        Self {
            numbers: NUMBERS.each_ref().map(|number| attribute(number.0)),
            values: [None; NUMBERS.len()],
            texts: TEXTS.map(attribute),
            labels: Default::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.numbers.iter().chain(&self.texts).all(Option::is_none)
    }

    fn read(&mut self, buffer: &mut AttributeBuffer, skipped: &mut Skipped) {
        for (value, file) in self.values.iter_mut().zip(&mut self.numbers) {
            *value = None;
            let Some(file) = file else { continue };
            // A driver may have no value, e.g. no timeleft while the watchdog is stopped.
            let Ok(text) = file.read(buffer) else { continue };
            *value = skipped.take(integer(&text).ok_or_else(|| {
                CollectError::failed(format!("{} does not contain a number", file.path().display()))
            }));
        }
        for (label, file) in self.labels.iter_mut().zip(&mut self.texts) {
            label.clear();
            if let Some(Ok(text)) = file.as_mut().map(|file| file.read(buffer)) {
                label.push_str(&text);
            }
        }
    }
}

/// Some drivers print hexadecimal numbers.
fn integer(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Watchdog {
        dogs: Devices::new(context.roots.sys("class/watchdog")),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Watchdog {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let make = |_: &str, path: &Path| WatchdogDevice::new(path);
        match self
            .dogs
            .refresh_with(|_| true, make, WatchdogDevice::is_empty, Instant::now())
        {
            Err(error) if error.is_missing() || error.is_denied() => {
                return Err(CollectError::no_data("this kernel has no watchdogs"));
            }
            done => done?,
        };
        let mut skipped = Skipped::default();
        for dog in self.dogs.all() {
            dog.kept.read(&mut self.buffer, &mut skipped);
        }
        for (index, Number(_, name, help)) in NUMBERS.iter().enumerate() {
            let mut family = page.family(name, help, MetricType::Gauge);
            for dog in self.dogs.all() {
                if let Some(value) = dog.kept.values[index] {
                    family.sample(&[("name", &dog.name)], value as f64);
                }
            }
        }
        let mut family = page.family(
            "node_watchdog_info",
            "Properties and state of a watchdog, always 1.",
            MetricType::Gauge,
        );
        for dog in self.dogs.all() {
            let [options, identity, state, status, governor] = &dog.kept.labels;
            let labels = [
                ("name", dog.name.as_str()),
                ("options", options),
                ("identity", identity),
                ("state", state),
                ("status", status),
                ("pretimeout_governor", governor),
            ];
            family.sample(&labels, 1.0);
        }
        skipped.end()
    }
}
