//! Kernel users of a block device that make no exclusive claim: loop devices, and targets that
//! export it to other machines.

use std::{fs::File, path::Path, sync::mpsc::sync_channel, thread, time::Duration};

use virtfleet_agent_core::disks::DevNumber;

use super::super::{
    facts::{block, line},
    ioctl,
    observe::node_number,
};
use crate::{Roots, list};

/// Maximum time to query a loop device. The query goes to the filesystem of its file, which may be
/// on a network.
const LOOP_QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Block devices that the kernel uses without a claim, each with a description of its user.
pub(in super::super) fn users(roots: &Roots) -> Vec<(DevNumber, String)> {
    let mut found = loops(roots);
    found.extend(targets(roots));
    found
}

/// Block devices below loop devices.
fn loops(roots: &Roots) -> Vec<(DevNumber, String)> {
    let names = list(&roots.sys("block")).unwrap_or_default();
    let names = names.into_iter().filter(|name| name.starts_with("loop"));
    names
        .filter_map(|name| {
            // Only an attached loop device has this file.
            let backing = line(&block(roots, &name).join("loop/backing_file"))?;
            let by_path = backing
                .starts_with("/dev/")
                .then(|| node_number(&roots.root(&backing)))
                .flatten();
            // The path is that of the mount namespace in which it was attached; the kernel knows
            // the number.
            let number = by_path.or_else(|| query_loop(roots, &name))?;
            Some((number, format!("the loop device {name}")))
        })
        .collect()
}

/// The number of the block device below a loop device (`LOOP_GET_STATUS64`).
fn query_loop(roots: &Roots, name: &str) -> Option<DevNumber> {
    let path = roots.root(format!("/dev/{name}"));
    let (sender, answer) = sync_channel(1);
    let ask = move || {
        let number = File::open(path)
            .ok()
            .and_then(|file| ioctl::loop_backing(&file).ok());
        sender.send(number.flatten()).ok();
    };
    thread::Builder::new()
        .name("loop-status".to_owned())
        .spawn(ask)
        .ok()?;
    answer.recv_timeout(LOOP_QUERY_TIMEOUT).ok().flatten()
}

/// Devices that the kernel exports: LIO's backstores (`target_core_mod`) and nvmet's namespaces.
/// Requires a mounted configfs.
fn targets(roots: &Roots) -> Vec<(DevNumber, String)> {
    let mut found = Vec::new();
    let mut add = |file: &Path, what: String| {
        let number = line(file)
            .filter(|device| device.starts_with("/dev/"))
            .and_then(|device| node_number(&roots.root(device)));
        found.extend(number.map(|number| (number, what)));
    };
    let core = roots.sys("kernel/config/target/core");
    for adapter in list(&core).unwrap_or_default() {
        for device in list(&core.join(&adapter)).unwrap_or_default() {
            let file = core.join(&adapter).join(&device).join("udev_path");
            add(&file, format!("the kernel's target {adapter}/{device}"));
        }
    }
    let subsystems = roots.sys("kernel/config/nvmet/subsystems");
    for subsystem in list(&subsystems).unwrap_or_default() {
        let namespaces = subsystems.join(&subsystem).join("namespaces");
        for namespace in list(&namespaces).unwrap_or_default() {
            let file = namespaces.join(&namespace).join("device_path");
            add(
                &file,
                format!("the NVMe target {subsystem}, namespace {namespace}"),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn targets_name_the_device_that_they_export() {
        // The test's tree has no device nodes; a missing path or a regular file is not a use.
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let roots = Roots {
            rootfs: at("root"),
            procfs: at("proc"),
            sysfs: at("sys"),
            udev_data: at("udev"),
        };
        let iblock = roots.sys("kernel/config/target/core/iblock_0/data");
        fs::create_dir_all(&iblock).unwrap();
        fs::write(iblock.join("udev_path"), "/dev/none\n").unwrap();
        assert_eq!(targets(&roots), []);
        assert_eq!(loops(&roots), []);
    }
}
