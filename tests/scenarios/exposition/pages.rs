//! Golden pages from fixture roots, and the documents beside them. `UPDATE_GOLDEN=1` writes the
//! pages again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use virtfleet_agent_host::Roots;
use virtfleet_agent_metrics::{COLLECTORS, Filter, Registry};
use virtfleet_wire::{
    exposition::{Line, Page, parse_line},
    settings::MetricsSettings,
};

use crate::exposition::world::*;

#[test]
fn golden_pages() {
    for name in FIXTURES {
        let mut registry = registry(&fixture(name));
        let text = scrape(&mut registry);
        let (stable, took): (Vec<_>, Vec<_>) = text
            .lines()
            // The modification time depends on when the fixture was checked out.
            .filter(|line| !line.starts_with("node_textfile_mtime_seconds{"))
            // Only x86 has this limit.
            .filter(|line| !line.starts_with("virtfleet_virtio_msi_vectors{state=\"limit\"}"))
            .partition(|line| !line.starts_with("node_scrape_collector_duration_seconds{"));
        assert_eq!(took.len(), COLLECTORS.len());
        let stable = stable.join("\n") + "\n";
        let path = fixture(name).join("expected.prom");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &stable).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap();
        for (line, (found, expected)) in stable.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{name}, line {}", line + 1);
        }
        assert_eq!(stable.len(), expected.len(), "{name}: the longer one goes on");
        let again = scrape(&mut registry);
        assert_eq!(successes(&again), successes(&text), "{name}: a second scrape");
        assert_eq!(again.lines().count(), text.lines().count());
    }
}

#[test]
fn every_collector_is_unique_documented_and_exports_from_a_fixture() {
    let names: BTreeSet<_> = COLLECTORS.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), COLLECTORS.len(), "names are unique");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/collectors");
    let pages = fs::read_dir(&docs).unwrap().map(|page| page.unwrap().path());
    let docs: String = pages
        .chain([docs.with_extension("md")])
        .map(|page| fs::read_to_string(page).unwrap())
        .collect();
    let mut registries = FIXTURES.map(|name| registry(&fixture(name)));
    for entry in COLLECTORS {
        assert!(!entry.about.is_empty());
        let row = format!("| `{}` | {} |", entry.name, default_word(entry.default_on));
        assert!(docs.contains(&row), "docs/collectors lacks the row {row}");
        let filter = Filter {
            collect: vec![entry.name.to_owned()],
            ..Filter::default()
        };
        let text = registries.iter_mut().find_map(|registry| {
            let mut page = Page::new();
            registry.scrape(&filter, &mut page).unwrap();
            let text = check(page.to_text());
            // Two samples say how the collector did.
            (successes(&text)[entry.name] && page.samples() > 2).then_some(text)
        });
        let text = text.unwrap_or_else(|| panic!("{} exports data from no fixture", entry.name));
        for line in text.lines() {
            if let Ok(Line::Help(family, _)) = parse_line(line) {
                let mentioned = docs.contains(&format!("`{family}`"))
                    || docs.contains(&format!("`{family}{{"))
                    // What others leave in text files is theirs to document.
                    || entry.name == "textfile"
                    || [
                        "node_memory_",
                        "node_scrape_collector_",
                        "node_vmstat_",
                        "node_sysctl_",
                        "node_zoneinfo_",
                        "node_hwmon_",
                        "node_zfs_",
                    ]
                        .iter()
                        .any(|start| family.starts_with(start));
                assert!(mentioned, "docs/collectors lacks {family}");
            }
        }
    }
}

#[test]
fn the_machine_that_runs_the_tests_gives_a_good_page() {
    let mut registry =
        Registry::new(&Roots::default(), &MetricsSettings::default(), &BTreeMap::new()).unwrap();
    for _ in 0..3 {
        let text = scrape(&mut registry);
        for name in [
            "cpu",
            "meminfo",
            "filesystem",
            "netdev",
            "loadavg",
            "stat",
            "uname",
            "time",
        ] {
            assert!(successes(&text)[name], "{name}");
        }
    }
}
