//! `guest_node`: what the host denies, what is about to run out, which filesystems turned read-only, and whether a reboot is due.

use std::{
    collections::HashSet, ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc, time::Duration,
};

use virtfleet_agent_core::{
    guest::{
        kernels::newer_installed,
        remounts::{Remounts, is_watched},
        steal::{Steal, sums},
    },
    procfs::{
        mountinfo::{Mount, mounts},
        os_release::assignments,
    },
};
use virtfleet_wire::exposition::{MetricType, Page};

use super::files;
use crate::host::{Machine, MountProbe, Outcome, Reread, Roots, Target};
use crate::metrics::{CollectError, Collector, Context, RegistryError};

/// How long filesystems may take to say how many inodes they have.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Filesystems that are asked at the most, and read-only ones that are named.
const MOST: usize = 64;

struct Node {
    roots: Roots,
    machine: Arc<dyn Machine>,
    stat: Reread,
    init: Reread,
    own: Reread,
    entries: Reread,
    limit: Reread,
    steal: Steal,
    remounts: Remounts,
    probe: MountProbe,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let proc = |path: &str| Reread::new(context.roots.proc(path));
    Ok(Box::new(Node {
        stat: proc("stat").made_at_once(),
        init: proc("1/mountinfo"),
        own: proc("self/mountinfo"),
        entries: proc("sys/net/netfilter/nf_conntrack_count").made_at_once(),
        limit: proc("sys/net/netfilter/nf_conntrack_max").made_at_once(),
        steal: Steal::default(),
        remounts: Remounts::default(),
        probe: MountProbe::new(Arc::clone(&context.statfs), TIMEOUT),
        machine: Arc::clone(&context.machine),
        roots: context.roots.clone(),
        buffer: Vec::new(),
    }))
}

impl Collector for Node {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        if let Some(sums) = self.stat.text().ok().and_then(|text| sums(&text)) {
            page.gauge(
                "virtfleet_guest_cpu_steal_ratio",
                "The share of CPU time since the last scrape in which the host ran others, from 0 to 1.",
                self.steal.share(sums),
            );
        }
        self.conntrack(page);
        self.filesystems(page)?;
        self.reboot(page);
        Ok(())
    }
}

impl Node {
    fn conntrack(&mut self, page: &mut Page) {
        let number = |file: &mut Reread| file.text().ok()?.trim().parse::<u64>().ok();
        if let (Some(entries), Some(limit)) = (number(&mut self.entries), number(&mut self.limit))
            && limit > 0
        {
            page.gauge(
                "virtfleet_guest_conntrack_used_ratio",
                "The share of the table of tracked connections that is used, from 0 to 1.",
                entries as f64 / limit as f64,
            );
        }
    }

    fn filesystems(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let bytes = match self.init.refresh() {
            Ok(()) => self.init.bytes(),
            Err(_) if self.own.refresh().is_ok() => self.own.bytes(),
            Err(_) => return Ok(()),
        };
        // A line that is broken is told by the collector `filesystem`.
        let mut all: Vec<Mount<'_>> = mounts(bytes).filter_map(Result::ok).collect();
        let mut devices = HashSet::new();
        let shut = self.remounts.look(&all);
        page.gauge(
            "virtfleet_guest_filesystems_turned_read_only",
            "Filesystems that were writable and are not any more.",
            shut.len() as f64,
        );
        let mut family = page.family(
            "virtfleet_guest_filesystem_turned_read_only",
            "A filesystem that was writable and is not any more, always 1.",
            MetricType::Gauge,
        );
        let mut labelled = HashSet::new();
        for mount in shut.iter().take(MOST) {
            let [device, point, kind] =
                [mount.source, &mount.mount_point, mount.fs_type].map(String::from_utf8_lossy);
            if labelled.insert((device.clone(), point.clone())) {
                family.sample(
                    &[("device", &device), ("mountpoint", &point), ("fstype", &kind)],
                    1.0,
                );
            }
        }
        all.retain(|mount| {
            is_watched(mount.fs_type) && devices.len() < MOST && devices.insert((mount.major, mount.minor))
        });
        let mut points = HashSet::new();
        all.retain(|mount| points.insert(mount.mount_point.to_vec()));
        let targets: Vec<_> = all
            .iter()
            .map(|mount| {
                let point = Path::new(OsStr::from_bytes(&mount.mount_point));
                let path = if point.starts_with(&self.roots.rootfs) {
                    point.to_owned()
                } else {
                    self.roots.root(point)
                };
                Target {
                    mount_id: mount.id,
                    path: path.into(),
                }
            })
            .collect();
        let outcomes = self
            .probe
            .probe(&targets)
            .map_err(|error| CollectError::because("cannot start a thread to ask mounts", error))?;
        let mut family = page.family(
            "virtfleet_guest_filesystem_inodes_used_ratio",
            "The share of a filesystem's inodes that is used, from 0 to 1.",
            MetricType::Gauge,
        );
        for (mount, outcome) in all.iter().zip(outcomes) {
            // btrfs and vfat make inodes as they need them, and say 0.
            if let Outcome::Space(space) = outcome
                && let Some(used) = space.files.checked_sub(space.files_free)
                && space.files > 0
            {
                let point = String::from_utf8_lossy(&mount.mount_point);
                family.sample(&[("mountpoint", &point)], used as f64 / space.files as f64);
            }
        }
        Ok(())
    }

    fn reboot(&mut self, page: &mut Page) {
        let mut reasons = Vec::new();
        let release = ["/etc/os-release", "/usr/lib/os-release"]
            .iter()
            .find_map(|path| files::text(&self.roots.root(path), &mut self.buffer).map(ToOwned::to_owned))
            .unwrap_or_default();
        let like = |family: &[&str]| {
            assignments(&release)
                .filter(|(key, _)| *key == "ID" || *key == "ID_LIKE")
                .any(|(_, value)| value.split_ascii_whitespace().any(|word| family.contains(&word)))
        };
        // Packages leave the file there (unattended-upgrades(8), update-notifier); without it none has asked.
        let marked = self.roots.root("/run/reboot-required").exists();
        if marked || like(&["debian", "ubuntu"]) {
            reasons.push(("package", marked));
        }
        if like(&["rhel", "fedora", "centos"])
            && let Ok(uname) = self.machine.uname()
        {
            let modules = self.roots.root("/lib/modules");
            let mut kernels = files::folders(&modules);
            // A folder without its kernel is what a removed package left behind.
            kernels.retain(|name| modules.join(name).join("vmlinuz").exists());
            let newer = newer_installed(&uname.release, kernels.iter().map(String::as_str));
            reasons.extend(newer.map(|newer| ("kernel", newer)));
        }
        let mut family = page.family(
            "virtfleet_guest_reboot_required",
            "Whether a reboot is due: a package asked for it, or a newer kernel is installed.",
            MetricType::Gauge,
        );
        for (reason, is_due) in reasons {
            family.sample(&[("reason", reason)], f64::from(u8::from(is_due)));
        }
    }
}
