//! `bonding`: number of devices of each bond, and number of those with a link, from sysfs.

use std::path::Path;

use virtfleet_agent_host::{RereadError, Roots, read_once};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum size of a file with names or one word in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;
/// Maximum number of bonds, and of devices of a bond.
const MAX_DEVICES: usize = 1024;

struct Bonding {
    roots: Roots,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Bonding {
        roots: context.roots.clone(),
        buffer: Vec::new(),
    }))
}

impl Bonding {
    fn words(&mut self, path: &Path) -> Result<Vec<String>, RereadError> {
        let text = read_once(path, &mut self.buffer, MAX_FILE_BYTES)?;
        let text = String::from_utf8_lossy(text);
        let words = text.split_ascii_whitespace().filter(|word| is_name(word));
        Ok(words.take(MAX_DEVICES).map(str::to_owned).collect())
    }

    fn is_up(&mut self, master: &Path, slave: &str) -> Result<bool, RereadError> {
        let state = |prefix: &str| master.join(format!("{prefix}_{slave}/bonding_slave/mii_status"));
        let words = match self.words(&state("lower")) {
            // Name of the attribute before kernel 3.18.
            Err(error) if error.is_missing() => self.words(&state("slave")),
            words => words,
        }?;
        Ok(words.first().is_some_and(|word| word == "up"))
    }
}

/// True for a device name without path components.
fn is_name(word: &str) -> bool {
    !word.contains('/') && word != "." && word != ".."
}

impl Collector for Bonding {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let class = self.roots.sys("class/net");
        let masters = match self.words(&class.join("bonding_masters")) {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("the kernel's bonding driver is not loaded"));
            }
            masters => masters?,
        };
        let mut rows: Vec<(String, u32, u32)> = Vec::new();
        let mut skipped = Skipped::default();
        for master in masters {
            let directory = class.join(&master);
            let slaves = match self.words(&directory.join("bonding/slaves")) {
                // The bond was removed meanwhile.
                Err(error) if error.is_missing() => continue,
                slaves => skipped.take(slaves),
            };
            let Some(slaves) = slaves else { continue };
            let (mut all, mut up, mut known) = (0, 0, true);
            for slave in slaves {
                match self.is_up(&directory, &slave) {
                    Ok(is_up) => {
                        all += 1;
                        up += u32::from(is_up);
                    }
                    Err(error) if error.is_missing() => {}
                    is_up => known &= skipped.take(is_up).is_some(),
                }
            }
            if known && rows.iter().all(|(name, ..)| *name != master) {
                rows.push((master, all, up));
            }
        }
        let mut family = page.family("node_bonding_slaves", "Devices of the bond.", MetricType::Gauge);
        for (master, all, _) in &rows {
            family.sample(&[("master", master)], f64::from(*all));
        }
        let mut family = page.family(
            "node_bonding_active",
            "Devices of the bond that have a link.",
            MetricType::Gauge,
        );
        for (master, _, up) in &rows {
            family.sample(&[("master", master)], f64::from(*up));
        }
        skipped.end()
    }
}
