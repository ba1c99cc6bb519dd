//! Collectors of CPUs with settings, and with CPUs that go and devices that change.

use std::{collections::BTreeMap, fs, path::Path};

use virtfleet_agent_metrics::{COLLECTORS, Registry};
use virtfleet_wire::settings::MetricsSettings;

use crate::exposition::world::*;

/// A page with `change` in the settings.
pub(crate) fn page_with(dir: &Path, change: impl FnOnce(&mut MetricsSettings)) -> String {
    scrape(&mut registry_with(dir, change))
}

pub(crate) fn registry_with(dir: &Path, change: impl FnOnce(&mut MetricsSettings)) -> Registry {
    let mut settings = settings();
    change(&mut settings);
    let (context, _) = context(dir, settings);
    Registry::with_table(COLLECTORS, context, &everything()).unwrap()
}

pub(crate) fn of<'page>(page: &'page str, family: &str) -> Vec<&'page str> {
    let starts = [format!("{family}{{"), format!("{family} ")];
    page.lines()
        .filter(|line| starts.iter().any(|start| line.starts_with(start)))
        .collect()
}

#[test]
fn interrupts_are_added_up_by_device_and_keep_the_numbers_of_cpus() {
    let page = page_with(&fixture("kubevirt"), |_| {});
    let found = of(&page, "node_interrupts_total");
    let of_device = |device: &str| -> Vec<_> {
        let kind = format!("type=\"{device}\"");
        found
            .iter()
            .filter(|line| line.contains(&kind))
            .copied()
            .collect()
    };
    assert_eq!(
        of_device("virtio0"),
        [
            "node_interrupts_total{cpu=\"0\",type=\"virtio0\",info=\"PCI-MSIX-0000:00:02.0\",devices=\"virtio0\"} 71220",
            "node_interrupts_total{cpu=\"1\",type=\"virtio0\",info=\"PCI-MSIX-0000:00:02.0\",devices=\"virtio0\"} 38888",
            "node_interrupts_total{cpu=\"3\",type=\"virtio0\",info=\"PCI-MSIX-0000:00:02.0\",devices=\"virtio0\"} 12",
        ]
    );
    assert!(of_device("ens4").is_empty(), "no CPU has handled it");
    assert_eq!(
        of_device("NMI").len(),
        3,
        "the architecture's own keep their zeros"
    );
    let all = page_with(&fixture("kubevirt"), |settings| {
        settings.interrupts.include_zeros = Some(true);
    });
    assert_eq!(all.matches("type=\"ens4\"").count(), 3);
    let none = page_with(&fixture("kubevirt"), |settings| {
        settings.interrupts.include_zeros = Some(false);
        settings.interrupts.name_include = Some("Non-maskable|virtio5".to_owned());
    });
    assert_eq!(of(&none, "node_interrupts_total").len(), 2);
}

#[test]
fn interrupts_one_by_one_are_node_exporters() {
    let page = page_with(&fixture("kubevirt"), |settings| {
        settings.interrupts.per_interrupt = true;
        settings.interrupts.name_exclude = Some("^LOC;|i8042$".to_owned());
    });
    let found = of(&page, "node_interrupts_total");
    assert_eq!(found.len(), (9 + 5 - 2) * 3);
    let queue = "node_interrupts_total{cpu=\"3\",type=\"25\",info=\"PCI-MSIX-0000:00:02.0\",devices=\"1-edge virtio0-input.0\"} 12";
    assert!(found.contains(&queue), "{found:#?}");
    let own = "node_interrupts_total{cpu=\"0\",type=\"HYP\",info=\"Hypervisor callback interrupts\",devices=\"\"} 1";
    assert!(found.contains(&own), "{found:#?}");
}

