//! `packaging/guest-image/bake.sh`: which filesystem of a disk image gets the agent, and what is
//! refused. `guest_lifecycle` boots a baked image.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use virtfleet_tests::{bins, process::Launch, skip, wait};

use crate::expressions::root;

/// Maximum time of a command.
const STEP_TIMEOUT: Duration = Duration::from_mins(2);
/// Where the system's partition begins, in bytes.
const SYSTEM_START: u64 = 16 << 20;
/// Its size in bytes.
const SYSTEM_BYTES: u64 = 70 << 20;

fn run(program: &str, arguments: &[&str]) -> String {
    Launch::new(program).args(arguments).text(STEP_TIMEOUT).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What of a Linux system `install --root` needs, as an ext4 filesystem.
fn system(folder: &Path) -> PathBuf {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::create_dir_all(tree.join("usr/lib")).unwrap();
    fs::write(tree.join("usr/lib/os-release"), "ID=debian\n").unwrap();
    // Absolute, as in some distributions: followed on the host, it would be the host's.
    symlink("/usr/lib/os-release", tree.join("etc/os-release")).unwrap();
    fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    fs::write(tree.join("etc/group"), "root:x:0:\n").unwrap();
    let image = folder.join("system.img");
    fs::File::create(&image).unwrap().set_len(SYSTEM_BYTES).unwrap();
    run(
        "mke2fs",
        &["-q", "-F", "-t", "ext4", "-d", text(&tree), text(&image)],
    );
    image
}

/// A disk with a partition table: an EFI partition, and one that `content` fills.
fn disk(folder: &Path, name: &str, content: &Path) -> PathBuf {
    let disk = folder.join(name);
    fs::File::create(&disk)
        .unwrap()
        .set_len(SYSTEM_START + SYSTEM_BYTES + (2 << 20))
        .unwrap();
    let script = format!(
        "printf 'label: gpt\\nstart=1MiB,size=8MiB,type=U\\nstart={},size={},type=L\\n' | sfdisk -q '{}'
        dd if='{}' of='{}' bs=1M seek={} conv=notrunc,sparse status=none",
        SYSTEM_START / 512,
        SYSTEM_BYTES / 512,
        disk.display(),
        content.display(),
        disk.display(),
        SYSTEM_START >> 20,
    );
    run("bash", &["-ec", &script]);
    disk
}

/// Exit code and output of the script.
fn bake(arguments: &[&Path]) -> (i32, String) {
    Launch::new(root().join("packaging/guest-image/bake.sh"))
        .args(arguments)
        .said(STEP_TIMEOUT)
        .unwrap()
}

/// Root, the tools of the script and of this test; the static agent.
fn needs() -> Result<PathBuf> {
    skip::root()?;
    for tool in ["qemu-img", "sfdisk", "partx", "mke2fs", "debugfs"] {
        skip::program(tool)?;
    }
    bins::static_agent()
}

#[test]
fn tier2_the_system_of_an_image_gets_the_agent_and_the_image_stays() {
    let test = "tier2_the_system_of_an_image_gets_the_agent_and_the_image_stays";
    let Some(agent) = skip::need(2, test, needs()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let image = disk(folder.path(), "cloud.raw", &system(folder.path()));
    let before = fs::read(&image).unwrap();
    let settings = at("agent.yaml");
    let plain = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  \
                 - { name: default, address: \"127.0.0.1:10911\", plain: true }\n";
    fs::write(&settings, plain).unwrap();

    let (code, said) = bake(&[&image, &agent, &at("baked.qcow2"), &settings]);
    assert_eq!(code, 0, "{said}");
    assert!(fs::read(&image).unwrap() == before, "the image was written to");
    let info = run("qemu-img", &["info", text(&at("baked.qcow2"))]);
    assert!(info.contains("file format: qcow2"), "{info}");
    let (baked, root) = (at("baked.raw"), at("root.img"));
    run(
        "qemu-img",
        &["convert", "-O", "raw", text(&at("baked.qcow2")), text(&baked)],
    );
    run(
        "dd",
        &[
            &format!("if={}", baked.display()),
            &format!("of={}", root.display()),
            "bs=1M",
            &format!("skip={}", SYSTEM_START >> 20),
            &format!("count={}", SYSTEM_BYTES >> 20),
            "status=none",
        ],
    );
    run("e2fsck", &["-fn", text(&root)]);
    let file = |path: &str| {
        let out = at("file");
        run(
            "debugfs",
            &["-R", &format!("dump {path} {}", out.display()), text(&root)],
        );
        fs::read(out).unwrap()
    };
    assert!(file("/opt/virtfleet/bin/virtfleet-agent") == fs::read(&agent).unwrap());
    assert_eq!(file("/etc/virtfleet/agent.yaml"), plain.as_bytes());
    assert!(
        String::from_utf8(file("/etc/passwd"))
            .unwrap()
            .contains("\nvirtfleet:")
    );
    let links = run(
        "debugfs",
        &[
            "-R",
            "ls /etc/systemd/system/multi-user.target.wants",
            text(&root),
        ],
    );
    assert!(links.contains("virtfleet-provision.service"), "{links}");
}

#[test]
fn tier2_an_image_that_is_refused_leaves_nothing_behind() {
    let test = "tier2_an_image_that_is_refused_leaves_nothing_behind";
    let Some(agent) = skip::need(2, test, needs()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let image = disk(folder.path(), "cloud.raw", &system(folder.path()));
    let settings = at("agent.yaml");
    fs::write(at("there.qcow2"), "").unwrap();
    fs::write(
        &settings,
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nbogus: 1\n",
    )
    .unwrap();
    let blank = at("blank.img");
    fs::File::create(&blank).unwrap().set_len(SYSTEM_BYTES).unwrap();
    let two = at("two.raw");
    fs::copy(&image, &two).unwrap();
    let script = format!(
        "truncate -s 200M '{0}'; printf 'size=70MiB,type=L\\n' | sfdisk -q --append '{0}'
        dd if='{1}' of='{0}' bs=512 seek=$(partx -g -r -o START '{0}' | tail -n 1) conv=notrunc,sparse status=none",
        two.display(),
        at("system.img").display(),
    );
    run("bash", &["-ec", &script]);
    let out = at("out.qcow2");
    for (arguments, expected) in [
        (
            vec![&*image, &*agent, &*out, &*settings],
            "agent.yaml: the agent refuses these settings",
        ),
        (
            vec![&*blank, &*agent, &*out],
            "no ext4, xfs or btrfs filesystem has /etc/os-release; found: no filesystem",
        ),
        (
            vec![&*two, &*agent, &*out],
            "more than one filesystem has /etc/os-release",
        ),
        (vec![&*image, &*agent, &*at("there.qcow2")], "there.qcow2 exists"),
        (
            vec![&*image, &*agent],
            "usage: bake.sh IMAGE AGENT OUT [SETTINGS]",
        ),
    ] {
        let (code, said) = bake(&arguments);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(!out.exists(), "{said}");
    }
    let left: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".bake"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // A device is detached when its last user closes it, and other tests look at all of them.
    wait::eventually(STEP_TIMEOUT, "no loop device is left", || {
        let loops = run("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"]);
        anyhow::ensure!(!loops.contains(text(folder.path())), "{loops}");
        Ok(())
    })
    .unwrap();
}
