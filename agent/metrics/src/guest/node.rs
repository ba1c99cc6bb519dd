//! `guest_node`: CPU steal, limits that are nearly reached, filesystems that became read-only, and
//! whether a reboot is required.

use std::{collections::HashSet, sync::Arc, time::Duration};

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
use virtfleet_agent_host::{MachineCalls, MountProbe, Reread, Roots, StatfsOutcome, exists};
use virtfleet_wire::exposition::{MetricType, Page};

use super::files;
use crate::{
    CollectError, Collector, Context, RegistryError,
    attributes::number_in,
    mounts::{MountInfo, Targets, Topmost, shown},
};

/// Maximum time for filesystems to report their inodes.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of filesystems that are probed, and of read-only ones that are listed.
const MAX_FILESYSTEMS: usize = 64;

struct Node {
    roots: Roots,
    machine: Arc<dyn MachineCalls>,
    stat: Reread,
    mounts: MountInfo,
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
        stat: proc("stat").single_record(),
        mounts: MountInfo::new(&context.roots),
        entries: proc("sys/net/netfilter/nf_conntrack_count").single_record(),
        limit: proc("sys/net/netfilter/nf_conntrack_max").single_record(),
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
                "Share of CPU time since the last scrape that the hypervisor used for others (steal), from 0 to 1.",
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
        let number = |file: &mut Reread| number_in(file).ok();
        if let (Some(entries), Some(limit)) = (number(&mut self.entries), number(&mut self.limit))
            && limit > 0.0
        {
            page.gauge(
                "virtfleet_guest_conntrack_used_ratio",
                "Used share of the connection tracking table, from 0 to 1.",
                entries / limit,
            );
        }
    }

    fn filesystems(&mut self, page: &mut Page) -> Result<(), CollectError> {
        // The collector `filesystem` reports all errors.
        let Ok((_, bytes)) = self.mounts.refresh() else {
            return Ok(());
        };
        let all: Vec<Mount<'_>> = mounts(bytes).filter_map(Result::ok).collect();
        let mut devices = HashSet::new();
        let shut = self.remounts.look(&all);
        page.gauge(
            "virtfleet_guest_filesystems_turned_read_only",
            "Filesystems that were mounted writable and became read-only.",
            shut.len() as f64,
        );
        let mut family = page.family(
            "virtfleet_guest_filesystem_turned_read_only",
            "A filesystem that was mounted writable and became read-only, always 1.",
            MetricType::Gauge,
        );
        let mut labelled = HashSet::new();
        for mount in shut.iter().take(MAX_FILESYSTEMS) {
            let [device, point, kind] =
                [mount.source, shown(&self.roots, mount), mount.fs_type].map(String::from_utf8_lossy);
            if labelled.insert((device.clone(), point.clone())) {
                family.sample(
                    &[("device", &device), ("mountpoint", &point), ("fstype", &kind)],
                    1.0,
                );
            }
        }
        let mut targets = Targets::default();
        let mut probed = Vec::new();
        let topmost = Topmost::new(&all);
        for mount in &all {
            if is_watched(mount.fs_type)
                && topmost.is(mount)
                && devices.len() < MAX_FILESYSTEMS
                && devices.insert((mount.major, mount.minor))
                && targets.place(&self.roots, mount) == probed.len()
            {
                probed.push(mount);
            }
        }
        let outcomes = self
            .probe
            .probe(&targets.all)
            .map_err(|error| CollectError::because("cannot start a thread to probe mounts", error))?;
        let mut family = page.family(
            "virtfleet_guest_filesystem_inodes_used_ratio",
            "Used share of a filesystem's inodes, from 0 to 1.",
            MetricType::Gauge,
        );
        for (mount, outcome) in probed.into_iter().zip(outcomes) {
            // btrfs and vfat create inodes on demand and report 0.
            if let StatfsOutcome::Space(space) = outcome
                && let Some(used) = space.files.checked_sub(space.files_free)
                && space.files > 0
            {
                let point = String::from_utf8_lossy(shown(&self.roots, mount));
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
        // Packages create this file (unattended-upgrades(8), update-notifier).
        let marked = exists(&self.roots.root("/run/reboot-required"));
        if marked || like(&["debian", "ubuntu"]) {
            reasons.push(("package", marked));
        }
        if like(&["rhel", "fedora", "centos"])
            && let Ok(uname) = self.machine.uname()
        {
            let modules = self.roots.root("/lib/modules");
            let mut kernels = files::folders(&modules);
            // A removed package leaves a directory without a kernel.
            kernels.retain(|name| exists(&modules.join(name).join("vmlinuz")));
            let newer = newer_installed(&uname.release, kernels.iter().map(String::as_str));
            reasons.extend(newer.map(|newer| ("kernel", newer)));
        }
        let mut family = page.family(
            "virtfleet_guest_reboot_required",
            "Whether a reboot is required: a package requests it, or a newer kernel is installed.",
            MetricType::Gauge,
        );
        for (reason, is_due) in reasons {
            family.sample(&[("reason", reason)], f64::from(u8::from(is_due)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use virtfleet_agent_host::{Errno, FsSpace, Statfs};
    use virtfleet_wire::settings::MetricsSettings;

    use super::*;

    /// A kernel with the mounts of a guest below `/host`.
    struct GuestBelowHost;

    impl Statfs for GuestBelowHost {
        fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
            let files = match path.to_str() {
                Some("/host/" | "/host") => 100,
                Some("/host/var") => 200,
                // A mount that covers another.
                Some("/host/data" | "/host/gone") => 500,
                Some("/host/srv") => 1000,
                _ => return Err(Errno::ENOENT),
            };
            Ok(FsSpace {
                size: 1,
                free: 1,
                available: 1,
                files,
                files_free: 50,
            })
        }
    }

    /// The page of a guest with these mounts.
    fn page(mountinfo: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("1")).unwrap();
        fs::write(dir.path().join("1/mountinfo"), mountinfo).unwrap();
        let roots = Roots {
            procfs: dir.path().into(),
            rootfs: "/host".into(),
            ..Roots::default()
        };
        let mut context = Context::new(roots, MetricsSettings::default());
        context.statfs = Arc::new(GuestBelowHost);
        let mut page = Page::new();
        new(&context).unwrap().collect(&mut page).unwrap();
        page.to_text()
    }

    #[test]
    fn covered_mounts_are_probed_at_another_mount_point_or_not_at_all() {
        let page = page(
            "1 0 8:1 / /host rw - ext4 /dev/a rw\n2 1 8:2 / /host/data rw - ext4 /dev/b rw\n\
             3 2 0:40 / /host/data rw - nfs4 away:/data rw\n4 1 8:2 /x /host/srv rw - ext4 /dev/b rw\n\
             5 1 8:3 / /host/gone rw - xfs /dev/c rw\n6 5 0:41 / /host/gone rw - tmpfs tmpfs rw\n",
        );
        let ratios: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix("virtfleet_guest_filesystem_inodes_used_ratio"))
            .collect();
        assert_eq!(ratios, ["{mountpoint=\"/\"} 0.5", "{mountpoint=\"/srv\"} 0.95"]);
    }

    #[test]
    fn mount_points_are_those_of_the_guest_under_another_root() {
        let page = page(
            "1 0 8:1 / /host rw - ext4 /dev/a rw\n2 1 8:2 / /host/var rw - ext4 /dev/b rw\n\
             3 1 8:3 / /host/ro rw - ext4 /dev/c ro\n",
        );
        for expected in [
            "virtfleet_guest_filesystem_inodes_used_ratio{mountpoint=\"/\"} 0.5\n",
            "virtfleet_guest_filesystem_inodes_used_ratio{mountpoint=\"/var\"} 0.75\n",
            "turned_read_only{device=\"/dev/c\",mountpoint=\"/ro\",fstype=\"ext4\"} 1\n",
        ] {
            assert!(page.contains(expected), "{expected}{page}");
        }
    }
}