#[test]
fn interrupts_follow_devices_and_cpus_that_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("proc")).unwrap();
    let file = dir.path().join("proc/interrupts");
    let mut registry = registry_with(dir.path(), |_| {});
    for (text, expected) in [
        (
            "CPU0 CPU1\n1: 1 2 C 0-edge a\n2: 3 4 C 1-edge b-rx-0\n",
            vec!["0 a 1", "1 a 2", "0 b 3", "1 b 4"],
        ),
        (
            "CPU0 CPU1\n1: 1 2 C 0-edge a\n2: 3 5 C 1-edge a-tx-0\n",
            vec!["0 a 4", "1 a 7"],
        ),
        ("CPU1\n1: 9 C 0-edge a\n", vec!["1 a 9"]),
        ("CPU1\n1: x C 0-edge a\n", vec![]),
        (
            "CPU0 CPU1\n3: 1 2 C 0-edge c\n1: 1 2 C 0-edge a\n",
            vec!["0 c 1", "1 c 2", "0 a 1", "1 a 2"],
        ),
        ("CPU1 CPU0\n3: 1 2 C 0-edge d\n", vec![]),
        ("CPU0 CPU1\n3: 1 2 C 0-edge d\n", vec!["0 d 1", "1 d 2"]),
    ] {
        fs::write(&file, text).unwrap();
        let page = scrape(&mut registry);
        let found: Vec<_> = of(&page, "node_interrupts_total")
            .into_iter()
            .map(|line| {
                let words: Vec<_> = line.split('"').collect();
                format!("{} {}{}", words[1], words[3], words[8].trim_start_matches('}'))
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn what_the_cpu_collector_says_with_settings() {
    let page = page_with(&fixture("kubevirt"), |settings| {
        settings.cpu.guest = Some(false);
        settings.cpu.flags_include = Some("^a".to_owned());
        settings.cpu.bugs_include = Some("spectre".to_owned());
    });
    assert!(of(&page, "node_cpu_guest_seconds_total").is_empty());
    let expected = "node_cpu_info{package=\"1\",core=\"1\",cpu=\"3\",vendor=\"AuthenticAMD\",family=\"25\",model=\"17\",\
                    model_name=\"AMD EPYC 9354 32-Core Processor\",microcode=\"0xa101148\",stepping=\"1\",\
                    cachesize=\"1024 KB\"} 1";
    assert!(of(&page, "node_cpu_info").contains(&expected), "{page}");
    assert_eq!(
        of(&page, "node_cpu_flag_info"),
        [
            "node_cpu_flag_info{flag=\"aes\"} 1",
            "node_cpu_flag_info{flag=\"avx2\"} 1"
        ]
    );
    assert_eq!(of(&page, "node_cpu_bug_info").len(), 2);
    let expected = "node_cpu_frequency_hertz{package=\"0\",core=\"1\",cpu=\"1\"} 3245124000";
    assert!(
        of(&page, "node_cpu_frequency_hertz").contains(&expected),
        "{page}"
    );
}

#[test]
fn stat_and_vmstat_say_more_when_asked() {
    let page = page_with(&fixture("kubevirt"), |settings| {
        settings.stat.softirq = true;
        settings.vmstat.fields = Some("^nr_free_pages$|^numa_".to_owned());
    });
    assert!(of(&page, "node_softirqs_total").contains(&"node_softirqs_total{vector=\"net_rx\"} 5123456"));
    assert_eq!(of(&page, "node_softirqs_total").len(), 10);
    assert!(page.contains("\nnode_vmstat_nr_free_pages "), "{page}");
    assert!(!page.contains("\nnode_vmstat_pgfault "));
}

#[test]
fn patterns_that_cannot_work_are_named() {
    for (settings, key) in [
        (
            serde_json::json!({"vmstat": {"fields": "("}}),
            "metrics.vmstat.fields",
        ),
        (
            serde_json::json!({"cpu": {"flagsInclude": "("}}),
            "metrics.cpu.flagsInclude",
        ),
        (
            serde_json::json!({"cpu": {"bugsInclude": "("}}),
            "metrics.cpu.bugsInclude",
        ),
        (
            serde_json::json!({"interrupts": {"nameInclude": "a", "nameExclude": "b"}}),
            "metrics.interrupts.nameInclude",
        ),
        (
            serde_json::json!({"slabinfo": {"slabsExclude": "["}}),
            "metrics.slabinfo.slabsExclude",
        ),
        (
            serde_json::json!({"textfile": {"directories": ["relative"]}}),
            "metrics.textfile.directories",
        ),
        (
            serde_json::json!({"sysctl": {"include": [""]}}),
            "metrics.sysctl.include",
        ),
        (
            serde_json::json!({"sysctl": {"include": ["a.b", "a_b"]}}),
            "metrics.sysctl.include",
        ),
        (
            serde_json::json!({"sysctl": {"include": ["a:x-y"]}}),
            "metrics.sysctl.include",
        ),
        (
            serde_json::json!({"sysctl": {"includeInfo": ["a:x"]}}),
            "metrics.sysctl.includeInfo",
        ),
    ] {
        let settings: MetricsSettings = serde_json::from_value(settings).unwrap();
        let error = Registry::new(&roots(&fixture("minimal")), &settings, &BTreeMap::new()).unwrap_err();
        assert_eq!(error.key(), key);
    }
}
