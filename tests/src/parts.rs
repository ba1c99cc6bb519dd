//! Real servers for tier 3, from the cache that `tests/parts/parts.sh fetch` fills.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

/// Prometheus.
pub fn prometheus() -> Result<PathBuf> {
    find("prometheus", "usr/bin/prometheus")
}
/// promtool.
pub fn promtool() -> Result<PathBuf> {
    find("promtool", "usr/bin/promtool")
}
/// node_exporter.
pub fn node_exporter() -> Result<PathBuf> {
    find("node-exporter", "usr/bin/prometheus-node-exporter")
}
/// cloud-init, and the folder of its modules for Debian's python3.
pub fn cloud_init() -> Result<(PathBuf, PathBuf)> {
    let modules = find("cloud-init", "usr/lib/python3/dist-packages")?;
    Ok((find("cloud-init", "usr/bin/cloud-init")?, modules))
}
/// vmagent.
pub fn vmagent() -> Result<PathBuf> {
    find("vmagent", "usr/bin/vmagent")
}

/// The folder with `kube-apiserver` and `etcd`: `KUBEBUILDER_ASSETS`, else what `tests/parts/kube-apiserver.sh` has built.
pub fn kube_assets() -> Result<PathBuf> {
    let given = env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty());
    let folder = match &given {
        Some(folder) => PathBuf::from(folder),
        None => cache()?.join("kube-apiserver/current"),
    };
    for name in ["kube-apiserver", "etcd"] {
        let path = folder.join(name);
        let advice = match &given {
            Some(_) => "KUBEBUILDER_ASSETS must name a folder that holds it, or be unset",
            None => "run `tests/parts/kube-apiserver.sh fetch`",
        };
        ensure!(path.is_file(), "{} is missing; {advice}", path.display());
    }
    folder
        .canonicalize()
        .with_context(|| folder.display().to_string())
}

/// The folder of unpacked parts: `VIRTFLEET_PARTS`, else `virtfleet/parts` in the user's cache.
fn cache() -> Result<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("VIRTFLEET_PARTS")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("virtfleet/parts")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/virtfleet/parts")))
        .context("none of VIRTFLEET_PARTS, XDG_CACHE_HOME and HOME is set")
}

fn find(part: &str, path: impl AsRef<Path>) -> Result<PathBuf> {
    // `current` is a link to the folder named by the package's content, switched when that is complete.
    let path = cache()?.join(part).join("current").join(path);
    path.canonicalize().with_context(|| {
        format!(
            "{} is missing; run `tests/parts/parts.sh fetch {part}`",
            path.display()
        )
    })
}
