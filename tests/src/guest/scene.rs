//! A test's environment: a folder and guests, all of which are removed when the test ends, however
//! it ends.

use std::{
    cell::{OnceCell, RefCell},
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use tempfile::TempDir;

use super::{
    accel::{Accel, qemu_version},
    content,
    disk::Bus,
    golden::{self, Golden, NotRestored, Prepared, Start},
    image::Image,
    netns::{self, Namespace},
    part,
    places::Places,
    running::Guest,
    say,
    turn::{self, FOLDERS, Turn},
    vm::{Network, Suite, Vm},
};
use crate::{process::AtEnd, skip};

/// Tests with real guests are tier 4.
const TIER: u8 = 4;

/// Cleanup after a scene's process was killed: QEMU dies with it, files and namespaces are removed.
/// QEMU may write for a moment longer.
const CLEAN: &str = "n=0; while [ -e \"$1\" ] && [ $n -lt 20 ]; do rm -rf -- \"$1\" || sleep 0.1; n=$((n + 1)); done; \
                     for name in /run/netns/\"$2\"*; do [ ! -e \"$name\" ] || ip netns del \"${name##*/}\"; done";

/// Requires QEMU and an image of the suite.
pub fn needs(suite: Suite) -> Result<()> {
    qemu_version()?;
    Image::find(suite).map(drop)
}

/// Runs a test's body in a new scene. If the machine has no QEMU or no image of Debian 13, the test
/// is skipped as described at [`skip::need`]. Late in a long run it is
/// [deferred](skip::too_late).
///
/// If the body fails and a guest had a [fault of the emulator](Guest::emulator_fault), the body
/// runs once more, in another scene: such a failure says nothing about the program under test.
///
/// # Panics
///
/// With the error of the body and the folder to which the guests' logs were copied.
pub fn play(test: &str, body: impl Fn(&Scene) -> Result<()>) {
    let there = match skip::need(TIER, test, needs(Suite::Trixie)) {
        Ok(there) => there,
        Err(error) => panic!("{error:#}"),
    };
    if there.is_none() || skip::too_late(TIER, test) {
        return;
    }
    let Err(failure) = attempt(test, &body) else {
        return;
    };
    let Some(fault) = failure.emulator_fault else {
        panic!("{}", failure.message);
    };
    say(&format!(
        "{test} failed and runs once more, because of a fault of the emulator ({fault}): {}",
        failure.message
    ));
    if let Err(failure) = attempt(test, &body) {
        panic!("{}", failure.message);
    }
}

/// Why a test's body failed.
struct Failure {
    /// The error, and the folder with the guests' logs.
    message: String,
    /// The line that tells of a fault of the emulator.
    emulator_fault: Option<String>,
}

/// Runs a test's body once, in a new scene.
fn attempt(test: &str, body: impl Fn(&Scene) -> Result<()>) -> Result<(), Failure> {
    let scene = Scene::open(test).map_err(|error| Failure {
        message: format!("{error:#}"),
        emulator_fault: None,
    })?;
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&scene)));
    let error = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error,
        Err(panic) => {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            anyhow!("{}", said.unwrap_or("the body of the test panicked"))
        }
    };
    let emulator_fault = scene.guests.borrow().iter().find_map(Guest::emulator_fault);
    let kept = scene.keep();
    drop(scene);
    let message = match kept {
        Ok(folder) => format!("{error:#}\n\nthe guests' logs: {}", folder.display()),
        Err(lost) => format!("{error:#}\n\nthe guests' logs could not be kept: {lost:#}"),
    };
    Err(Failure {
        message,
        emulator_fault,
    })
}

/// A scene: the folder and guests of a test.
#[derive(Debug)]
pub struct Scene {
    test: String,
    guests: RefCell<Vec<Guest>>,
    namespace: OnceCell<Namespace>,
    folder: TempDir,
    _at_end: AtEnd,
    // Dropped last, so that no further process starts guests before everything is removed.
    turn: Arc<Turn>,
}

