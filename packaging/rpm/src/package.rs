//! The package: its files, dependencies and scripts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use rpm::{BuildConfig, CompressionWithLevel, Dependency, FileOptions, Package, PackageBuilder, Scriptlet};

/// Compression of the payload. With Zstandard, the package has more than 4 MiB.
const COMPRESSION: CompressionWithLevel = CompressionWithLevel::Xz(9);
/// Oldest systemd: docs/supported-systems.md has the reasons.
const MIN_SYSTEMD: &str = "244";
const NAME: &str = "virtfleet-agent";
const SUMMARY: &str = "Agent for KubeVirt virtual machines that are Kubernetes nodes";
const DESCRIPTION: &str = "\
Serves the metrics of the guest under node_exporter's names, and a report of
what the guest is: identity, system, disks, network interfaces, findings.
The collector on the infra cluster joins both with the place where the virtual
machine runs.

Provisioning runs as root at boot and after changes, before containerd and
kubelet. The defaults change nothing in the guest. The agent itself runs
without any right.
";

/// What the package is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackageSource<'a> {
    /// Root of the files.
    pub(crate) tree: &'a Path,
    /// Folder of the scripts `post`, `preun` and `postun`.
    pub(crate) scripts: &'a Path,
    /// Version.
    pub(crate) version: &'a str,
    /// Architecture, as `uname -m` prints it.
    pub(crate) arch: &'a str,
    /// Time of the build, in seconds since 1970.
    pub(crate) built_at: u32,
}

/// Builds the package. Equal sources give equal bytes.
///
/// # Errors
/// A file or script that cannot be read, with its path; a file that is neither a regular file nor a
/// folder.
pub(crate) fn build(source: &PackageSource<'_>) -> Result<Package> {
    let script = |name: &str| {
        let path = source.scripts.join(name);
        fs::read_to_string(&path)
            .map(Scriptlet::new)
            .with_context(|| format!("read {}", path.display()))
    };
    let config = BuildConfig::v4()
        .compression(COMPRESSION)
        .source_date(source.built_at);
    let mut package = PackageBuilder::new(NAME, source.version, "Apache-2.0", source.arch, SUMMARY);
    package
        .using_config(config)
        .release("1")
        .description(DESCRIPTION)
        .vendor("The virtfleet authors")
        .build_host("reproducible")
        .post_install_script(script("post")?)
        .pre_uninstall_script(script("preun")?)
        .post_uninstall_script(script("postun")?);
    for phase in [
        Dependency::script_post,
        Dependency::script_preun,
        Dependency::script_postun,
    ] {
        package.requires(phase("systemd"));
    }
    package.requires(Dependency::greater_eq("systemd", MIN_SYSTEMD));
    for path in files(source.tree)? {
        let inside = path
            .strip_prefix(source.tree)
            .context("a file outside of the tree")?;
        let target = Path::new("/").join(inside);
        let metadata = fs::symlink_metadata(&path).with_context(|| format!("read {}", path.display()))?;
        let mode = u16::try_from(metadata.permissions().mode() & 0o7777).unwrap_or(0o644);
        let name = target.display().to_string();
        if metadata.is_dir() {
            if is_ours(&name) {
                package.with_dir_entry(FileOptions::dir(name).permissions(mode))?;
            }
        } else if metadata.is_file() {
            package.with_file(&path, options(&name, mode))?;
        } else {
            bail!("{}: neither a file nor a folder", path.display());
        }
    }
    package.build().context("build the package")
}

/// Whether the package owns a folder; others belong to the packages of the distribution.
fn is_ours(folder: &str) -> bool {
    folder
        .rsplit('/')
        .next()
        .is_some_and(|last| last.starts_with("virtfleet"))
        || folder.starts_with("/etc/virtfleet/")
        || folder.ends_with(".service.d")
}

fn options(name: &str, mode: u16) -> rpm::FileOptionsBuilder {
    let options = FileOptions::new(name).permissions(mode);
    if name.starts_with("/etc/") {
        options.config().noreplace()
    } else if name.starts_with("/usr/share/doc/") || name.starts_with("/usr/share/man/") {
        options.doc()
    } else if name.starts_with("/usr/share/licenses/") {
        options.license()
    } else {
        options
    }
}

/// All files and folders below a folder, in the order of their paths.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let entry = entry.with_context(|| format!("list {}", folder.display()))?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
