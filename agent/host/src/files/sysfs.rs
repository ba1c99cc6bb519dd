//! Devices in sysfs and their attributes. A class directory is listed at each scrape; data about a
//! device is kept while its entry is the same. An attribute stays open and is read with one
//! `pread`. It has at most a page (kernel: `Documentation/filesystems/sysfs.rst`).

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

/// Maximum size of an attribute in bytes: a page.
const MAX_ATTRIBUTE_BYTES: usize = 4096;
/// Maximum number of attributes that this process keeps open; others are opened for each read. The
/// default limit of open files is 1024.
const MAX_OPEN: usize = 256;
/// Maximum number of accepted entries of a directory.
const MAX_ENTRIES: usize = 4096;
/// Maximum time for a driver to create a device's attributes, from the first listing on.
const SETTLE_TIME: Duration = Duration::from_secs(30);

/// Buffer for one attribute.
pub type AttributeBuffer = [u8; MAX_ATTRIBUTE_BYTES];

/// An empty buffer for [`Attribute::read`].
pub fn attribute_buffer() -> Box<AttributeBuffer> {
    Box::new([0; MAX_ATTRIBUTE_BYTES])
}

/// A sysfs attribute, kept open up to a total of [`MAX_OPEN`].
#[derive(Debug)]
pub struct Attribute {
    path: PathBuf,
    file: Option<OpenFile>,
}

/// An open file, counted in [`OPEN`].
#[derive(Debug)]
struct OpenFile(File);

static OPEN: AtomicUsize = AtomicUsize::new(0);

impl OpenFile {
    fn new(file: File) -> Option<Self> {
        let room = |open| (open < MAX_OPEN).then_some(open + 1);
        OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .is_ok()
            .then_some(Self(file))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Attribute {
    /// Does not open the file before the first read.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file: None,
        }
    }
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the trimmed text of the attribute; invalid bytes become U+FFFD. If reading the open
    /// file fails, it is reopened once.
    ///
    /// # Errors
    /// The attribute cannot be read.
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
            self.file = OpenFile::new(file);
            length
        };
        if length == MAX_ATTRIBUTE_BYTES {
            self.file = None;
            return Err(RereadError::TooLarge {
                path: self.path.clone(),
                limit: MAX_ATTRIBUTE_BYTES - 1,
            });
        }
        Ok(String::from_utf8_lossy(buffer[..length].trim_ascii()))
    }

    /// Reads the attribute as a number. `None` if it is not one.
    ///
    /// # Errors
    /// The attribute cannot be read.
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

/// One read is sufficient: sysfs returns an attribute at once. A read that fails with EAGAIN is not
/// repeated.
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

/// Reads an attribute once without keeping it open.
///
/// # Errors
/// The attribute cannot be read.
pub fn attribute_once<'buffer>(
    path: &Path,
    buffer: &'buffer mut AttributeBuffer,
) -> Result<Cow<'buffer, str>, RereadError> {
    Attribute::new(path).read(buffer)
}

/// An entry of a directory that is listed repeatedly.
#[derive(Debug)]
pub struct Device<T> {
    pub name: String,
    inode: u64,
    /// When the entry was first listed.
    since: Instant,
    made: Instant,
    /// Data kept for the entry.
    pub kept: T,
}

/// A directory whose entries are devices, e.g. `/sys/class/hwmon`. The data of an entry is created
/// when it appears, and again when another device takes its name, which has a different inode. A
/// device is listed before its driver has created its attributes; see [`Devices::refresh_with`].
#[derive(Debug)]
pub struct Devices<T> {
    directory: PathBuf,
    held: Vec<Device<T>>,
}