impl Scene {
    /// Waits for a lock of guests and creates a scene. [`play`] does this for a test.
    pub fn open(test: &str) -> Result<Self> {
        let image = Image::find(Suite::Trixie).or_else(|_| Image::find(Suite::Bookworm))?;
        let turn = Turn::take(image.cache()?)?;
        let folder = tempfile::Builder::new()
            .prefix(&format!("{FOLDERS}{}-", process::id()))
            .tempdir()
            .context("a folder for guests")?;
        let namespaces = format!("{}{}-", netns::PREFIX, process::id());
        let at_end = AtEnd::new(CLEAN, [folder.path().as_os_str(), namespaces.as_ref()])?;
        Ok(Self {
            _at_end: at_end,
            test: test.to_owned(),
            guests: RefCell::default(),
            namespace: OnceCell::new(),
            folder,
            turn,
        })
    }

    /// A folder for files of the test.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The scene's network namespace, with only `lo` and the taps of its guests.
    pub fn namespace(&self) -> Result<&Namespace> {
        if let Some(namespace) = self.namespace.get() {
            return Ok(namespace);
        }
        let namespace = Namespace::new()?;
        Ok(self.namespace.get_or_init(|| namespace))
    }

    /// Starts a guest.
    pub fn start(&self, vm: &Vm, start: Start) -> Result<Guest> {
        let begun = Instant::now();
        let image = Image::find(vm.suite)?;
        let accel = Accel::of_this_machine(&image)?;
        if start == Start::Cold {
            return self.start_from(vm, &image, accel, None, start, begun);
        }
        Self::restored(
            &image,
            || self.golden(&image, vm, accel, start),
            |golden| self.start_from(vm, &image, accel, Some(golden), start, begun),
        )
    }

    /// Starts a guest that is booted and prepared. The preparation is made once for VMs of a shape,
    /// and kept as a snapshot.
    pub fn start_prepared(&self, vm: &Vm, prepared: &Prepared) -> Result<Guest> {
        let begun = Instant::now();
        let image = Image::find(vm.suite)?;
        let accel = Accel::of_this_machine(&image)?;
        let find = || {
            let base = self.golden(&image, vm, accel, Start::Booted)?;
            let (folder, text, found) = base.find_prepared(&image, prepared)?;
            if let Some(golden) = found {
                return Ok(golden);
            }
            self.make(&image, vm, accel, &folder, |plain, new| {
                golden::prepare_over(&base, plain, new)?;
                let guest = self.in_the_making(&image, plain, accel, new)?;
                let made = base.make_prepared(&image, &guest, prepared, new, (folder.clone(), text));
                Ok((guest, made?))
            })
        };
        Self::restored(&image, find, |golden| {
            self.start_from(vm, &image, accel, Some(golden), Start::Booted, begun)
        })
    }

    /// Starts a guest from a snapshot that `find` finds or makes; of several processes, one at a
    /// time does that. A snapshot that does not restore is removed and made once more: a machine
    /// that lost its power may have left it incomplete.
    fn restored(
        image: &Image,
        find: impl Fn() -> Result<Golden>,
        start: impl Fn(&Golden) -> Result<Guest>,
    ) -> Result<Guest> {
        let find = || {
            let _lock = turn::lock(&image.file("snapshots.lock"))?;
            find()
        };
        match start(&find()?) {
            Err(error) if error.is::<NotRestored>() => {
                say(&format!("making it again: {error:#}"));
                start(&find()?)
            }
            outcome => outcome,
        }
    }

    /// Boots a VM on a copy of the root disk of `other`, which must be off: a cloned VM.
    pub fn start_clone(&self, vm: &Vm, other: &Guest) -> Result<Guest> {
        let source = other.vm();
        ensure!(other.qemu().is_err(), "{} runs: its disk is in use", source.name);
        let image = Image::find(vm.suite)?;
        let accel = Accel::of_this_machine(&image)?;
        let places = self.places(&image, vm)?;
        fs::copy(&other.places().root, &places.root).context("copy a root disk")?;
        if let Some(seed) = &vm.seed {
            content::seed(seed, &places.seed, &places.folder)?;
        }
        let guest = self.guest(vm, accel, places)?;
        guest.boot()?;
        Ok(guest)
    }

