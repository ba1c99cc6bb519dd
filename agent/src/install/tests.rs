use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use virtfleet_agent_host::{CommandOutput, FakeCommands};
use virtfleet_delivery::{INSTALLED, WANTED, guest};

use super::*;

const USERS: &str = "root:x:0:0::/:/bin/sh\nvirtfleet:x:998:998::/:/usr/sbin/nologin\n";

struct Image {
    dir: tempfile::TempDir,
    options: Options,
}

impl Image {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            prefix: "/opt/virtfleet".into(),
            root: dir.path().join("root"),
            start: true,
        };
        let image = Self { dir, options };
        fs::create_dir(&image.options.root).unwrap();
        image.put("/etc/passwd", USERS);
        image.put("/etc/group", USERS);
        fs::write(image.own(), "the binary").unwrap();
        image
    }
    fn own(&self) -> PathBuf {
        self.dir.path().join("virtfleet-agent")
    }
    fn put(&self, path: &str, text: &str) {
        let path = self.options.at(path).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn plan(&self) -> Plan {
        plan(&self.options, &self.own(), "1.2.3").unwrap()
    }
    fn apply(&self) -> Outcome {
        apply(&self.options, &self.plan(), &FakeCommands::content()).unwrap()
    }
    fn text(&self, path: &str) -> String {
        self.options.small_text(path)
    }
}

#[test]
fn an_empty_image_is_installed_once() {
    let image = Image::new();
    let outcome = image.apply();
    assert!(
        outcome.warnings.is_empty() && outcome.started.is_empty(),
        "{outcome:?}"
    );
    for file in guest::files("/opt/virtfleet/bin/virtfleet-agent") {
        assert!(outcome.written.contains(&file.path), "{}", file.path);
    }
    let agent = image.options.at("/opt/virtfleet/bin/virtfleet-agent").unwrap();
    assert_eq!(fs::metadata(&agent).unwrap().permissions().mode() & 0o7777, 0o755);
    let unit = image.text("/etc/systemd/system/virtfleet-agent.service");
    assert!(
        unit.contains("ExecStart=/opt/virtfleet/bin/virtfleet-agent run"),
        "{unit}"
    );
    let wants = "/etc/systemd/system/multi-user.target.wants/virtfleet-agent.service";
    assert_eq!(
        fs::read_link(image.options.at(wants).unwrap()).unwrap(),
        Path::new("../virtfleet-agent.service")
    );

    let again = image.apply();
    assert_eq!(again, Outcome::default());
    assert_eq!(again.text(), "everything is in place\n");
}

#[test]
fn only_damaged_files_are_replaced() {
    let image = Image::new();
    image.apply();
    let unit = "/etc/systemd/system/virtfleet-agent.service";
    let rule = "/etc/sysusers.d/virtfleet.conf";
    let link = "/etc/systemd/system/multi-user.target.wants/virtfleet-agent.service";
    let agent = "/opt/virtfleet/bin/virtfleet-agent";
    image.put(unit, "");
    image.put(agent, "the bin");
    fs::remove_file(image.options.at(rule).unwrap()).unwrap();
    symlink("/dev/null", image.options.at(rule).unwrap()).unwrap();
    fs::remove_file(image.options.at(link).unwrap()).unwrap();
    image.put("/etc/systemd/system/.virtfleet-Ab12Cd", "half");
    image.put("/etc/systemd/system/.virtfleet-new.x", "the boot command's");
    let outcome = image.apply();
    assert_eq!(outcome.written, [agent, unit, rule, link]);
    assert!(
        !image
            .options
            .at("/etc/systemd/system/.virtfleet-Ab12Cd")
            .unwrap()
            .exists()
    );
    assert!(
        image
            .options
            .at("/etc/systemd/system/.virtfleet-new.x")
            .unwrap()
            .exists()
    );
    assert_eq!(image.apply(), Outcome::default());
}

#[test]
fn the_record_has_the_requested_sha256() {
    let image = Image::new();
    image.apply();
    assert_eq!(
        virtfleet_delivery::word(&image.text(INSTALLED), "wanted"),
        Some("-")
    );
    image.put(WANTED, "sha256 abc\nrepair yes\n");
    image.apply();
    let record = image.text(INSTALLED);
    assert_eq!(virtfleet_delivery::word(&record, "wanted"), Some("abc"));
    // A delivery for several kinds of machines.
    let own = std::env::consts::ARCH;
    image.put(WANTED, &format!("on other sha256 123\non {own} sha256 def\n"));
    image.apply();
    let several = image.text(INSTALLED);
    assert_eq!(virtfleet_delivery::word(&several, "wanted"), Some("def"));
    assert_eq!(virtfleet_delivery::word(&record, "version"), Some("1.2.3"));
    assert_eq!(
        virtfleet_delivery::word(&record, "sha256"),
        Some(
            virtfleet_runtime::digest::sha256_file(&image.own())
                .unwrap()
                .as_str()
        )
    );
}

