//! fstab, and units and drop-ins at the paths that the agent uses.

use std::{collections::BTreeMap, path::Path};

use crate::{Roots, list, read_text};

/// systemd's unit directory with the highest precedence.
pub const UNITS: &str = "/etc/systemd/system";
const FSTAB: &str = "/etc/fstab";
/// Prefix of the agent's drop-ins.
const DROP_IN: &str = "50-virtfleet";
const MAX_FILE_BYTES: usize = 1 << 20;

/// Every file at a path that the agent may write, by path. With systemd: mount and swap units,
/// services that start with `virtfleet-`, and drop-ins that start with `50-virtfleet`. Without
/// systemd: fstab. A file that is not readable text (a mask is a link to `/dev/null`) is included
/// with empty content.
pub fn disk_files(roots: &Roots, systemd: bool) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut take = |path: String| {
        let text = read_text(&roots.root(&path), MAX_FILE_BYTES).unwrap_or_default();
        files.insert(path, text);
    };
    if !systemd {
        if roots.root(FSTAB).exists() {
            take(FSTAB.to_owned());
        }
        return files;
    }
    for name in list(&roots.root(UNITS)).unwrap_or_default() {
        let path = format!("{UNITS}/{name}");
        let is = |end: &str| {
            Path::new(&name)
                .extension()
                .is_some_and(|extension| extension == end)
        };
        if is("mount") || is("swap") || (is("service") && name.starts_with("virtfleet-")) {
            take(path);
        } else if is("d") {
            for drop_in in list(&roots.root(&path)).unwrap_or_default() {
                if drop_in.starts_with(DROP_IN) {
                    take(format!("{path}/{drop_in}"));
                }
            }
        }
    }
    files
}

/// True if systemd's directory contains the unit.
pub fn disk_unit_file_there(roots: &Roots, unit: &str) -> bool {
    roots.root(UNITS).join(unit).is_file()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn own_files_and_files_at_their_paths_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        assert!(disk_files(&roots, true).is_empty() && disk_files(&roots, false).is_empty());
        let at = |path: &str| dir.path().join("etc/systemd/system").join(path);
        fs::create_dir_all(at("kubelet.service.d")).unwrap();
        fs::write(at("kubelet.service.d/50-virtfleet-disks.conf"), "ours").unwrap();
        fs::write(at("kubelet.service.d/10-other.conf"), "other").unwrap();
        fs::write(at("data.mount"), "unit").unwrap();
        fs::write(at("other.service"), "unit").unwrap();
        symlink("/dev/null", at("masked.mount")).unwrap();
        fs::write(dir.path().join("etc/fstab"), "# none\n").unwrap();
        let files = disk_files(&roots, true);
        let found: Vec<_> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("/etc/systemd/system/data.mount", "unit"),
                (
                    "/etc/systemd/system/kubelet.service.d/50-virtfleet-disks.conf",
                    "ours"
                ),
                ("/etc/systemd/system/masked.mount", ""),
            ]
        );
        assert_eq!(disk_files(&roots, false).len(), 1);
    }
}