    /// Boots a VM on a copy of a disk image in QEMU's format `format`, whose root filesystem is the
    /// whole disk, with the kernel of its suite.
    pub fn start_image(&self, vm: &Vm, disk: &Path, format: &str) -> Result<Guest> {
        let image = Image::find(vm.suite)?;
        let accel = Accel::of_this_machine(&image)?;
        let places = self.places(&image, vm)?;
        content::overlay(&places.root, disk, format)?;
        if let Some(seed) = &vm.seed {
            content::seed(seed, &places.seed, &places.folder)?;
        }
        let guest = self.guest(vm, accel, places)?;
        guest.launch(vm, false, false)?;
        Ok(guest)
    }

    fn start_from(
        &self,
        vm: &Vm,
        image: &Image,
        accel: Accel,
        golden: Option<&Golden>,
        start: Start,
        begun: Instant,
    ) -> Result<Guest> {
        let places = self.places(image, vm)?;
        match golden {
            Some(golden) => content::overlay(&places.root, &golden.root(), "qcow2")?,
            None => content::overlay(&places.root, &image.file("root.img"), "raw")?,
        }
        match (&vm.seed, golden) {
            // The same file, not a copy: the guest may have read a part of it.
            (Some(_), Some(golden)) if start == Start::Booted => {
                fs::copy(golden.seed(), &places.seed).context("copy the seed")?;
            }
            (Some(seed), _) => content::seed(seed, &places.seed, &places.folder)?,
            (None, _) => {}
        }
        let guest = self.guest(vm, accel, places)?;
        match golden {
            Some(golden) => {
                if let Err(error) = golden.restore(&guest, start) {
                    guest.cut_power();
                    self.forget(&guest)?;
                    return Err(error);
                }
            }
            None => guest.launch(vm, false, false)?,
        }
        let how = match start {
            Start::Cold => "switched on",
            Start::Booted => "answers",
            Start::BeforeCloudInit => "is at cloud-init",
        };
        say(&format!(
            "{} {how} after {:.2} s",
            vm.name,
            begun.elapsed().as_secs_f64()
        ));
        Ok(guest)
    }

    /// The snapshot for a VM; created if it does not exist.
    fn golden(&self, image: &Image, vm: &Vm, accel: Accel, start: Start) -> Result<Golden> {
        let (folder, text, found) = Golden::find(image, vm, accel, start)?;
        if let Some(golden) = found {
            return Ok(golden);
        }
        self.make(image, vm, accel, &folder, |plain, new| {
            let mut plain = plain.clone();
            if start == Start::BeforeCloudInit {
                plain = plain.kernel("testhold");
            }
            golden::prepare(image, &plain, new)?;
            let guest = self.in_the_making(image, &plain, accel, new)?;
            guest.launch(&plain, false, false)?;
            let made = Golden::make(image, &guest, start, new, (folder.clone(), text));
            Ok((guest, made?))
        })
    }

