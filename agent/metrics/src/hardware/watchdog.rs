//! `watchdog`: the watchdogs and how long they wait, from `/sys/class/watchdog`.

use std::{path::Path, time::Instant};

use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer, attribute_names};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

/// A file of one number, its family and what it says.
struct Number(&'static str, &'static str, &'static str);

#[rustfmt::skip]
static NUMBERS: [Number; 7] = [
    Number("bootstatus", "node_watchdog_bootstatus", "The watchdog's status at boot, as in bootstatus."),
    Number("fw_version", "node_watchdog_fw_version", "The version of the watchdog's firmware, as in fw_version."),
    Number("nowayout", "node_watchdog_nowayout", "Whether the watchdog cannot be stopped once it is started, as in nowayout."),
    Number("timeleft", "node_watchdog_timeleft_seconds", "How long until the watchdog resets the machine, as in timeleft."),
    Number("timeout", "node_watchdog_timeout_seconds", "How long the watchdog waits for a sign of life, as in timeout."),
    Number("pretimeout", "node_watchdog_pretimeout_seconds", "How long before a reset the watchdog warns, as in pretimeout."),
    Number("access_cs0", "node_watchdog_access_cs0", "Whether the watchdog booted from its other flash, as in access_cs0."),
];

/// The files that are labels of `node_watchdog_info`.
const TEXTS: [&str; 5] = ["options", "identity", "state", "status", "pretimeout_governor"];

struct Watchdog {
    dogs: Devices<Dog>,
    buffer: Box<AttributeBuffer>,
}

/// A watchdog's files, where it has them, and what they said in this scrape.
struct Dog {
    numbers: [Option<Attribute>; NUMBERS.len()],
    values: [Option<i64>; NUMBERS.len()],
    texts: [Option<Attribute>; TEXTS.len()],
    labels: [String; TEXTS.len()],
}

impl Dog {
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

    fn read(&mut self, buffer: &mut AttributeBuffer) -> Result<(), CollectError> {
        for (value, file) in self.values.iter_mut().zip(&mut self.numbers) {
            *value = None;
            let Some(file) = file else { continue };
            // A driver may have no answer now, e.g. none to timeleft while the watchdog is stopped.
            let Ok(text) = file.read(buffer) else { continue };
            *value =
                Some(integer(&text).ok_or_else(|| {
                    CollectError::failed(format!("{} holds no number", file.path().display()))
                })?);
        }
        for (label, file) in self.labels.iter_mut().zip(&mut self.texts) {
            label.clear();
            if let Some(Ok(text)) = file.as_mut().map(|file| file.read(buffer)) {
                label.push_str(&text);
            }
        }
        Ok(())
    }
}

/// Some drivers print in hexadecimal.
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
        let make = |_: &str, path: &Path| Dog::new(path);
        match self
            .dogs
            .refresh_with(|_| true, make, Dog::is_empty, Instant::now())
        {
            Err(error) if error.is_missing() || error.is_denied() => {
                return Err(CollectError::no_data("this kernel has no watchdogs"));
            }
            done => done?,
        };
        for dog in self.dogs.all() {
            dog.kept.read(&mut self.buffer)?;
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
            "What a watchdog is and does, always 1.",
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
        Ok(())
    }
}
