//! The programs under test. Nothing is built here: `make test` builds them first.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

/// The agent.
pub fn agent() -> Result<PathBuf> {
    find("virtfleet-agent")
}
/// The agent as it is shipped: static, which runs in any guest. `VIRTFLEET_STATIC_AGENT` names another one.
pub fn static_agent() -> Result<PathBuf> {
    let variable = "VIRTFLEET_STATIC_AGENT";
    let path = env::var_os(variable).map_or_else(
        || {
            let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
                || Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target"),
                PathBuf::from,
            );
            let triple = format!("{}-unknown-linux-gnu", env::consts::ARCH);
            target.join(triple).join("release/virtfleet-agent")
        },
        PathBuf::from,
    );
    anyhow::ensure!(
        path.is_file(),
        "{} is missing; run `make static`, or set {variable}",
        path.display()
    );
    Ok(path)
}
/// The Debian package that `make test` has built from the static agent.
pub fn package() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("target")
        .join("deb");
    std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| {
            let folder = folder.display();
            format!("no package in {folder}; run `make deb OUT=target/deb`, which needs dh")
        })
}
/// The collector.
pub fn collector() -> Result<PathBuf> {
    find("virtfleet-collector")
}
/// The CLI.
pub fn ctl() -> Result<PathBuf> {
    find("virtfleetctl")
}
/// The fleet simulator.
pub fn fleet_sim() -> Result<PathBuf> {
    find("fleet-sim")
}

/// The tool for guests by hand.
pub fn guest() -> Result<PathBuf> {
    find("virtfleet-guest")
}

/// The engine of secondary disks on a stage of its own.
pub fn disk_stage() -> Result<PathBuf> {
    find("disk-stage")
}

/// The helper that mounts what never answers.
pub fn hang_mount() -> Result<PathBuf> {
    find("hang-mount")
}

/// `VIRTFLEET_BIN_<NAME>` when it is set (`VIRTFLEET_BIN_VIRTFLEET_AGENT`), else beside this executable or above it
/// (`target/<profile>/deps/<test>` → `target/<profile>/<name>`).
fn find(name: &str) -> Result<PathBuf> {
    let variable = format!("VIRTFLEET_BIN_{}", name.to_uppercase().replace('-', "_"));
    if let Some(path) = env::var_os(&variable).map(PathBuf::from) {
        if path.is_file() {
            return Ok(path);
        }
        bail!("{variable} names {}, which is no file", path.display());
    }
    let own = env::current_exe().context("path of this executable")?;
    let folders = own.ancestors().skip(1).take(2);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            let folder = own.parent().unwrap_or(Path::new("."));
            format!(
                "{name} is not beside {}; run `cargo build --workspace --bins`, or set {variable}",
                folder.display()
            )
        })
}