    /// Creates a snapshot: `run` gets the VM without its individual values, and a folder for the
    /// snapshot's files.
    fn make(
        &self,
        image: &Image,
        vm: &Vm,
        accel: Accel,
        folder: &Path,
        run: impl FnOnce(&Vm, &Path) -> Result<(Guest, Golden)>,
    ) -> Result<Golden> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        say(&format!(
            "making {name} with {}, once for VMs of this shape",
            accel.name()
        ));
        let mut plain = vm.clone();
        plain.disks.clear();
        plain.forwards.clear();
        plain.mirrors.clear();
        "golden".clone_into(&mut plain.name);
        let (guest, made) = run(&plain, &image.goldens().join("new"))?;
        self.forget(&guest)?;
        Ok(made)
    }

    /// Removes a guest that is off, with its files and devices.
    fn forget(&self, guest: &Guest) -> Result<()> {
        self.guests
            .borrow_mut()
            .retain(|other| other.folder() != guest.folder());
        for tap in &guest.places().taps {
            self.namespace()?.remove_tap(tap)?;
        }
        let folder = guest.folder();
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))
    }

    /// A guest whose root disk and seed are in `new`.
    fn in_the_making(&self, image: &Image, vm: &Vm, accel: Accel, new: &Path) -> Result<Guest> {
        let mut places = self.places(image, vm)?;
        (places.root, places.seed) = (new.join("root.qcow2"), new.join("seed.img"));
        self.guest(vm, accel, places)
    }

    fn places(&self, image: &Image, vm: &Vm) -> Result<Places> {
        let folder = self.folder.path().join(&vm.name);
        ensure!(!folder.exists(), "the scene has a guest {} already", vm.name);
        fs::create_dir(&folder).with_context(|| format!("create {}", folder.display()))?;
        let mut taps = Vec::new();
        if vm.network == Network::Tap {
            let others = self
                .guests
                .borrow()
                .iter()
                .map(|guest| guest.places().taps.len())
                .sum::<usize>();
            for (index, nic) in vm.nics.iter().enumerate() {
                let number = others + index;
                let tap = format!("tap{number}");
                self.namespace()?.tap(&tap, number + 2, nic.queues > 1)?;
                taps.push(tap);
            }
        }
        Ok(Places {
            image: image.folder().to_owned(),
            root: folder.join("root.qcow2"),
            seed: folder.join("seed.img"),
            folder,
            taps,
        })
    }

    fn guest(&self, vm: &Vm, accel: Accel, places: Places) -> Result<Guest> {
        let namespace = match vm.network {
            Network::Restricted => None,
            Network::Enclosed | Network::Tap => Some(self.namespace()?.name().to_owned()),
        };
        let mut parts = Vec::new();
        let mut port = 0;
        for disk in &vm.disks {
            let file = places.file(&format!("{}.img", disk.name));
            content::disk(&disk.content, &file).with_context(|| format!("disk {}", disk.name))?;
            parts.push(part::disk(vm, disk, content::file(&disk.content, &file), port));
            port += u32::from(disk.bus == Bus::Virtio);
        }
        ensure!(
            port <= vm.spare_ports,
            "{port} disks on {} spare ports",
            vm.spare_ports
        );
        let guest = Guest::new(vm.clone(), accel, places, namespace, parts);
        self.guests.borrow_mut().push(guest.clone());
        Ok(guest)
    }

    /// Copies the console, QEMU's output and command line and, if the guest still answers, its
    /// journal to `target/guests/<test>/<guest>/`, and returns that folder. For the analysis of
    /// failures.
    pub fn keep(&self) -> Result<PathBuf> {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target"),
            PathBuf::from,
        );
        let kept = target.join("guests").join(self.test.replace(['/', ':'], "_"));
        if kept.exists() {
            fs::remove_dir_all(&kept).with_context(|| format!("remove {}", kept.display()))?;
        }
        for guest in self.guests.borrow().iter() {
            let folder = kept.join(&guest.vm().name);
            fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
            for log in ["console.log", "qemu-system-x86_64.log", "swtpm.log"] {
                let from = guest.places().file(log);
                if from.exists() {
                    fs::copy(&from, folder.join(log)).with_context(|| format!("copy {}", from.display()))?;
                }
            }
            // A guest that hangs or is off has no journal to copy.
            drop(guest.cont());
            let answers = guest.qemu().is_ok() && guest.wait_agent(Duration::from_secs(5)).is_ok();
            let journal =
                "journalctl --sync; journalctl --boot --no-pager --output=short-monotonic | tail -n 4000";
            if answers && let Ok(output) = guest.sh_within(journal, Duration::from_secs(30)) {
                fs::write(folder.join("journal"), output.stdout)?;
            }
        }
        Ok(kept)
    }

    /// Whether other scenes of this process share the lock, for tests of the harness itself.
    pub fn shares_its_turn(&self) -> bool {
        Arc::strong_count(&self.turn) > 1
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Clones may still exist; QEMU must not.
        for guest in self.guests.borrow().iter() {
            guest.cut_power();
        }
    }
}