#[test]
fn only_files_of_an_older_version_are_removed() {
    let image = Image::new();
    image.apply();
    let old = "/etc/systemd/system/virtfleet-old.service";
    for path in [old, "/etc/shadow", "/etc/systemd/system/kubelet.service"] {
        image.put(path, "x");
        let record = image.text(INSTALLED) + "file " + path + "\n";
        image.put(INSTALLED, &record);
    }
    let outcome = image.apply();
    assert_eq!(outcome.removed, [old]);
    assert!(image.options.at("/etc/shadow").unwrap().exists());
}

#[test]
fn an_installed_package_is_not_overwritten() {
    let image = Image::new();
    image.put("/usr/lib/systemd/system/virtfleet-agent.service", "x");
    let error = plan(&image.options, &image.own(), "1").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("belongs to the package virtfleet-agent"),
        "{error}"
    );
    let image = Image::new();
    let options = Options {
        prefix: "/opt/with space".into(),
        ..image.options.clone()
    };
    assert!(matches!(
        plan(&options, &image.own(), "1").unwrap_err(),
        InstallError::Prefix(_)
    ));
}

#[test]
fn the_user_is_created_with_the_available_tool() {
    let image = Image::new();
    image.put("/etc/group", "root:x:0:\nvirtfleetish:x:1:\n");
    let commands = FakeCommands::content();
    apply(&image.options, &image.plan(), &commands).unwrap();
    let root = image.options.root.display();
    assert_eq!(
        commands.take(),
        [format!("systemd-sysusers --root={root} virtfleet.conf")]
    );

    let commands = FakeCommands::new(|line| line.starts_with("useradd").then(CommandOutput::default));
    apply(&image.options, &image.plan(), &commands).unwrap();
    let lines = commands.take();
    assert!(
        lines[1].starts_with(&format!("useradd --root {root} --system ")) && lines[1].ends_with(" virtfleet"),
        "{lines:?}"
    );

    let error = apply(&image.options, &image.plan(), &FakeCommands::new(|_| None)).unwrap_err();
    assert!(error.to_string().contains("create them by hand"), "{error}");
}

#[test]
fn remove_keeps_settings_and_foreign_files() {
    let image = Image::new();
    image.put("/etc/virtfleet/agent.yaml", "x");
    image.put(WANTED, "sha256 abc\n");
    image.apply();
    let outcome = remove(&image.options, &FakeCommands::content()).unwrap();
    assert!(outcome.warnings[0].contains("user-data"), "{outcome:?}");
    for file in guest::files("/x") {
        assert!(!image.options.at(&file.path).unwrap().exists(), "{}", file.path);
    }
    assert!(
        !image
            .options
            .at("/opt/virtfleet/bin/virtfleet-agent")
            .unwrap()
            .exists()
    );
    assert!(image.options.at("/etc/virtfleet/agent.yaml").unwrap().exists());
    assert!(
        remove(&image.options, &FakeCommands::content())
            .unwrap()
            .removed
            .is_empty()
    );
}

/// An image may contain links that lead to the machine on which it is built.
#[test]
fn no_link_in_an_image_leads_out_of_it() {
    let image = Image::new();
    let outside = image.dir.path().join("outside");
    fs::create_dir_all(outside.join("system")).unwrap();
    let inside = |path: &str| image.options.root.join(path);
    fs::create_dir_all(inside("etc/udev")).unwrap();
    fs::create_dir_all(inside("usr/etc-systemd")).unwrap();
    // Absolute links are relative to the image's root.
    symlink("/usr/etc-systemd", inside("etc/systemd")).unwrap();
    symlink(
        "../../../../../../../../../etc/udev-rules",
        inside("etc/udev/rules.d"),
    )
    .unwrap();
    fs::create_dir(inside("etc/udev-rules")).unwrap();
    image.apply();
    let unit = "system/virtfleet-agent.service";
    assert!(inside("usr/etc-systemd").join(unit).is_file());
    assert!(fs::read_dir(inside("etc/udev-rules")).unwrap().next().is_some());
    assert_eq!(
        image.plan(),
        Plan {
            binary: None,
            files: Vec::new(),
            links: Vec::new(),
            ..image.plan()
        }
    );

    // A link that is dangling in the image, and valid on this machine, is an error before anything
    // is written.
    let image = Image::new();
    let outside = image.dir.path().join("outside");
    fs::create_dir_all(outside.join("system")).unwrap();
    symlink(&outside, image.options.root.join("etc/systemd")).unwrap();
    let error = plan(&image.options, &image.own(), "1.2.3")
        .unwrap_err()
        .to_string();
    assert!(error.contains("etc/systemd"), "{error}");
    assert!(fs::read_dir(outside.join("system")).unwrap().next().is_none());
    // No file is read through such a link either.
    fs::remove_file(image.options.root.join("etc/systemd")).unwrap();
    fs::remove_file(image.options.root.join("etc/passwd")).unwrap();
    fs::write(image.dir.path().join("passwd"), USERS).unwrap();
    symlink(
        image.dir.path().join("passwd"),
        image.options.root.join("etc/passwd"),
    )
    .unwrap();
    assert!(
        image.plan().user,
        "the image's own file does not contain the user"
    );
}
