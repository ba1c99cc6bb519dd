//! `mdadm`: software RAID, from `/proc/mdstat` and `/sys/block/md*/md`.

use std::{collections::HashSet, path::Path};

use virtfleet_agent_core::procfs::mdstat::{Activity, Array, arrays};
use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, Reread, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// The states of `node_md_state`.
const STATES: [(&str, Activity<'_>); 5] = [
    ("active", Activity::Active),
    ("inactive", Activity::Inactive),
    ("recovering", Activity::Recovering),
    ("resync", Activity::Resyncing),
    ("check", Activity::Checking),
];

struct Mdadm {
    stat: Reread,
    devices: Devices<Md>,
    buffer: Box<AttributeBuffer>,
}

/// sysfs attributes of an array.
struct Md {
    level: Attribute,
    raid_disks: Attribute,
    degraded: Attribute,
    disks_now: Option<u64>,
    degraded_now: Option<u64>,
}

impl Md {
    fn new(path: &Path) -> Self {
        let attribute = |name| Attribute::new(path.join("md").join(name));
        Self {
            level: attribute("level"),
            raid_disks: attribute("raid_disks"),
            degraded: attribute("degraded"),
            disks_now: None,
            degraded_now: None,
        }
    }

    /// Values of an array that stops meanwhile are missing.
    fn read(&mut self, buffer: &mut AttributeBuffer) {
        (self.disks_now, self.degraded_now) = (None, None);
        let Ok(level) = self.level.read(buffer) else {
            return;
        };
        let has_disks = !matches!(&*level, "" | "container" | "imsm" | "ddf");
        let has_redundancy = matches!(&*level, "raid1" | "raid4" | "raid5" | "raid6" | "raid10");
        if has_disks && let Ok(text) = self.raid_disks.read(buffer) {
            // During a reshape: `NEW (OLD)`.
            let first = text.split(' ').next().unwrap_or_default();
            self.disks_now = first.parse().ok();
        }
        self.degraded_now = if has_redundancy {
            self.degraded.number(buffer).ok().flatten()
        } else {
            Some(0)
        };
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Mdadm {
        stat: Reread::new(context.roots.proc("mdstat")),
        devices: Devices::new(context.roots.sys("block")),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Mdadm {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.stat.path().to_owned();
        let text = match self.stat.text() {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("this kernel has no software RAID"));
            }
            done => done?,
        };
        let mut rows = Vec::new();
        let mut names = HashSet::new();
        let mut skipped = Skipped::default();
        for array in skipped.valid(&path, arrays(&text)) {
            if names.insert(array.name) {
                rows.push(array);
            }
        }
        write(page, &rows);
        if rows.is_empty() {
            return skipped.end();
        }
        match self
            .devices
            .refresh(|name| name.starts_with("md"), |_, path| Md::new(path))
        {
            Err(error) if error.is_missing() => return skipped.end(),
            done => done?,
        };
        for device in self.devices.all() {
            device.kept.read(&mut self.buffer);
        }
        let mut family = page.family(
            "node_md_raid_disks",
            "Number of disks of the complete array.",
            MetricType::Gauge,
        );
        for device in self.devices.all() {
            if let Some(disks) = device.kept.disks_now {
                family.sample(&[("device", &device.name)], disks as f64);
            }
        }
        let mut family = page.family(
            "node_md_degraded",
            "Number of missing disks of the array.",
            MetricType::Gauge,
        );
        for device in self.devices.all() {
            if let Some(degraded) = device.kept.degraded_now {
                family.sample(&[("device", &device.name)], degraded as f64);
            }
        }
        skipped.end()
    }
}

fn write(page: &mut Page, rows: &[Array<'_>]) {
    type Value = fn(&Array<'_>) -> u64;
    let mut family = page.family("node_md_state", "State of the array.", MetricType::Gauge);
    for row in rows {
        // A state that is not known here is shown too.
        let other = match row.activity {
            Activity::Other(state) => Some((state, row.activity)),
            _ => None,
        };
        for (state, activity) in STATES.into_iter().chain(other) {
            let labels = [("device", row.name), ("state", state)];
            family.sample(&labels, f64::from(u8::from(row.activity == activity)));
        }
    }
    let mut family = page.family(
        "node_md_disks",
        "Number of active, failed and spare disks of the array.",
        MetricType::Gauge,
    );
    for row in rows {
        let states = [
            ("active", row.active),
            ("failed", row.failed),
            ("spare", row.spare),
        ];
        for (state, disks) in states {
            family.sample(&[("device", row.name), ("state", state)], disks as f64);
        }
    }
    let families: [(&str, &str, Value); 3] = [
        (
            "node_md_disks_required",
            "Required number of disks of the array.",
            |row| row.required,
        ),
        ("node_md_blocks", "The array's size in blocks of 1 KiB.", |row| {
            row.blocks
        }),
        (
            "node_md_blocks_synced",
            "Number of synchronized blocks of the array.",
            |row| row.synced,
        ),
    ];
    for (name, help, value) in families {
        let mut family = page.family(name, help, MetricType::Gauge);
        for row in rows {
            family.sample(&[("device", row.name)], value(row) as f64);
        }
    }
}
