//! Devices of sysfs and their attributes: a class directory is listed at each scrape, and what is
//! known of a device is kept for as long as its entry is the same one; an attribute stays open and is read with one
//! `pread`. An attribute holds a page at the most (kernel: `Documentation/filesystems/sysfs.rst`).

use std::{
    borrow::Cow,
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::{DirEntryExt as _, FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use nix::libc;

use crate::RereadError;

/// A page.
const LIMIT: usize = 4096;
/// Attributes that stay open in this process; others are opened at each reading. A process may have 1024 files open
/// where nobody says more.
const MOST_OPEN: usize = 256;
/// Entries of a directory that are kept, of those that are wanted.
const MOST_ENTRIES: usize = 4096;
/// How long a driver may take to make a device's attributes, from when the device is first listed.
const SETTLING: Duration = Duration::from_secs(30);

/// Room for one attribute.
pub type AttributeBuffer = [u8; LIMIT];

/// An empty buffer for [`Attribute::read`].
pub fn attribute_buffer() -> Box<AttributeBuffer> {
    Box::new([0; LIMIT])
}

/// One file of sysfs, kept open while not too many are.
#[derive(Debug)]
pub struct Attribute {
    path: PathBuf,
    file: Option<Kept>,
}

/// A file that stays open.
#[derive(Debug)]
struct Kept(File);

static OPEN: AtomicUsize = AtomicUsize::new(0);

impl Kept {
    fn new(file: File) -> Option<Self> {
        let room = |open| (open < MOST_OPEN).then_some(open + 1);
        OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .is_ok()
            .then_some(Self(file))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Attribute {
    /// Nothing is opened before the first reading.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file: None,
        }
    }
    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the attribute says now, without blanks at either end; bytes that are no text become U+FFFD. An open file that
    /// fails is opened again once.
    pub fn read<'buffer>(
        &mut self,
        buffer: &'buffer mut AttributeBuffer,
    ) -> Result<Cow<'buffer, str>, RereadError> {
        let read = self.file.as_ref().and_then(|kept| fill(&kept.0, buffer).ok());
        let length = if let Some(length) = read {
            length
        } else {
            self.file = None;
            let file = open(&self.path).map_err(|source| self.error(source))?;
            let length = fill(&file, buffer).map_err(|source| self.error(source))?;
            self.file = Kept::new(file);
            length
        };
        if length == LIMIT {
            self.file = None;
            return Err(RereadError::TooLarge {
                path: self.path.clone(),
                limit: LIMIT - 1,
            });
        }
        Ok(String::from_utf8_lossy(buffer[..length].trim_ascii()))
    }

    /// What the attribute says now as a number; none when it says something else.
    pub fn number<N: FromStr>(&mut self, buffer: &mut AttributeBuffer) -> Result<Option<N>, RereadError> {
        Ok(self.read(buffer)?.parse().ok())
    }

    fn error(&self, source: io::Error) -> RereadError {
        RereadError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

/// One reading is enough: sysfs gives all of an attribute at once. Drivers that say EAGAIN are not asked again.
fn fill(file: &File, buffer: &mut AttributeBuffer) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, 0) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path)
}

/// Reads an attribute once; nothing stays open.
pub fn attribute_once<'buffer>(
    path: &Path,
    buffer: &'buffer mut AttributeBuffer,
) -> Result<Cow<'buffer, str>, RereadError> {
    Attribute::new(path).read(buffer)
}

/// An entry of a directory that is listed again and again.
#[derive(Debug)]
pub struct Device<T> {
    /// The entry's name.
    pub name: String,
    inode: u64,
    /// When it was first listed, and what is kept of it made.
    since: Instant,
    made: Instant,
    /// What is kept of it.
    pub kept: T,
}

/// A directory whose entries are devices, e.g. `/sys/class/hwmon`. What is kept of an entry is made when it appears, and
/// again when another takes its name: sysfs gives each a number of its own. A device is listed before its driver has made
/// its attributes: [`Devices::refresh_with`] looks again.
#[derive(Debug)]
pub struct Devices<T> {
    directory: PathBuf,
    held: Vec<Device<T>>,
}

