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

/// The folder with `kube-apiserver` and `etcd`: `KUBEBUILDER_ASSETS`, else the release built by
/// `tests/parts/kubernetes.sh`, else Debian's 1.20 (`tests/parts/kube-apiserver.sh`), for a machine
/// without access to Go modules.
pub fn kube_assets() -> Result<PathBuf> {
    let names = ["kube-apiserver", "etcd"];
    if let Some(folder) = env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty()) {
        let advice = "KUBEBUILDER_ASSETS must name a folder that holds it, or be unset";
        return complete(&PathBuf::from(folder), &names, advice);
    }
    let current = complete(
        &cache()?.join("kubernetes/current"),
        &names,
        "run `tests/parts/kubernetes.sh fetch`",
    );
    match (current, oldest_kube_assets()) {
        (Err(_), Ok(oldest)) => Ok(oldest),
        (current, _) => current,
    }
}

/// [`kube_assets`], if `kube-controller-manager` and `kube-scheduler` of the same release exist
/// there. Debian's package of Kubernetes contains neither.
pub fn kube_control_plane() -> Result<PathBuf> {
    let advice = "run `tests/parts/kubernetes.sh fetch`, without KUBEBUILDER_ASSETS";
    complete(
        &kube_assets()?,
        &["kube-controller-manager", "kube-scheduler"],
        advice,
    )
}

/// The folder with Debian's `kube-apiserver` 1.20 and `etcd`: the oldest tested release.
pub fn oldest_kube_assets() -> Result<PathBuf> {
    complete(
        &cache()?.join("kube-apiserver/current"),
        &["kube-apiserver", "etcd"],
        "run `tests/parts/kube-apiserver.sh fetch`",
    )
}

/// The folder with KubeVirt's own examples and schemas: `examples/1.N/KIND.json` and
/// `schemas/1.N/KIND.yaml`.
pub fn kubevirt() -> Result<PathBuf> {
    let folder = cache()?.join("kubevirt/current");
    folder.canonicalize().with_context(|| {
        format!(
            "{} is missing; run `tests/parts/kubevirt.sh fetch`",
            folder.display()
        )
    })
}

/// The canonical path of a folder that contains these programs.
fn complete(folder: &Path, programs: &[&str], advice: &str) -> Result<PathBuf> {
    for name in programs {
        let path = folder.join(name);
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
    // `current` links to the folder named after the package's content, and is switched when that is
    // complete.
    let path = cache()?.join(part).join("current").join(path);
    path.canonicalize().with_context(|| {
        format!(
            "{} is missing; run `tests/parts/parts.sh fetch {part}`",
            path.display()
        )
    })
}
