//! The Debian package: what lies in it, what lintian says, and that it comes and goes cleanly in a
//! root without systemd.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use virtfleet_tests::{bins, process::Launch, skip};

const MINUTE: Duration = Duration::from_mins(1);
/// Maximum size of a package with the agent.
pub(crate) const MAX_PACKAGE_BYTES: u64 = 4 << 20;

pub(crate) fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Builds a package by the script of `packaging/` around a stand-in for the program, into the
/// folder `name`; gives its path.
pub(crate) fn built(work: &Path, script: &str, name: &str) -> Result<PathBuf> {
    let manual = work.join("manual");
    for folder in ["man/man1", "completions"] {
        fs::create_dir_all(manual.join(folder))?;
    }
    for file in [
        "man/man1/virtfleet-agent.1",
        "completions/virtfleet-agent.bash",
        "completions/virtfleet-agent.fish",
        "completions/_virtfleet-agent",
    ] {
        fs::write(manual.join(file), "stand-in\n")?;
    }
    let program = work.join("stand-in");
    fs::write(&program, "#!/bin/sh\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let out = work.join(name);
    Launch::new(tree().join("packaging").join(script))
        .env("VIRTFLEET_BIN_VIRTFLEET_RPM", bins::rpm()?)
        .arg(&out)
        .arg(&program)
        .arg(&manual)
        .text(MINUTE)?;
    let entry = fs::read_dir(&out)?.next().context("no package was built")??;
    Ok(entry.path())
}

#[test]
fn tier3_the_same_commit_gives_the_same_package() {
    let test = "tier3_the_same_commit_gives_the_same_package";
    if skip::need(3, test, skip::program("dh")).unwrap().is_none() {
        return;
    }
    let work = TempDir::new().unwrap();
    let first = built(work.path(), "deb/build.sh", "first").unwrap();
    let second = built(work.path(), "deb/build.sh", "second").unwrap();
    assert_eq!(first.file_name(), second.file_name());
    assert!(
        fs::read(&first).unwrap() == fs::read(&second).unwrap(),
        "they differ"
    );
}

#[test]
fn tier3_the_package_is_small() {
    let test = "tier3_the_package_is_small";
    let Some(package) = skip::need(3, test, bins::package()).unwrap() else {
        return;
    };
    let bytes = fs::metadata(&package).unwrap().len();
    eprintln!("{}: {bytes} bytes", package.display());
    assert!(bytes <= MAX_PACKAGE_BYTES, "{bytes} bytes");
}

/// dpkg's record of a system with one package.
const INSTALLED: &str = "Package: systemd\nStatus: install ok installed\nArchitecture: amd64\nMaintainer: x <x@x>\n\
                         Version: VERSION\nDescription: x\n\nPackage: init-system-helpers\nStatus: install ok \
                         installed\nArchitecture: all\nMaintainer: x <x@x>\nVersion: 1.60\nDescription: x\n";

#[test]
fn tier3_dpkg_refuses_the_package_on_older_systems() {
    let test = "tier3_dpkg_refuses_the_package_on_older_systems";
    let found = skip::program("dh").and_then(|_| skip::program("dpkg"));
    let Some(dpkg) = skip::need(3, test, found).unwrap() else {
        return;
    };
    let work = TempDir::new().unwrap();
    let package = built(work.path(), "deb/build.sh", "package").unwrap();
    let install = |version: &str| {
        let folder = work.path().join(version);
        for name in ["info", "updates", "triggers"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::write(folder.join("status"), INSTALLED.replace("VERSION", version)).unwrap();
        fs::write(folder.join("available"), "").unwrap();
        let launch = Launch::new(&dpkg).args(["--simulate", "--force-not-root", "--admindir"]);
        let launch = launch.arg(&folder).arg("--install").arg(&package);
        launch.said(MINUTE).unwrap()
    };
    let (code, said) = install("241-7~deb10u10");
    assert_ne!(code, 0, "{said}");
    let lines = said
        .lines()
        .filter(|line| line.contains("breaks systemd (<< 244)"));
    assert_eq!(lines.count(), 1, "{said}");
    let (code, said) = install("247.3-7+deb11u4");
    assert_eq!(code, 0, "{said}");
}

#[test]
fn tier3_lintian_is_content_with_the_package() {
    let test = "tier3_lintian_is_content_with_the_package";
    let found = skip::program("lintian").and_then(|lintian| Ok((lintian, bins::package()?)));
    let Some((lintian, package)) = skip::need(3, test, found).unwrap() else {
        return;
    };
    Launch::new(lintian)
        .args(["--fail-on", "error,warning", "--allow-root"])
        .arg(package)
        .text(3 * MINUTE)
        .unwrap();
}

#[test]
fn tier3_everything_lies_where_it_belongs() {
    let test = "tier3_everything_lies_where_it_belongs";
    let found = skip::program("dpkg-deb").and_then(|dpkg| Ok((dpkg, bins::package()?)));
    let Some((dpkg, package)) = skip::need(3, test, found).unwrap() else {
        return;
    };
    let listed = Launch::new(&dpkg).arg("-c").arg(&package).text(MINUTE).unwrap();
    let has = |mode: &str, path: &str| {
        listed.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(mode) && words.next() == Some("root/root") && words.next_back() == Some(path)
        })
    };
    assert!(has("-rwxr-xr-x", "./usr/bin/virtfleet-agent"), "{listed}");
    assert!(has("drwxr-xr-x", "./etc/virtfleet/agent.d/"), "{listed}");
    let units = fs::read_dir(tree().join("packaging/systemd")).unwrap();
    let units = units.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let units = units.filter(|name| name != "drop-ins");
    let mut files: Vec<String> = units
        .map(|unit| format!("usr/lib/systemd/system/{unit}"))
        .collect();
    files.extend(
        [
            "etc/virtfleet/agent.yaml",
            "usr/lib/systemd/system/containerd.service.d/10-virtfleet.conf",
            "usr/lib/systemd/system/kubelet.service.d/10-virtfleet.conf",
            "usr/lib/sysusers.d/virtfleet.conf",
            "usr/lib/tmpfiles.d/virtfleet.conf",
            "usr/lib/udev/rules.d/90-virtfleet.rules",
            "usr/share/bash-completion/completions/virtfleet-agent",
            "usr/share/doc/virtfleet-agent/changelog.gz",
            "usr/share/doc/virtfleet-agent/copyright",
            "usr/share/fish/vendor_completions.d/virtfleet-agent.fish",
            "usr/share/man/man1/virtfleet-agent.1.gz",
            "usr/share/zsh/vendor-completions/_virtfleet-agent",
        ]
        .map(str::to_owned),
    );
    for file in files {
        assert!(has("-rw-r--r--", &format!("./{file}")), "{file} in\n{listed}");
    }
    let info = Launch::new(&dpkg)
        .args(["-I"])
        .arg(&package)
        .arg("conffiles")
        .text(MINUTE)
        .unwrap();
    assert_eq!(info.trim(), "/etc/virtfleet/agent.yaml");
}

