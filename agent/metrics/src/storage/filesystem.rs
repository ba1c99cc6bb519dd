//! `filesystem`: space and state of mounts, from `/proc/1/mountinfo` and statfs. A mount that hangs
//! never blocks a scrape.
//!
//! mountinfo rarely changes, so the filters are applied only when its text changes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use virtfleet_agent_core::{
    procfs::mountinfo::mounts,
    settings::{NameFilter, filters},
};
use virtfleet_agent_host::Errno;
use virtfleet_agent_host::{FsSpace, MountProbe, MountTarget, Roots, StatfsOutcome};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{
    CollectError, Collector, Context, RegistryError, Skipped,
    mounts::{MountInfo, Targets, shown as shown_at},
};

struct Filesystem {
    roots: Roots,
    info: MountInfo,
    mount_filter: NameFilter,
    type_filter: NameFilter,
    probe: MountProbe,
    /// The mountinfo from which `mounts` and `targets` were computed.
    text: Vec<u8>,
    /// The malformed lines of that mountinfo.
    skipped: Skipped,
    mounts: Vec<ExportedMount>,
    targets: Vec<MountTarget>,
}

#[derive(Debug, PartialEq, Eq)]
struct ExportedMount {
    device: String,
    mount_point: String,
    fs_type: String,
    major: String,
    minor: String,
    read_only: bool,
    /// True if no other mount has the same labels in `node_filesystem_mount_info`.
    has_mount_info: bool,
    /// Index in the targets.
    target: usize,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.filesystem;
    let timeout = filters::mount_timeout(settings)?;
    Ok(Box::new(Filesystem {
        mount_filter: filters::mount_points(settings)?,
        type_filter: filters::filesystem_types(settings)?,
        info: MountInfo::new(&context.roots),
        probe: MountProbe::new(Arc::clone(&context.statfs), timeout),
        roots: context.roots.clone(),
        text: Vec::new(),
        skipped: Skipped::default(),
        mounts: Vec::new(),
        targets: Vec::new(),
    }))
}

impl Collector for Filesystem {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        self.refresh()?;
        let outcomes = self
            .probe
            .probe(&self.targets)
            .map_err(|error| CollectError::because("cannot start a thread to probe mounts", error))?;
        write(page, &self.mounts, &outcomes);
        self.skipped.end()
    }
}

impl Filesystem {
    fn refresh(&mut self) -> Result<(), CollectError> {
        let (path, text) = self.info.refresh()?;
        if text.is_empty() {
            return Err(CollectError::failed(format!("{} is empty", path.display())));
        }
        if text == self.text {
            return Ok(());
        }
        let mut shown: Vec<ExportedMount> = Vec::new();
        let mut targets = Targets::default();
        let mut by_labels = HashMap::new();
        self.skipped = Skipped::default();
        for mount in self.skipped.valid(path, mounts(text)) {
            let label = String::from_utf8_lossy(shown_at(&self.roots, &mount)).into_owned();
            let fs_type = String::from_utf8_lossy(mount.fs_type);
            if !self.mount_filter.takes(&label) || !self.type_filter.takes(&fs_type) {
                continue;
            }
            let target = targets.place(&self.roots, &mount);
            let mount = ExportedMount {
                device: String::from_utf8_lossy(mount.source).into_owned(),
                mount_point: label,
                fs_type: fs_type.into_owned(),
                major: mount.major.to_string(),
                minor: mount.minor.to_string(),
                read_only: mount.read_only,
                has_mount_info: false,
                target,
            };
            let labels = (
                mount.device.clone(),
                mount.mount_point.clone(),
                mount.fs_type.clone(),
            );
            // Of several mounts with the same labels, the topmost is exported.
            if let Some(at) = by_labels.get(&labels) {
                shown[*at] = mount;
            } else {
                by_labels.insert(labels, shown.len());
                shown.push(mount);
            }
        }
        let mut informed = HashSet::new();
        for mount in &mut shown {
            mount.has_mount_info = informed.insert((mount.target, &mount.device, &mount.major, &mount.minor));
        }
        self.mounts = shown;
        self.targets = targets.all;
        self.text.clear();
        self.text.extend_from_slice(text);
        Ok(())
    }
}

fn device_error(outcome: &StatfsOutcome) -> String {
    match outcome {
        StatfsOutcome::Space(_) => String::new(),
        StatfsOutcome::TimedOut => "mountpoint timeout".to_owned(),
        // node_exporter uses Go's terms: lower case, and older texts for these.
        StatfsOutcome::Failed(Errno::EIO) => "input/output error".to_owned(),
        StatfsOutcome::Failed(Errno::ESTALE) => "stale NFS file handle".to_owned(),
        StatfsOutcome::Failed(Errno::ELOOP) => "too many levels of symbolic links".to_owned(),
        StatfsOutcome::Failed(errno) => {
            let mut text = errno.desc().to_owned();
            if let Some(first) = text.get_mut(..1) {
                first.make_ascii_lowercase();
            }
            text
        }
    }
}

