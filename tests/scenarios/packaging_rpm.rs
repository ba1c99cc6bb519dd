//! The RPM package, as rpm itself sees it, and that it comes and goes cleanly in a root without
//! systemd. The root is Debian's: no distribution with RPM can be had on each test machine.

use std::{fs, path::Path, time::Duration};

use tempfile::TempDir;
use virtfleet_tests::{bins, process::Launch, skip};

use crate::packaging_deb::{MAX_PACKAGE_BYTES, built, image, tree};

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn tier3_the_same_commit_gives_the_same_rpm_and_rpm_accepts_it() {
    let test = "tier3_the_same_commit_gives_the_same_rpm_and_rpm_accepts_it";
    let Some(rpm) = skip::need(3, test, skip::program("rpm")).unwrap() else {
        return;
    };
    let work = TempDir::new().unwrap();
    let first = built(work.path(), "rpm/build.sh", "first").unwrap();
    let second = built(work.path(), "rpm/build.sh", "second").unwrap();
    assert!(
        fs::read(&first).unwrap() == fs::read(&second).unwrap(),
        "they differ"
    );
    let asks = |args: &[&str]| Launch::new(&rpm).args(args).arg(&first).text(MINUTE).unwrap();
    assert!(asks(&["-K"]).contains("digests OK"));
    let units = fs::read_dir(tree().join("packaging/systemd")).unwrap();
    let units = units.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let listed = asks(&["-qpl"]);
    for unit in units.filter(|name| name != "drop-ins") {
        let path = format!("/usr/lib/systemd/system/{unit}");
        assert!(listed.lines().any(|line| line == path), "{path} in\n{listed}");
    }
    let manual = "/usr/share/man/man1/virtfleet-agent.1.gz";
    assert!(listed.lines().any(|line| line == manual), "{listed}");
    assert_eq!(asks(&["-qpc"]), "/etc/virtfleet/agent.yaml\n");
}

#[test]
fn tier3_the_rpm_is_small() {
    let test = "tier3_the_rpm_is_small";
    let Some(agent) = skip::need(3, test, bins::static_agent()).unwrap() else {
        return;
    };
    let work = TempDir::new().unwrap();
    // Leaves stand-ins for man pages and completions.
    built(work.path(), "rpm/build.sh", "first").unwrap();
    let out = work.path().join("out");
    Launch::new(tree().join("packaging/rpm/build.sh"))
        .env("VIRTFLEET_BIN_VIRTFLEET_RPM", bins::rpm().unwrap())
        .arg(&out)
        .arg(agent)
        .arg(work.path().join("manual"))
        .text(3 * MINUTE)
        .unwrap();
    let package = fs::read_dir(&out).unwrap().next().unwrap().unwrap();
    let bytes = package.metadata().unwrap().len();
    eprintln!("{}: {bytes} bytes", package.path().display());
    assert!(bytes <= MAX_PACKAGE_BYTES, "{bytes} bytes");
}

