//! The agent as installed by its package: the files that `packaging/deb/build.sh` stages and the
//! units that its `postinst` enables.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::Options;
use crate::bins;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("packaging")
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Adds the package's files, its program and the units that it enables.
pub(super) fn install(mut options: Options) -> Result<Options> {
    let from = packaging();
    let units = from.join("systemd");
    for entry in fs::read_dir(&units).with_context(|| units.display().to_string())? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("virtfleet-") {
            options = options.file(&format!("/usr/lib/systemd/system/{name}"), &text(&path)?);
        }
    }
    for unit in ["kubelet", "containerd"] {
        let file = units.join(format!("drop-ins/{unit}.service.d/10-virtfleet.conf"));
        let to = format!("/usr/lib/systemd/system/{unit}.service.d/10-virtfleet.conf");
        options = options.file(&to, &text(&file)?);
    }
    for (file, to) in [
        ("agent.yaml", "/etc/virtfleet/agent.yaml"),
        ("sysusers.d/virtfleet.conf", "/usr/lib/sysusers.d/virtfleet.conf"),
        ("tmpfiles.d/virtfleet.conf", "/usr/lib/tmpfiles.d/virtfleet.conf"),
        (
            "udev/90-virtfleet.rules",
            "/usr/lib/udev/rules.d/90-virtfleet.rules",
        ),
    ] {
        options = options.file(to, &text(&from.join(file))?);
    }
    for unit in enabled(&text(&from.join("deb/debian/virtfleet-agent.postinst"))?)? {
        options = options.enable(&unit);
    }
    Ok(options.program("virtfleet-agent", bins::agent()?))
}

/// The units that the package's `postinst` enables: the words of the loop in its function `enable`.
fn enabled(postinst: &str) -> Result<Vec<String>> {
    let list = postinst
        .split_once("enable() {")
        .and_then(|(_, rest)| rest.split_once("for unit in "))
        .and_then(|(_, rest)| rest.split_once("; do"))
        .context("postinst has no loop over the units to enable")?
        .0;
    let words = list.split_ascii_whitespace().filter(|word| *word != "\\");
    let units: Vec<String> = words.map(str::to_owned).collect();
    ensure!(
        units.iter().any(|unit| unit == "virtfleet-dns.service"),
        "postinst enables {units:?}"
    );
    Ok(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_package_enables_is_read_from_it() {
        let postinst = text(&packaging().join("deb/debian/virtfleet-agent.postinst")).unwrap();
        let units = enabled(&postinst).unwrap();
        assert!(units.len() >= 7, "{units:?}");
        enabled("enable() {").unwrap_err();
    }
}