impl<T> Devices<T> {
    /// Does not list the directory before the first [`Devices::refresh`].
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            held: Vec::new(),
        }
    }

    /// The devices of the last refresh, by name, for reading.
    pub fn all(&mut self) -> &mut [Device<T>] {
        &mut self.held
    }
    /// The devices of the last refresh, by name.
    pub fn held(&self) -> &[Device<T>] {
        &self.held
    }

    /// Lists the directory and calls `make` for each new entry whose name is `wanted`. Returns
    /// whether any device was added or removed.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn refresh(
        &mut self,
        wanted: impl Fn(&str) -> bool,
        make: impl FnMut(&str, &Path) -> T,
    ) -> Result<bool, RereadError> {
        self.list(wanted, make, |_| false, (Instant::now(), Duration::ZERO))
    }

    /// Like [`Devices::refresh`], but a device's data is created again at each refresh until 30 s
    /// after it was first listed, because its driver may not have created all attributes, and after
    /// that while `is_empty` is true for it. That counts as a change unless it is still empty.
    /// `now` is the time of this refresh.
    ///
    /// # Errors
    /// As [`Devices::refresh`].
    pub fn refresh_with(
        &mut self,
        wanted: impl Fn(&str) -> bool,
        make: impl FnMut(&str, &Path) -> T,
        is_empty: impl Fn(&T) -> bool,
        now: Instant,
    ) -> Result<bool, RereadError> {
        self.list(wanted, make, is_empty, (now, SETTLE_TIME))
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
                // The previous entries are outdated.
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

/// The `wanted` entries of a directory with their inode numbers, by name, at most 4096.
fn entries(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, u64)>, RereadError> {
    let failed = |source| RereadError::Io {
        path: directory.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        if found.len() == MAX_ENTRIES {
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

/// Names of a directory's regular files, sorted. Empty if it cannot be listed.
pub fn attribute_names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .take(MAX_ENTRIES)
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_current_and_at_most_a_page() {
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
        fs::write(&path, [b'x'; MAX_ATTRIBUTE_BYTES]).unwrap();
        let error = attribute.read(&mut buffer).unwrap_err();
        assert!(matches!(error, RereadError::TooLarge { .. }), "{error}");
        fs::write(&path, [0xff, b'1']).unwrap();
        assert_eq!(attribute.read(&mut buffer).unwrap(), "\u{fffd}1");
        assert!(attribute_once(dir.path(), &mut buffer).is_err(), "a directory");
    }

    #[test]
    fn device_data_is_created_when_a_device_appears() {
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
        // Another device with the name of a removed one.
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
    fn unwanted_entries_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..MAX_ENTRIES + 100 {
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
        let mut all = Devices::new(dir.path());
        all.refresh(|_| true, |_, _| ()).unwrap();
        assert_eq!(all.held().len(), MAX_ENTRIES);
    }

    #[test]
    fn device_data_is_created_again_until_it_is_not_empty() {
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
        // Also if another device appears at the same time.
        fs::create_dir(dir.path().join("more")).unwrap();
        assert_eq!(refresh(40), (true, vec!["late".to_owned(), "more".to_owned()]));
        for name in ["late", "more"] {
            fs::write(dir.path().join(name).join("name"), "").unwrap();
        }
        assert_eq!(refresh(80), (true, vec!["late".to_owned(), "more".to_owned()]));
        assert_eq!(refresh(120), (false, Vec::new()));
    }

    #[test]
    fn a_new_device_is_read_again_for_late_attributes() {
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
        // Another device appears, which does not extend the time of the first.
        fs::create_dir(dir.path().join("hwmon1")).unwrap();
        assert_eq!(after(20, "temp1_label"), (true, 3));
        // Independent of the time until the next scrape.
        assert_eq!(after(80, "temp1_max"), (true, 4));
        assert_eq!(after(81, "late"), (false, 4));
    }

    #[test]
    fn attributes_are_regular_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("power")).unwrap();
        fs::write(dir.path().join("name"), "").unwrap();
        std::os::unix::fs::symlink("power", dir.path().join("device")).unwrap();
        assert_eq!(attribute_names(dir.path()), ["name"]);
        assert!(attribute_names(&dir.path().join("none")).is_empty());
    }
}