/// Without a systemd that is new enough, rpm refuses it in one line.
#[test]
fn tier3_rpm_refuses_the_package_on_older_systems() {
    let test = "tier3_rpm_refuses_the_package_on_older_systems";
    let Some(rpm) = skip::need(3, test, skip::program("rpm")).unwrap() else {
        return;
    };
    let work = TempDir::new().unwrap();
    let package = built(work.path(), "rpm/build.sh", "package").unwrap();
    let database = work.path().join("rpmdb");
    fs::create_dir(&database).unwrap();
    let launch = Launch::new(rpm).args(["-i", "--test", "--dbpath"]).arg(&database);
    let (code, said) = launch.arg(&package).said(MINUTE).unwrap();
    assert_ne!(code, 0, "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("systemd >= ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(
        lines[0]
            .trim()
            .starts_with("systemd >= 244 is needed by virtfleet-agent-"),
        "{said}"
    );
}

/// Settings of rpmlint. Each filter is a rule for packages of a distribution, or one about the
/// stand-ins of the test.
const RPMLINT: &str = r#"
# The manual is compressed as everywhere except in openSUSE.
CompressExtension = "gz"
ValidLicenses = ["Apache-2.0"]
Filters = [
    # Whoever publishes the package signs it; the project has no page yet.
    "no-signature", "no-url-tag",
    # Tags of a distribution's build system.
    "no-packager-tag", "no-group-tag", "no-changelogname-tag",
    # systemd reads units there, and nowhere else.
    "only-non-binary-in-usr-lib",
    # The same drop-in for two services; completions and the program are stand-ins here.
    "files-duplicate", "no-binary",
    # It is there, as the first test says.
    "no-manual-page-for-binary",
]
"#;

#[test]
fn tier3_rpmlint_finds_nothing_in_the_package() {
    let test = "tier3_rpmlint_finds_nothing_in_the_package";
    let Some(rpmlint) = skip::need(3, test, skip::program("rpmlint")).unwrap() else {
        return;
    };
    let work = TempDir::new().unwrap();
    let package = built(work.path(), "rpm/build.sh", "package").unwrap();
    let config = work.path().join("rpmlint.toml");
    fs::write(&config, RPMLINT).unwrap();
    let launch = Launch::new(rpmlint).arg("--strict").arg("--config").arg(&config);
    let (code, said) = launch.arg(&package).said(3 * MINUTE).unwrap();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("0 errors, 0 warnings"), "{said}");
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
run() { chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"; }
# The root has no database of rpm, so no package in it satisfies a dependency.
manage() { rpm --root "$work/root" --nodeps "$@" >log 2>&1 || { cat log >&2; exit 1; }; }
say() { printf '%s=%s\n' "$1" "$(echo "$2" | tr '\n' ' ' | sed 's/ $//')"; }
units() { (cd root/etc/systemd/system && find . -name 'virtfleet-*' -type l | sort); }

manage -i "$package"
say complaints "$(grep -iE 'scriptlet|fail|error|warning' log || true)"
say user "$(run id -gn virtfleet)"
for folder in . state ask; do say "$folder" "$(run stat -c '%a %U %G' "/run/virtfleet/$folder")"; done
say enabled "$(units)"

rm root/etc/systemd/system/timers.target.wants/virtfleet-reconcile.timer root/etc/systemd/system/timers.target.wants/virtfleet-discard.timer
echo '# changed' >>root/etc/virtfleet/agent.yaml
manage -U --replacepkgs "$package"
say after-upgrade "$(units)"
say setting "$(tail -n 1 root/etc/virtfleet/agent.yaml)"

mkdir -p root/var/lib/virtfleet/journal
touch root/var/lib/virtfleet/journal/1
manage -e virtfleet-agent
say enabled-after-removal "$(units)"
say left "$(cd root && find usr/bin/virtfleet-agent etc/virtfleet var/lib/virtfleet usr/lib/systemd/system/virtfleet* -type f 2>/dev/null)"
"#;

/// As an image builder installs it: a chroot, and no systemd that runs.
#[test]
fn tier3_the_rpm_comes_and_goes_cleanly_in_a_root_without_systemd() {
    let test = "tier3_the_rpm_comes_and_goes_cleanly_in_a_root_without_systemd";
    let found = skip::root().and_then(|()| Ok((skip::program("rpm")?, image()?)));
    let Some((_, image)) = skip::need(3, test, found).unwrap() else {
        return;
    };
    let work = TempDir::new().unwrap();
    let package = built(work.path(), "rpm/build.sh", "package").unwrap();
    let root = work.path().join("work");
    fs::create_dir(&root).unwrap();
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
        .args([image.as_path(), package.as_path(), Path::new(&root)])
        .text(3 * MINUTE)
        .unwrap();
    let all = "./multi-user.target.wants/virtfleet-agent.service ./multi-user.target.wants/virtfleet-dns.service \
               ./multi-user.target.wants/virtfleet-provision.service ./multi-user.target.wants/virtfleet-reconcile.path \
               ./multi-user.target.wants/virtfleet-settings.path ./sysinit.target.wants/virtfleet-agent.socket";
    let timers =
        "./timers.target.wants/virtfleet-discard.timer ./timers.target.wants/virtfleet-reconcile.timer";
    let expected = [
        ("complaints", String::new()),
        ("user", "virtfleet".to_owned()),
        (".", "755 root root".to_owned()),
        ("state", "750 root virtfleet".to_owned()),
        ("ask", "770 root virtfleet".to_owned()),
        ("enabled", format!("{all} {timers}")),
        // What an admin disabled stays disabled, and what he wrote stays written.
        ("after-upgrade", all.to_owned()),
        ("setting", "# changed".to_owned()),
        ("enabled-after-removal", String::new()),
        // Which disks were formatted must be known to the next installation.
        (
            "left",
            "etc/virtfleet/agent.yaml.rpmsave var/lib/virtfleet/journal/1".to_owned(),
        ),
    ];
    let expected = expected.map(|(key, value)| format!("{key}={value}\n")).concat();
    assert_eq!(said, expected);
}
