//! The agent's files, files at the paths that it writes, and other configuration of
//! systemd-resolved.

use std::collections::BTreeMap;

use virtfleet_agent_core::dns::{
    ours,
    seen::{Kubelet, Link},
};

use super::{MAX_FILE_BYTES, given::ends};
use crate::{Roots, list, read_text};

/// systemd's configuration directories, highest precedence first: of files with the same name, the
/// first is used.
pub(in super::super) const FOLDERS: [&str; 4] = [
    "/etc/systemd",
    "/run/systemd",
    "/usr/local/lib/systemd",
    "/usr/lib/systemd",
];

/// The files' text by path. An unreadable file (a mask is a link to `/dev/null`) is included with
/// empty text.
pub(super) fn files(roots: &Roots, links: &[Link], kubelet: Option<&Kubelet>) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut take = |path: &str| {
        let at = roots.root(path);
        let there = at.symlink_metadata().is_ok();
        if there {
            let text = read_text(&at, MAX_FILE_BYTES).unwrap_or_default();
            files.insert(path.to_owned(), text);
        }
        there
    };
    for path in ours::PATHS {
        take(path);
    }
    take(&format!("{}/{}", ours::KUBELET_FOLDER, ours::KUBELET_DROP_IN));
    if let Some(path) = kubelet.and_then(ours::kubelet_drop_in) {
        take(&path);
    }
    for link in links {
        if let Some(path) = link.profile.as_deref().and_then(ours::networkd_drop_in) {
            take(&path);
        }
    }
    // Includes directories of profiles that no longer exist.
    for name in list(&roots.root(ours::NETWORKD)).unwrap_or_default() {
        if name.ends_with(".network.d") {
            take(&format!("{}/{name}/{}", ours::NETWORKD, ours::DROP_IN));
        }
    }
    FOLDERS
        .iter()
        .any(|folder| take(&format!("{folder}/resolved.conf")));
    let mut seen = Vec::new();
    for folder in FOLDERS {
        let folder = format!("{folder}/resolved.conf.d");
        for name in list(&roots.root(&folder)).unwrap_or_default() {
            if ends(&name, "conf") && !seen.contains(&name) {
                take(&format!("{folder}/{name}"));
                seen.push(name);
            }
        }
    }
    files
}