impl<T> Devices<T> {
    /// Nothing is listed before the first [`Devices::refresh`].
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            held: Vec::new(),
        }
    }

    /// The devices of the last refresh, by name, to be read.
    pub fn all(&mut self) -> &mut [Device<T>] {
        &mut self.held
    }
    /// The devices of the last refresh, by name.
    pub fn held(&self) -> &[Device<T>] {
        &self.held
    }

    /// Lists the directory and asks `make` for what is to be kept of the entries that are new and `wanted` by name. Says
    /// whether anything came or went.
    pub fn refresh(
        &mut self,
        wanted: impl Fn(&str) -> bool,
        make: impl FnMut(&str, &Path) -> T,
    ) -> Result<bool, RereadError> {
        self.list(wanted, make, |_| false, (Instant::now(), Duration::ZERO))
    }

    /// The same, and a device is made again at each refresh until that was 30 s after it was first listed, as its driver may have
    /// made only some of its attributes before, and then for as long as it comes out empty, as `is_empty` has it. It counts
    /// as a change unless it is as empty as before. `now` is when this refresh begins.
    pub fn refresh_with(
        &mut self,
        wanted: impl Fn(&str) -> bool,
        make: impl FnMut(&str, &Path) -> T,
        is_empty: impl Fn(&T) -> bool,
        now: Instant,
    ) -> Result<bool, RereadError> {
        self.list(wanted, make, is_empty, (now, SETTLING))
    }

    fn list(
        &mut self,
        wanted: impl Fn(&str) -> bool,
        mut make: impl FnMut(&str, &Path) -> T,
        is_empty: impl Fn(&T) -> bool,
        (now, settling): (Instant, Duration),
    ) -> Result<bool, RereadError> {
        let unsure = |device: &Device<T>| device.made.saturating_duration_since(device.since) < settling;
        let found = match entries(&self.directory, wanted) {
            Ok(found) => found,
            Err(error) => {
                // What was held is of a moment ago, and of devices that may be gone.
                self.held.clear();
                return Err(error);
            }
        };
        if found.len() == self.held.len()
            && found
                .iter()
                .zip(&self.held)
                .all(|((name, inode), device)| device.name == *name && device.inode == *inode)
        {
            let mut changed = false;
            for device in &mut self.held {
                let was_empty = is_empty(&device.kept);
                if was_empty || unsure(device) {
                    device.made = now;
                    device.kept = make(&device.name, &self.directory.join(&device.name));
                    changed |= !was_empty || !is_empty(&device.kept);
                }
            }
            return Ok(changed);
        }
        let mut known = std::mem::take(&mut self.held).into_iter().peekable();
        for (name, inode) in found {
            while known.next_if(|device| device.name < name).is_some() {}
            let device = known.next_if(|device| device.name == name && device.inode == inode);
            let since = device.as_ref().map_or(now, |device| device.since);
            let device = device.filter(|device| !is_empty(&device.kept) && !unsure(device));
            self.held.push(device.unwrap_or_else(|| Device {
                kept: make(&name, &self.directory.join(&name)),
                since,
                made: now,
                inode,
                name,
            }));
        }
        Ok(true)
    }
}

