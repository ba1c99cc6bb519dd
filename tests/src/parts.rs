//! Real servers for tier 3, from the cache that `tests/parts/parts.sh fetch` fills.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{process::Launch, skip::program};

/// Timeout of a script that inspects a cache.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(20);

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
/// VictoriaMetrics, of the same package as vmagent.
pub fn victoria_metrics() -> Result<PathBuf> {
    find("vmagent", "usr/bin/victoria-metrics")
}
/// The Go module of Prometheus' compliance tests for senders of remote write, in a copy of
/// github.com/prometheus/compliance that `VIRTFLEET_COMPLIANCE` names. The module proxy of Go does
/// not have the module.
pub fn compliance() -> Result<PathBuf> {
    let variable = "VIRTFLEET_COMPLIANCE";
    let folder = env::var_os(variable).filter(|value| !value.is_empty());
    let folder = folder.with_context(|| {
        format!("{variable} is not set; it names a copy of github.com/prometheus/compliance")
    })?;
    complete(
        &PathBuf::from(folder).join("remotewrite/sender"),
        &["go.mod"],
        "VIRTFLEET_COMPLIANCE names a copy of github.com/prometheus/compliance",
    )
}

/// A browser, and the folder of the modules that drive it (`tests/parts/web.sh`).
#[derive(Debug)]
pub struct Browser {
    /// Chromium.
    pub chromium: PathBuf,
    /// Node.js.
    pub node: PathBuf,
    /// Folder with `node_modules`.
    pub modules: PathBuf,
}

/// What tests of the web page need.
pub fn browser() -> Result<Browser> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/web.sh");
    let modules = Launch::new(script).arg("path").text(SCRIPT_TIMEOUT)?;
    Ok(Browser {
        chromium: program("chromium")?,
        node: program("node")?,
        modules: modules.trim().into(),
    })
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

/// The folder with prometheus-operator's CustomResourceDefinitions, `KINDS.yaml` each.
pub fn prometheus_operator() -> Result<PathBuf> {
    let folder = cache()?.join("prometheus-operator/current");
    folder.canonicalize().with_context(|| {
        format!(
            "{} is missing; run `tests/parts/prometheus-operator.sh fetch`",
            folder.display()
        )
    })
}

/// kubeconform.
pub fn kubeconform() -> Result<PathBuf> {
    let folder = cache()?.join("kubeconform/current");
    let folder = complete(
        &folder,
        &["kubeconform"],
        "run `tests/parts/kubeconform.sh fetch`",
    )?;
    Ok(folder.join("kubeconform"))
}

/// Cortex.
pub fn cortex() -> Result<PathBuf> {
    let folder = cache()?.join("cortex/current");
    let folder = complete(&folder, &["cortex"], "run `tests/parts/cortex.sh fetch`")?;
    Ok(folder.join("cortex"))
}

/// The folder with `helm` and `kustomize`.
pub fn helm() -> Result<PathBuf> {
    complete(
        &cache()?.join("helm/current"),
        &["helm", "kustomize"],
        "run `tests/parts/helm.sh fetch`",
    )
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
