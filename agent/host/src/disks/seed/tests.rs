use std::{
    fs::Permissions,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::UnixListener,
    },
    time::SystemTime,
};

use super::*;
use crate::SystemCommands;

/// A tree with every kind of entry that needs no root.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join("from").join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::create_dir(dir.path().join("to")).unwrap();
    fs::write(at("a/file"), "x".repeat(200_000)).unwrap();
    fs::hard_link(at("a/file"), at("a/b/same")).unwrap();
    symlink("nowhere", at("link")).unwrap();
    fs::write(at("tool"), "#!").unwrap();
    fs::set_permissions(at("tool"), Permissions::from_mode(0o4755)).unwrap();
    UnixListener::bind(at("socket")).unwrap();
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o640)).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(1 << 24).unwrap();
    for name in ["a/file", "a/b"] {
        let file = File::open(at(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789))
            .unwrap();
    }
    dir
}

#[test]
fn a_copy_is_equal_and_each_difference_is_reported() {
    let dir = tree();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    // The rest of an interrupted copy is removed.
    fs::create_dir_all(to.join("old/er")).unwrap();
    copy_tree(&SystemCommands, &from, &to).unwrap();
    fs::create_dir(to.join(LOST_AND_FOUND)).unwrap();
    let restore = |path: &Path, of: &Path| {
        let time = fs::metadata(of).unwrap().modified().unwrap();
        File::open(path).unwrap().set_modified(time).unwrap();
    };
    restore(&to, &from);
    let seeded = compare_trees(&from, &to).unwrap();
    assert_eq!(seeded.bytes, 200_000 * 2 + 2 + (1 << 24));
    assert_eq!(seeded.entries, 10);
    assert!(
        fs::metadata(to.join("sparse")).unwrap().blocks() < 100,
        "holes are preserved"
    );
    let differs = |what: &str, change: &dyn Fn()| {
        copy_tree(&SystemCommands, &from, &to).unwrap();
        change();
        let error = compare_trees(&from, &to).unwrap_err();
        assert!(
            matches!(&error, SeedError::Differs { what: found, .. } if found == what),
            "{what}: {error}"
        );
    };
    differs("names", &|| {
        fs::write(to.join("a/new"), "").unwrap();
        restore(&to.join("a"), &from.join("a"));
    });
    differs("mode", &|| {
        fs::set_permissions(to.join("tool"), Permissions::from_mode(0o755)).unwrap();
    });
    differs("contents", &|| {
        let length = 200_000;
        let other = "x".repeat(length - 1) + "y";
        fs::write(to.join("a/file"), other).unwrap();
        restore(&to.join("a/file"), &from.join("a/file"));
    });
    differs("modification time", &|| {
        File::open(to.join("tool"))
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
    });
    differs("size", &|| {
        fs::write(to.join("tool"), "#").unwrap();
        // A write by a user other than root clears the set-user-ID bit.
        fs::set_permissions(to.join("tool"), Permissions::from_mode(0o4755)).unwrap();
        restore(&to.join("tool"), &from.join("tool"));
    });
    differs("hard links", &|| {
        fs::remove_file(to.join("a/b/same")).unwrap();
        fs::copy(to.join("a/file"), to.join("a/b/same")).unwrap();
        restore(&to.join("a/b/same"), &from.join("a/file"));
        restore(&to.join("a/b"), &from.join("a/b"));
    });
    differs("target", &|| {
        let (original, copy) = (from.join("link"), to.join("link"));
        fs::remove_file(&copy).unwrap();
        symlink("no-here", &copy).unwrap();
        let touched = Tool::new("touch").args(["-h", "-r"]).arg(original).arg(copy);
        SystemCommands.check(&touched).unwrap();
        restore(&to, &from);
    });
    differs("extended attributes", &|| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(to.join("tool"), "user.x", b"1", flags).unwrap();
    });
    copy_tree(&SystemCommands, &from, &to).unwrap();
    compare_trees(&from, &to).unwrap();
}