/// The entries of a directory that are `wanted`, each with its inode's number, by name, at most 4096.
fn entries(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, u64)>, RereadError> {
    let failed = |source| RereadError::Io {
        path: directory.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        if found.len() == MOST_ENTRIES {
            break;
        }
        let entry = entry.map_err(failed)?;
        if let Ok(name) = entry.file_name().into_string()
            && wanted(&name)
        {
            found.push((name, entry.ino()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The names of a directory's plain files, sorted; none when it cannot be listed.
pub fn attribute_names(directory: &Path) -> Vec<String> {
    names(directory, fs::FileType::is_file)
}

/// The names of a directory's directories and links, sorted; none when it cannot be listed.
pub fn directory_names(directory: &Path) -> Vec<String> {
    names(directory, |kind| kind.is_dir() || kind.is_symlink())
}

fn names(directory: &Path, takes: impl Fn(&fs::FileType) -> bool) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| takes(&kind)))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .take(MOST_ENTRIES)
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_fresh_and_a_page_at_the_most() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (mut attribute, mut buffer) = (Attribute::new(&path), attribute_buffer());
        assert!(attribute.read(&mut buffer).unwrap_err().is_missing());
        for (text, read) in [("42\n", "42"), (" x y \n", "x y"), ("", "")] {
            fs::write(&path, text).unwrap();
            assert_eq!(attribute.read(&mut buffer).unwrap(), read);
        }
        fs::write(&path, "7\n").unwrap();
        assert_eq!(attribute.number::<u64>(&mut buffer).unwrap(), Some(7));
        fs::write(&path, "-7\n").unwrap();
        assert_eq!(attribute.number::<u64>(&mut buffer).unwrap(), None);
        fs::write(&path, [b'x'; LIMIT]).unwrap();
        let error = attribute.read(&mut buffer).unwrap_err();
        assert!(matches!(error, RereadError::TooLarge { .. }), "{error}");
        fs::write(&path, [0xff, b'1']).unwrap();
        assert_eq!(attribute.read(&mut buffer).unwrap(), "\u{fffd}1");
        assert!(attribute_once(dir.path(), &mut buffer).is_err(), "a directory");
    }

    #[test]
    fn devices_are_made_when_they_come() {
        let dir = tempfile::tempdir().unwrap();
        let mut devices = Devices::new(dir.path().join("class"));
        let mut made = 0;
        let mut refresh = |devices: &mut Devices<usize>| {
            let changed = devices
                .refresh(
                    |name| name.starts_with('d'),
                    |_, path| {
                        assert!(path.is_dir());
                        made += 1;
                        made
                    },
                )
                .unwrap();
            let all = devices.all().iter();
            (changed, all.map(|d| (d.name.clone(), d.kept)).collect::<Vec<_>>())
        };
        assert!(devices.refresh(|_| true, |_, _| 0).unwrap_err().is_missing());
        let at = |name: &str| dir.path().join("class").join(name);
        fs::create_dir_all(at("d2")).unwrap();
        fs::create_dir_all(at("x")).unwrap();
        assert_eq!(refresh(&mut devices), (true, vec![("d2".into(), 1)]));
        assert_eq!(refresh(&mut devices), (false, vec![("d2".into(), 1)]));
        for name in ["d1", "d3"] {
            fs::create_dir(at(name)).unwrap();
        }
        let three = vec![("d1".into(), 2), ("d2".into(), 1), ("d3".into(), 3)];
        assert_eq!(refresh(&mut devices), (true, three));
        // Another device under the name of one that went.
        fs::create_dir(at("next")).unwrap();
        fs::remove_dir(at("d2")).unwrap();
        fs::rename(at("next"), at("d2")).unwrap();
        fs::remove_dir(at("d1")).unwrap();
        assert_eq!(
            refresh(&mut devices),
            (true, vec![("d2".into(), 4), ("d3".into(), 3)])
        );
    }

    #[test]
    fn what_is_not_wanted_takes_no_room() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..MOST_ENTRIES + 100 {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        for n in 0..100 {
            fs::create_dir(dir.path().join(format!("objset-{n}"))).unwrap();
        }
        let mut devices = Devices::new(dir.path());
        devices
            .refresh(|name| name.starts_with("objset-"), |_, _| ())
            .unwrap();
        assert_eq!(devices.held().len(), 100);
        assert_eq!(directory_names(dir.path()).len(), 100);
        let mut all = Devices::new(dir.path());
        all.refresh(|_| true, |_, _| ()).unwrap();
        assert_eq!(all.held().len(), MOST_ENTRIES);
    }

    #[test]
    fn a_device_is_made_again_until_it_has_something() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["early", "late"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("early/name"), "").unwrap();
        let mut devices = Devices::new(dir.path());
        let mut made = Vec::new();
        let begun = Instant::now();
        let mut refresh = |seconds| {
            let names = |name: &str, path: &Path| {
                made.push(name.to_owned());
                attribute_names(path)
            };
            let now = begun + Duration::from_secs(seconds);
            let changed = devices.refresh_with(|_| true, names, Vec::is_empty, now).unwrap();
            (changed, std::mem::take(&mut made))
        };
        let both = vec!["early".to_owned(), "late".to_owned()];
        assert_eq!(refresh(0), (true, both.clone()));
        assert_eq!(refresh(30), (true, both));
        assert_eq!(refresh(31), (false, vec!["late".to_owned()]));
        // Also when another comes at the same time.
        fs::create_dir(dir.path().join("more")).unwrap();
        assert_eq!(refresh(40), (true, vec!["late".to_owned(), "more".to_owned()]));
        for name in ["late", "more"] {
            fs::write(dir.path().join(name).join("name"), "").unwrap();
        }
        assert_eq!(refresh(80), (true, vec!["late".to_owned(), "more".to_owned()]));
        assert_eq!(refresh(120), (false, Vec::new()));
    }

    #[test]
    fn a_new_device_is_looked_at_again_for_what_comes_late() {
        let dir = tempfile::tempdir().unwrap();
        let chip = dir.path().join("hwmon0");
        fs::create_dir(&chip).unwrap();
        let mut devices = Devices::new(dir.path());
        let begun = Instant::now();
        let mut after = |seconds, file: &str| {
            fs::write(chip.join(file), "").unwrap();
            let now = begun + Duration::from_secs(seconds);
            let changed = devices.refresh_with(|_| true, |_, path| attribute_names(path), Vec::is_empty, now);
            (changed.unwrap(), devices.held()[0].kept.len())
        };
        assert_eq!(after(0, "name"), (true, 1));
        assert_eq!(after(5, "temp1_input"), (true, 2));
        // Another comes, which makes nothing settle later.
        fs::create_dir(dir.path().join("hwmon1")).unwrap();
        assert_eq!(after(20, "temp1_label"), (true, 3));
        // However long it was until the next scrape.
        assert_eq!(after(80, "temp1_max"), (true, 4));
        assert_eq!(after(81, "late"), (false, 4));
    }

    #[test]
    fn names_by_kind() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("power")).unwrap();
        fs::write(dir.path().join("name"), "").unwrap();
        std::os::unix::fs::symlink("power", dir.path().join("device")).unwrap();
        assert_eq!(attribute_names(dir.path()), ["name"]);
        assert_eq!(directory_names(dir.path()), ["device", "power"]);
        assert!(attribute_names(&dir.path().join("none")).is_empty());
    }
}
