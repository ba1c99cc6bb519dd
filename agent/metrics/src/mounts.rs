//! The guest's mounts for collectors: the mounts of PID 1, with the paths of the guest, and the
//! path at which each can be probed.

use std::{collections::HashMap, ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

use virtfleet_agent_core::procfs::mountinfo::Mount;
use virtfleet_agent_host::{MountTarget, Reread, RereadError, Roots};

/// mountinfo of PID 1. The agent's own may be restricted by its unit's hardening.
#[derive(Debug)]
pub(super) struct MountInfo {
    init: Reread,
    /// Fallback for guests that hide other users' processes.
    own: Reread,
}

impl MountInfo {
    /// Does not read the file before the first [`MountInfo::refresh`].
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            init: Reread::new(roots.proc("1/mountinfo")),
            own: Reread::new(roots.proc("self/mountinfo")),
        }
    }

    /// Reads the file: returns the path that could be read, and its bytes.
    pub(super) fn refresh(&mut self) -> Result<(&Path, &[u8]), RereadError> {
        let file = match self.init.refresh() {
            Err(error) if error.is_missing() || error.is_denied() => {
                self.own.refresh()?;
                &self.own
            }
            done => {
                done?;
                &self.init
            }
        };
        Ok((file.path(), file.bytes()))
    }
}

/// The mount point in the guest, if the guest's root filesystem is not `/`.
pub(super) fn shown<'mount>(roots: &Roots, mount: &'mount Mount<'_>) -> &'mount [u8] {
    let path = Path::new(OsStr::from_bytes(&mount.mount_point));
    match path.strip_prefix(&roots.rootfs) {
        Ok(_) if roots.rootfs == Path::new("/") => &mount.mount_point,
        Ok(rest) if rest.as_os_str().is_empty() => b"/",
        Ok(rest) => &mount.mount_point[mount.mount_point.len() - rest.as_os_str().len() - 1..],
        Err(_) => &mount.mount_point,
    }
}

/// Mounts that can be probed at their mount points. A covered mount cannot: its path leads to the
/// covering mount, which has other numbers or may hang.
#[derive(Debug)]
pub(super) struct Topmost<'mounts>(HashMap<&'mounts [u8], u32>);

impl<'mounts> Topmost<'mounts> {
    /// `all`: in the kernel's order; a later mount covers an earlier one.
    pub(super) fn new(all: &'mounts [Mount<'_>]) -> Self {
        Self(all.iter().map(|mount| (&*mount.mount_point, mount.id)).collect())
    }

    /// True if no other mount covers this one.
    pub(super) fn is(&self, mount: &Mount<'_>) -> bool {
        self.0.get(&*mount.mount_point) == Some(&mount.id)
    }
}

/// The paths to probe, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) all: Vec<MountTarget>,
    by_path: HashMap<Arc<Path>, usize>,
}

impl Targets {
    /// Index of a mount in [`Targets::all`]. Of stacked mounts, only the last can be probed.
    pub(super) fn place(&mut self, roots: &Roots, mount: &Mount<'_>) -> usize {
        let path: Arc<Path> = roots
            .root(Path::new(OsStr::from_bytes(shown(roots, mount))))
            .into();
        let place = *self.by_path.entry(Arc::clone(&path)).or_insert(self.all.len());
        let target = MountTarget {
            mount_id: mount.id,
            path,
        };
        match self.all.get_mut(place) {
            Some(earlier) => *earlier = target,
            None => self.all.push(target),
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: &[u8]) -> Mount<'_> {
        Mount {
            id: 1,
            major: 0,
            minor: 0,
            mount_point: path.into(),
            fs_type: b"ext4",
            source: b"/dev/vda1",
            root: b"/".into(),
            options: b"rw",
            super_options: b"rw",
            read_only: false,
        }
    }

    #[test]
    fn the_root_filesystems_prefix_is_stripped() {
        for (rootfs, path, shown) in [
            ("/", "/", "/"),
            ("/", "/boot", "/boot"),
            ("/host", "/host", "/"),
            ("/host", "/host/boot/efi", "/boot/efi"),
            ("/host", "/hostile", "/hostile"),
            ("/host/", "/host/boot", "/boot"),
            ("/host", "/", "/"),
        ] {
            let roots = Roots {
                rootfs: rootfs.into(),
                ..Roots::default()
            };
            let mount = mount(path.as_bytes());
            let found = String::from_utf8_lossy(super::shown(&roots, &mount));
            assert_eq!(found, shown, "{path} under {rootfs}");
        }
    }

    #[test]
    fn the_last_of_stacked_mounts_is_probed_below_the_root() {
        let roots = Roots {
            rootfs: "/host".into(),
            ..Roots::default()
        };
        let mut targets = Targets::default();
        assert_eq!(targets.place(&roots, &mount(b"/host/boot")), 0);
        assert_eq!(targets.place(&roots, &mount(b"/host")), 1);
        let top = Mount {
            id: 9,
            ..mount(b"/host/boot")
        };
        assert_eq!(targets.place(&roots, &top), 0);
        assert_eq!(&*targets.all[0].path, Path::new("/host/boot"));
        assert_eq!((targets.all.len(), targets.all[0].mount_id), (2, 9));
    }
}
