//! What killed tests leave behind is removed before the next run, and nothing else.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use virtfleet_tests::{
    dns,
    loops::{self, Loop},
    process::{AtEnd, Launch},
    skip,
};

const TIER: u8 = 2;
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);
/// A process id above the kernel's limit (`PID_MAX_LIMIT`): no process ever has it.
const DEAD: u32 = 1 << 23;

/// A folder that is `TMPDIR` of the script, with a cache.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        // The name has no mark: a folder below a folder of a living test is not abandoned.
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("cache/virtfleet")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn create(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Output of the script.
    fn leftovers(&self, verb: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/leftovers.sh");
        Launch::new(script)
            .arg(verb)
            .env("TMPDIR", self.folder.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("VIRTFLEET_PARTS", self.path("cache/virtfleet/parts"))
            .env("VIRTFLEET_GUESTS", self.path("cache/virtfleet/guests"))
            .text(COMMAND_TIMEOUT)
            .unwrap()
    }

    /// A mounted loop device whose file is deleted. Its mount keeps it, as after a killed test.
    fn mounted_loop(&self, folder: &str, mount_point: &str) -> Mounted {
        let folder = self.create(folder);
        let point = self.create(mount_point);
        let device = Loop::blank(&folder, "disk.img", 8 << 20).unwrap();
        for (program, arguments) in [
            ("mkfs.ext4", vec![Path::new("-q"), device.node()]),
            ("mount", vec![device.node(), point.as_path()]),
        ] {
            Launch::new(program)
                .args(arguments)
                .text(COMMAND_TIMEOUT)
                .unwrap();
        }
        let file = folder.join("disk.img");
        fs::remove_file(&file).unwrap();
        Mounted {
            name: device.name(),
            file,
            point,
        }
    }
}

struct Mounted {
    /// The kernel's name of the loop device.
    name: String,
    file: PathBuf,
    point: PathBuf,
}

impl Mounted {
    fn is_attached(&self) -> bool {
        let file = Path::new("/sys/block").join(&self.name).join("loop/backing_file");
        fs::read_to_string(file).is_ok_and(|file| file.starts_with(&*self.file.to_string_lossy()))
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let point = self.point.to_string_lossy();
        mounts.lines().any(|line| line.split(' ').nth(4) == Some(&*point))
    }
}

fn add_namespace(name: &str) -> PathBuf {
    let ip = Launch::new("ip").args(["netns", "add", name]);
    ip.text(COMMAND_TIMEOUT).unwrap();
    Path::new("/run/netns").join(name)
}

#[test]
fn tier2_only_devices_and_namespaces_of_dead_tests_are_removed() {
    let test = "tier2_only_devices_and_namespaces_of_dead_tests_are_removed";
    let needed = loops::needs().and_then(|()| dns::needs(&["mkfs.ext4", "mount"]));
    if skip::need(TIER, test, needed).unwrap().is_none() {
        return;
    }
    let place = Place::new();
    let own = process::id();
    let top = place.folder.path().to_string_lossy().into_owned();
    let namespaces = [
        format!("virtfleet-{DEAD}-{own}"),
        format!("virtfleet-{own}-leftovers"),
        format!("leftovers-{own}"),
    ];
    let clean = "for name in below outside live foreign; do umount \"$1/$name\"; done\n\
                 shift; for name; do ip netns del \"$name\"; done";
    let arguments = [&top].into_iter().chain(&namespaces);
    let _end = AtEnd::new(clean, arguments).unwrap();

    let dead = format!("virtfleet-stage-{DEAD}-left");
    let outside = place.mounted_loop(&dead, "outside");
    let below = place.mounted_loop(&dead, &format!("{dead}/below"));
    // For the cleanup, if the script fails.
    symlink(&below.point, place.path("below")).unwrap();
    let ours = place.mounted_loop(&format!("virtfleet-test-{own}-live"), "live");
    let foreign = place.mounted_loop("other", "foreign");
    let networks = namespaces.each_ref().map(|name| add_namespace(name));

    let leftovers = place.leftovers("list");
    let line = format!(
        "loop device /dev/{} (deleted file {})",
        outside.name,
        outside.file.display()
    );
    // A run that begins in another checkout may have removed it.
    assert!(leftovers.contains(&line) || !outside.is_attached(), "{leftovers}");
    assert!(
        leftovers.contains(&format!("folder {}", place.path(&dead).display())),
        "{leftovers}"
    );

    let said = place.leftovers("remove");
    for gone in [&outside, &below] {
        assert!(!gone.is_mounted() && !gone.is_attached(), "{}: {said}", gone.name);
    }
    for stays in [&ours, &foreign] {
        assert!(
            stays.is_mounted() && stays.is_attached(),
            "{}: {said}",
            stays.name
        );
    }
    let exist = networks.each_ref().map(|path| path.exists());
    assert_eq!(exist, [false, true, true], "{said}");
    assert!(!place.path(&dead).exists(), "{said}");
    let again = place.leftovers("list");
    assert!(!again.contains(&top), "{again}");
}

#[test]
fn tier2_only_folders_and_cache_entries_of_dead_processes_are_removed() {
    let test = "tier2_only_folders_and_cache_entries_of_dead_processes_are_removed";
    if skip::need(TIER, test, skip::program("flock")).unwrap().is_none() {
        return;
    }
    let place = Place::new();
    let own = process::id();
    let left = [
        format!("virtfleet-test-{DEAD}-a"),
        format!("virtfleet-guests-{DEAD}-b"),
        format!("cache/virtfleet/parts/.new/kubernetes.{DEAD}"),
        "cache/virtfleet/guests/.new.abcdef".to_owned(),
    ];
    let others = [
        format!("virtfleet-test-{own}-a"),
        format!("virtfleet-other-{DEAD}-a"),
        "virtfleet-test-a".to_owned(),
        // Its script runs.
        format!("cache/virtfleet/parts/.new/kubevirt.{own}"),
        // Its lock is held.
        format!("cache/virtfleet/parts/.new/kube-apiserver.{DEAD}"),
        // There is no lock, and it is new.
        "cache/virtfleet/crates/partial.abcdef".to_owned(),
        "cache/virtfleet/parts/kubernetes".to_owned(),
    ];
    for name in left.iter().chain(&others) {
        fs::write(place.create(name).join("file"), "text").unwrap();
    }
    let lock = |name: &str| File::create(place.path(name)).unwrap();
    drop(lock("cache/virtfleet/parts/.lock"));
    drop(lock("cache/virtfleet/guests/.lock"));
    let held = lock("cache/virtfleet/parts/.kube-apiserver.lock");
    let _held = Flock::lock(held, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .unwrap();

    // Other tests may end or begin meanwhile; only what is in this folder counts.
    let lines = |text: &str| {
        let top = place.folder.path().to_string_lossy().into_owned();
        text.lines().filter(|line| line.contains(&top)).count()
    };
    let leftovers = place.leftovers("list");
    assert_eq!(lines(&leftovers), left.len(), "{leftovers}");
    for name in left.iter().chain(&others) {
        assert!(place.path(name).exists(), "{name}");
    }
    let said = place.leftovers("remove");
    assert_eq!(lines(&said), left.len(), "{said}");
    for name in &left {
        assert!(!place.path(name).exists(), "{name}: {said}");
        assert!(
            said.contains(&format!("{}\n", place.path(name).display())),
            "{name}: {said}"
        );
    }
    for name in &others {
        assert!(place.path(name).join("file").exists(), "{name}: {said}");
    }
    let again = place.leftovers("remove");
    assert_eq!(lines(&again), 0, "{again}");
}
