//! `guest_cgroups` on real cgroups, by the names that kubelet gives them with both of its drivers.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use virtfleet_agent_host::Roots;
use virtfleet_agent_metrics::{COLLECTORS, Context as Found, Registry};
use virtfleet_tests::{
    process::{AtEnd, Launch},
    skip, wait,
};
use virtfleet_wire::settings::MetricsSettings;

use crate::exposition::world::scrape;

const TIER: u8 = 2;
const SOON: Duration = Duration::from_secs(30);
/// Pods by quality of service, and a service: with systemd's driver, with kubelet's own.
const PODS: [&str; 3] = [
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podf00d.slice/cri-containerd-1.scope",
    "kubepods/burstable/podf00d/1",
    "system.slice/kubelet.service",
];

/// Where the unified hierarchy is mounted, for [`skip::need`].
fn unified() -> Result<PathBuf> {
    skip::root()?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let place = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(place))
    });
    place.context("no unified hierarchy of cgroups is mounted")
}

/// A cgroup that stands for the top of a node's hierarchy; it goes with all below it, whatever
/// happens to the test.
struct Top {
    path: PathBuf,
    _end: AtEnd,
}

impl Top {
    fn new(unified: &Path) -> Self {
        let path = unified.join(format!("virtfleet-test-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let script = "echo 1 >\"$1/cgroup.kill\"; for i in 1 2 3 4 5 6 7 8 9 10; do \
                      find \"$1\" -depth -type d -exec rmdir {} + 2>/dev/null; [ -d \"$1\" ] || exit; sleep 0.2; done";
        let end = AtEnd::new(script, [&path]).unwrap();
        let top = Self { path, _end: end };
        for pod in PODS {
            let mut path = top.path.clone();
            for part in Path::new(pod) {
                enable(&path);
                path.push(part);
                fs::create_dir_all(&path).unwrap();
            }
        }
        top
    }

    /// Runs a script in the cgroup; gives its exit code.
    fn run(&self, pod: &str, script: &str) -> i32 {
        Launch::new("sh")
            .args(["-c", &format!("echo $$ >\"$0/cgroup.procs\" && {script}")])
            .arg(self.path.join(pod))
            .said(SOON)
            .unwrap()
            .0
    }
}

/// As many controllers as there are.
fn enable(path: &Path) {
    let there = fs::read_to_string(path.join("cgroup.controllers")).unwrap();
    for name in there.split_whitespace() {
        fs::write(path.join("cgroup.subtree_control"), format!("+{name}")).unwrap();
    }
}

/// What the collector says of the families of a cgroup, by family and resource.
fn said(registry: &mut Registry, cgroup: &str) -> BTreeMap<String, f64> {
    let label = format!("{{cgroup=\"{cgroup}\"");
    let page = scrape(registry);
    let lines = page.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.strip_prefix("virtfleet_guest_cgroup_")?;
        name.contains(&label).then(|| {
            (
                name.replace(&label, "").replace([',', '}'], ""),
                value.parse().unwrap(),
            )
        })
    });
    lines.collect()
}

/// The collector alone; the cgroup `top` is the whole hierarchy that it sees.
fn registry(folder: &Path, top: &Path) -> Registry {
    fs::create_dir_all(folder.join("sys/fs")).unwrap();
    symlink(top, folder.join("sys/fs/cgroup")).unwrap();
    let roots = Roots {
        sysfs: folder.join("sys"),
        ..Roots::default()
    };
    let only = COLLECTORS
        .iter()
        .map(|entry| (entry.name.to_owned(), entry.name == "guest_cgroups"));
    let context = Found::new(roots, MetricsSettings::default());
    Registry::with_table(COLLECTORS, context, &only.collect()).unwrap()
}

#[test]
fn tier2_pods_of_both_drivers_are_reported_with_what_they_use() {
    let test = "tier2_pods_of_both_drivers_are_reported_with_what_they_use";
    let Some(unified) = skip::need(TIER, test, unified()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let top = Top::new(&unified);
    let mut registry = registry(folder.path(), &top.path);
    let shown = [
        ["kubepods.slice", "kubepods.slice/kubepods-burstable.slice"],
        ["kubepods", "kubepods/burstable"],
        ["system.slice", "system.slice/kubelet.service"],
    ];
    for (pod, cgroups) in PODS.iter().zip(shown) {
        let before = cgroups.map(|cgroup| said(&mut registry, cgroup));
        assert_eq!(
            top.run(pod, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"),
            0
        );
        for (cgroup, before) in cgroups.iter().zip(before) {
            let after = said(&mut registry, cgroup);
            assert!(
                after["cpu_seconds_total"] > before["cpu_seconds_total"] + 0.05,
                "{cgroup}: {after:?}"
            );
            for resource in ["cpu", "memory", "io"] {
                let family = format!("pressure_waiting_seconds_totalresource=\"{resource}\"");
                if Path::new("/proc/pressure").is_dir() {
                    assert!(after.contains_key(&family), "{cgroup}: {after:?}");
                }
            }
        }
        let controllers = fs::read_to_string(top.path.join("cgroup.controllers")).unwrap();
        if !controllers.split_whitespace().any(|name| name == "memory") {
            // Without the controller there is nothing to be told, and nothing is.
            let told = said(&mut registry, cgroups[1]);
            assert!(!told.contains_key("oom_kills_total") && !told.contains_key("memory_bytes"));
            eprintln!("the memory controller is not in the unified hierarchy here: no OOM kill is tried");
            continue;
        }
        let limit = 32 << 20;
        fs::write(top.path.join(pod).join("memory.max"), limit.to_string()).unwrap();
        let swap = top.path.join(pod).join("memory.swap.max");
        if swap.exists() {
            fs::write(swap, "0").unwrap();
        }
        // The shell is in the cgroup, too, and may be the one that is killed.
        assert_ne!(top.run(pod, "head -c 128M /dev/zero | tail >/dev/null"), 0);
        wait::until(SOON, "the metrics count the kill", || {
            let told = cgroups.map(|cgroup| said(&mut registry, cgroup));
            told.iter()
                .all(|told| told["oom_kills_total"] >= 1.0 && told["oom_total"] >= 1.0)
        })
        .unwrap();
        if pod.starts_with("system") {
            let told = said(&mut registry, cgroups[1]);
            assert!((told["memory_limit_bytes"] - f64::from(limit)).abs() < 1.0);
        }
    }
}
