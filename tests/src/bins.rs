//! Paths of the programs under test. This module builds nothing: `make test` builds them first.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};

/// The agent.
pub fn agent() -> Result<PathBuf> {
    find("virtfleet-agent")
}
/// The agent as released: statically linked, so that it runs in any guest. `VIRTFLEET_STATIC_AGENT`
/// overrides the path. A binary that is older than one of its source files is refused, because its
/// behaviour does not reflect the sources.
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
    ensure!(
        path.is_file(),
        "{} is missing; run `make static`, or set {variable}",
        path.display()
    );
    if env::var_os(variable).is_none() {
        up_to_date(&path)?;
    }
    Ok(path)
}

/// Checks as cargo does that a program is up to date: each file in cargo's dependency list
/// (`<program>.d`) is older.
fn up_to_date(program: &Path) -> Result<()> {
    let list = program.with_extension("d");
    let text = fs::read_to_string(&list)
        .with_context(|| format!("read {}, which cargo writes; run `make static`", list.display()))?;
    let built = fs::metadata(program)
        .and_then(|about| about.modified())
        .with_context(|| format!("when {} was built", program.display()))?;
    for source in sources(&text) {
        let touched = fs::metadata(&source).and_then(|about| about.modified());
        ensure!(
            touched.is_ok_and(|touched| touched <= built),
            "{} is older than {source}, from which it is built, or that file is gone; run `make static`",
            program.display()
        );
    }
    Ok(())
}

/// The files after the colon of a dependency list in make syntax, where a backslash escapes a
/// blank.
fn sources(list: &str) -> Vec<String> {
    let behind = list.split_once(": ").map_or("", |(_, behind)| behind);
    let whole = behind.replace("\\ ", "\0");
    whole
        .split_whitespace()
        .map(|name| name.replace('\0', " "))
        .collect()
}
/// The Debian package that `make test` has built from the current static agent.
pub fn package() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("target")
        .join("deb");
    let package = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| {
            let folder = folder.display();
            format!("no package in {folder}; run `make deb OUT=target/deb`, which needs dh")
        })?;
    let made = |path: &Path| {
        fs::metadata(path)
            .and_then(|about| about.modified())
            .with_context(|| format!("when {} was made", path.display()))
    };
    ensure!(
        made(&package)? >= made(&static_agent()?)?,
        "{} is older than the static agent; run `make deb OUT=target/deb`",
        package.display()
    );
    Ok(package)
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

/// The benchmark of the verdict, which also counts the memory of a VM.
pub fn bench_health() -> Result<PathBuf> {
    find("bench-health")
}

/// The builder of RPM packages.
pub fn rpm() -> Result<PathBuf> {
    find("virtfleet-rpm")
}

/// The demonstration.
pub fn demo() -> Result<PathBuf> {
    find("virtfleet-demo")
}

/// The tool for interactive guests.
pub fn guest() -> Result<PathBuf> {
    find("virtfleet-guest")
}

/// The program that runs the disk engine on a stage.
pub fn disk_stage() -> Result<PathBuf> {
    find("disk-stage")
}

/// The program that runs a queue on disk.
pub fn queue_stage() -> Result<PathBuf> {
    find("queue-stage")
}

/// The program that makes one DNS reconcile run and can be killed at a chosen point.
pub fn dns_stage() -> Result<PathBuf> {
    find("dns-stage")
}

/// The program that scrapes a page and sends it by remote write.
pub fn remote_write_sender() -> Result<PathBuf> {
    find("remote-write-sender")
}

/// The program that mounts a filesystem that never answers.
pub fn hang_mount() -> Result<PathBuf> {
    find("hang-mount")
}

/// `VIRTFLEET_BIN_<NAME>` if set (`VIRTFLEET_BIN_VIRTFLEET_AGENT`), else next to this executable or
/// above it (`target/<profile>/deps/<test>` → `target/<profile>/<name>`).
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

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Duration};

    use super::*;

    #[test]
    fn a_program_older_than_a_source_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (program, source) = (at("agent"), at("a b.rs"));
        for file in [&program, &source] {
            fs::write(file, "").unwrap();
        }
        let escaped = source.to_string_lossy().replace(' ', "\\ ");
        fs::write(at("agent.d"), format!("{}: {escaped}\n", program.display())).unwrap();
        let built = fs::metadata(&source).unwrap().modified().unwrap();
        let set = |time| {
            File::options()
                .write(true)
                .open(&program)
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        set(built);
        up_to_date(&program).unwrap();
        set(built - Duration::from_secs(1));
        let said = format!("{:#}", up_to_date(&program).unwrap_err());
        assert!(said.contains("a b.rs") && said.contains("make static"), "{said}");
        set(built);
        fs::remove_file(&source).unwrap();
        assert!(up_to_date(&program).is_err());
    }
}