/// In a mount namespace of its own: whatever happens, no mount and no loop device is left.
const COMES_AND_GOES: &str = r#"
set -eu
image=$1 package=$2 work=$3
mount -t tmpfs none "$work"
cd "$work"
mkdir lower upper workdir root
mount -o loop,ro,noload "$image" lower
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=workdir root
mount -t proc none root/proc
mount -t tmpfs none root/run
cp "$package" root/package.deb
run() { chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
say() { printf '%s=%s\n' "$1" "$(echo "$2" | tr '\n' ' ' | sed 's/ $//')"; }
units() { (cd root/etc/systemd/system && find . -name 'virtfleet-*' -type l | sort); }

run dpkg -i /package.deb >log 2>&1 || { cat log >&2; exit 1; }
say user "$(run id -gn virtfleet)"
say shell "$(run getent passwd virtfleet | cut -d: -f7)"
for folder in . state ask; do say "$folder" "$(run stat -c '%a %U %G' "/run/virtfleet/$folder")"; done
say enabled "$(units)"

rm root/etc/systemd/system/timers.target.wants/virtfleet-reconcile.timer root/etc/systemd/system/timers.target.wants/virtfleet-discard.timer
echo '# changed' >>root/etc/virtfleet/agent.yaml
run dpkg -i /package.deb >log 2>&1 || { cat log >&2; exit 1; }
say after-upgrade "$(units)"
say setting "$(tail -n 1 root/etc/virtfleet/agent.yaml)"

run dpkg --remove virtfleet-agent >log 2>&1 || { cat log >&2; exit 1; }
say program-after-remove "$(ls root/usr/bin | grep -c virtfleet || true)"
say settings-after-remove "$(ls root/etc/virtfleet)"

mkdir -p root/var/lib/virtfleet/journal root/var/lib/virtfleet/other
touch root/var/lib/virtfleet/journal/1 root/var/lib/virtfleet/other/2
mkdir -m 700 root/var/lib/virtfleet-agent
touch root/var/lib/virtfleet-agent/key.der
run dpkg --purge virtfleet-agent >log 2>&1 || { cat log >&2; exit 1; }
say enabled-after-purge "$(units)"
say left "$(cd root && find etc/virtfleet run/virtfleet var/lib/virtfleet var/lib/virtfleet-agent -type f 2>/dev/null)"
"#;

/// As an image builder installs it: a chroot, and no systemd that runs.
#[test]
fn tier3_it_comes_and_goes_cleanly_in_a_root_without_systemd() {
    let test = "tier3_it_comes_and_goes_cleanly_in_a_root_without_systemd";
    let found = skip::root().and_then(|()| Ok((image()?, bins::package()?)));
    let Some((image, package)) = skip::need(3, test, found).unwrap() else {
        return;
    };
    let work = TempDir::new().unwrap();
    let said = Launch::new("unshare")
        .args([
            "--mount",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            COMES_AND_GOES,
            "sh",
        ])
        .args([
            image.as_path(),
            package.canonicalize().unwrap().as_path(),
            work.path(),
        ])
        .text(3 * MINUTE)
        .unwrap();
    let all = "./multi-user.target.wants/virtfleet-agent.service ./multi-user.target.wants/virtfleet-dns.service \
               ./multi-user.target.wants/virtfleet-provision.service ./multi-user.target.wants/virtfleet-reconcile.path \
               ./multi-user.target.wants/virtfleet-settings.path ./sysinit.target.wants/virtfleet-agent.socket";
    let expected = [
        ("user", "virtfleet"),
        ("shell", "/usr/sbin/nologin"),
        (".", "755 root root"),
        ("state", "750 root virtfleet"),
        ("ask", "770 root virtfleet"),
        (
            "enabled",
            &format!(
                "{all} ./timers.target.wants/virtfleet-discard.timer ./timers.target.wants/virtfleet-reconcile.timer"
            ),
        ),
        // What an admin disabled stays disabled, what he wrote stays written.
        ("after-upgrade", all),
        ("setting", "# changed"),
        ("program-after-remove", "0"),
        ("settings-after-remove", "agent.yaml"),
        ("enabled-after-purge", ""),
        // Which disks were formatted must be known to the next installation.
        ("left", "var/lib/virtfleet/journal/1"),
    ];
    let expected: String = expected.map(|(key, value)| format!("{key}={value}\n")).concat();
    assert_eq!(said, expected);
}

/// The root filesystem of a guest image that is already there.
pub(crate) fn image() -> Result<PathBuf> {
    let folder = Launch::new(tree().join("tests/guests/image.sh"))
        .args(["--path", "bookworm"])
        .text(MINUTE)
        .context("needs a guest's root filesystem")?;
    Ok(Path::new(folder.trim()).join("root.img"))
}
