//! Files that cannot be replaced because of how they are mounted.

use super::*;

/// Runs in its own mount namespace, which requires root.
#[test]
fn tier2_a_read_only_filesystem_and_a_mounted_file_are_refused_before_anything_changes() {
    use nix::{
        mount::{MsFlags, mount},
        sched::{CloneFlags, unshare},
    };
    if !crate::is_root() {
        return;
    }
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    let (_dir, mut roots) = plain(false);
    // This thread's own mounts, not those of the process's main thread.
    roots.procfs = "/proc".into();
    fs::write(roots.root("/etc/elsewhere"), "nameserver 192.0.2.9\n").unwrap();
    let commands = FakeCommands::content();
    let refused = || {
        let mut steps = vec![write("x", "/srv/x.conf")];
        steps.extend(take_over());
        let error = apply(&roots, &commands, &NoFailPoints, &steps, &mut || Ok(())).unwrap_err();
        assert!(!roots.root("/srv").exists() && !unfinished(&roots));
        error.to_string()
    };
    let file = roots.root(RESOLV_CONF);
    mount(
        Some(&roots.root("/etc/elsewhere")),
        &file,
        none,
        MsFlags::MS_BIND,
        none,
    )
    .unwrap();
    let error = refused();
    assert!(error.contains("/etc/elsewhere of "), "{error}");
    assert!(
        error.contains(&format!("sudo umount {}", file.display())),
        "{error}"
    );
    assert!(!error.contains("chattr"), "{error}");
    let obstacle = resolv_conf(&roots).obstacle.unwrap();
    assert!(obstacle.remedy.starts_with("sudo umount "), "{obstacle:?}");
    let etc = roots.root("/etc");
    mount(Some(&etc), &etc, none, MsFlags::MS_BIND, none).unwrap();
    let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, &etc, none, read_only, none).unwrap();
    let error = refused();
    assert!(error.contains("mounted read-only"), "{error}");
    let remount = format!("sudo mount -o remount,rw,bind {}", etc.display());
    assert!(error.contains(&remount), "{error}");
    assert!(resolv_conf(&roots).fixed);
}