/// Name, HELP and value of a family about space.
type SpaceFamily = (&'static str, &'static str, fn(&FsSpace) -> u64);

fn write(page: &mut Page, mounts: &[ExportedMount], outcomes: &[StatfsOutcome]) {
    let rows: Vec<_> = mounts
        .iter()
        .filter_map(|mount| {
            let outcome = outcomes.get(mount.target)?;
            Some((mount, outcome, device_error(outcome)))
        })
        .collect();
    let mut gauge =
        |name: &str, help: &str, value: &dyn Fn(&ExportedMount, &StatfsOutcome) -> Option<f64>| {
            let mut family = page.family(name, help, MetricType::Gauge);
            for (mount, outcome, error) in &rows {
                if let Some(value) = value(mount, outcome) {
                    let labels = [
                        ("device", mount.device.as_str()),
                        ("mountpoint", &mount.mount_point),
                        ("fstype", &mount.fs_type),
                        ("device_error", error),
                    ];
                    family.sample(&labels, value);
                }
            }
        };
    gauge(
        "node_filesystem_device_error",
        "Whether statfs failed for the filesystem.",
        &|_, outcome| Some(f64::from(u8::from(!matches!(outcome, StatfsOutcome::Space(_))))),
    );
    gauge(
        "node_filesystem_readonly",
        "Whether the filesystem is read-only.",
        &|mount, _| Some(f64::from(u8::from(mount.read_only))),
    );
    let spaces: [SpaceFamily; 6] = [
        (
            "node_filesystem_size_bytes",
            "Filesystem size in bytes.",
            |space| space.size,
        ),
        (
            "node_filesystem_free_bytes",
            "Filesystem free space in bytes.",
            |space| space.free,
        ),
        (
            "node_filesystem_avail_bytes",
            "Filesystem space available to non-root users in bytes.",
            |space| space.available,
        ),
        ("node_filesystem_files", "Filesystem total file nodes.", |space| {
            space.files
        }),
        (
            "node_filesystem_files_free",
            "Filesystem total free file nodes.",
            |space| space.files_free,
        ),
        (
            "node_filesystem_purgeable_bytes",
            "Purgeable space on macOS, always 0 on Linux, where node_exporter exports it too.",
            |_| 0,
        ),
    ];
    for (name, help, field) in spaces {
        gauge(name, help, &|_, outcome| match outcome {
            StatfsOutcome::Space(space) => Some(field(space) as f64),
            StatfsOutcome::Failed(_) | StatfsOutcome::TimedOut => None,
        });
    }
    let mut family = page.family(
        "node_filesystem_mount_info",
        "Device and mount point of a mount, always 1.",
        MetricType::Gauge,
    );
    for (mount, outcome, _) in &rows {
        if mount.has_mount_info && matches!(outcome, StatfsOutcome::Space(_)) {
            let labels = [
                ("device", mount.device.as_str()),
                ("major", &mount.major),
                ("minor", &mount.minor),
                ("mountpoint", &mount.mount_point),
            ];
            family.sample(&labels, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_wire::settings::MetricsSettings;

    use super::*;

    #[test]
    fn errors_have_node_exporters_texts() {
        for (errno, text) in [
            (Errno::EACCES, "permission denied"),
            (Errno::ENOENT, "no such file or directory"),
            (Errno::EIO, "input/output error"),
            (Errno::ENOTCONN, "transport endpoint is not connected"),
            (Errno::ESTALE, "stale NFS file handle"),
        ] {
            assert_eq!(device_error(&StatfsOutcome::Failed(errno)), text);
        }
    }

    #[test]
    fn the_topmost_mount_with_the_same_labels_is_exported_and_changes_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            procfs: dir.path().into(),
            ..Roots::default()
        };
        fs::create_dir(dir.path().join("1")).unwrap();
        let write = |text: &str| fs::write(dir.path().join("1/mountinfo"), text).unwrap();
        write(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 / / ro - ext4 /dev/a rw\n3 1 0:9 / / rw - rootfs none rw\n",
        );
        let mut collector = new(&Context::new(roots, MetricsSettings::default())).unwrap();
        let mut page = Page::new();
        collector.collect(&mut page).unwrap();
        let text = page.to_text();
        assert!(text.contains(
            "node_filesystem_readonly{device=\"/dev/a\",mountpoint=\"/\",fstype=\"ext4\",device_error=\"\"} 1"
        ));
        assert_eq!(text.matches("node_filesystem_size_bytes{").count(), 2, "{text}");
        write("1 0 8:1 / / rw - ext4 /dev/b rw\n");
        page.clear();
        collector.collect(&mut page).unwrap();
        assert!(page.to_text().contains("readonly{device=\"/dev/b\""));
        write("1 0 8:1 / /");
        assert!(collector.collect(&mut page).is_err());
        write("");
        let error = collector.collect(&mut page).unwrap_err().to_string();
        assert!(error.ends_with("1/mountinfo is empty"), "{error}");
    }
}
