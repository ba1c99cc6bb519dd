//! Tests of several collectors of this group.

use std::fs;

use virtfleet_agent_host::Roots;
use virtfleet_wire::{exposition::Page, settings::MetricsSettings};

use super::{hwmon, watchdog};
use crate::{Build, Context};

/// A device appears in its class before its driver has created its attributes.
#[test]
fn late_attributes_of_a_device_are_exported() {
    /// Constructor, the device's directory, its attributes with their text, and the resulting line.
    type Case = (
        Build,
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static str,
    );
    let cases: [Case; 2] = [
        (
            hwmon::new,
            "class/hwmon/hwmon0",
            &[("name", "acpitz"), ("temp1_input", "27800")],
            "node_hwmon_temp_celsius{chip=\"acpitz\",sensor=\"temp1\"} 27.8",
        ),
        (
            watchdog::new,
            "class/watchdog/watchdog0",
            &[("timeout", "30")],
            "node_watchdog_timeout_seconds{name=\"watchdog0\"} 30",
        ),
    ];
    for (build, device, files, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            sysfs: dir.path().into(),
            ..Roots::default()
        };
        let folder = dir.path().join(device);
        fs::create_dir_all(&folder).unwrap();
        let mut collector = build(&Context::new(roots, MetricsSettings::default())).unwrap();
        let mut scrape = || {
            let mut page = Page::new();
            collector.collect(&mut page).unwrap();
            page.to_text()
        };
        for _ in 0..2 {
            let page = scrape();
            assert!(!page.contains(expected), "{device}: {page}");
        }
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
        for _ in 0..2 {
            let page = scrape();
            assert!(page.contains(expected), "{device}: {page}");
        }
    }
}
