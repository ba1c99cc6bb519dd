//! Tests of several collectors of this group.

use std::fs;

use virtfleet_agent_host::Roots;
use virtfleet_wire::{exposition::Page, settings::MetricsSettings};

use super::{edac, hwmon, powersupplyclass, rapl, watchdog};
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
    let cases: [Case; 5] = [
        (
            hwmon::new,
            "class/hwmon/hwmon0",
            &[("name", "acpitz"), ("temp1_input", "27800")],
            "node_hwmon_temp_celsius{chip=\"acpitz\",sensor=\"temp1\"} 27.8",
        ),
        (
            powersupplyclass::new,
            "class/power_supply/AC",
            &[("online", "1")],
            "node_power_supply_online{power_supply=\"AC\"} 1",
        ),
        (
            watchdog::new,
            "class/watchdog/watchdog0",
            &[("timeout", "30")],
            "node_watchdog_timeout_seconds{name=\"watchdog0\"} 30",
        ),
        (
            edac::new,
            "devices/system/edac/mc/mc0",
            &[("csrow0/ce_count", "5")],
            "node_edac_csrow_correctable_errors_total{controller=\"0\",csrow=\"0\"} 5",
        ),
        (
            rapl::new,
            "class/powercap/intel-rapl:0",
            &[
                ("max_energy_range_uj", "9"),
                ("name", "core"),
                ("energy_uj", "2500000"),
            ],
            "node_rapl_core_joules_total{index=\"0\",path=\"/sys/class/powercap/intel-rapl:0\"} 2.5",
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
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for _ in 0..2 {
            let page = scrape();
            assert!(page.contains(expected), "{device}: {page}");
        }
    }
}
