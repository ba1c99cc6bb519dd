//! The files that one scrape of the agent reads, as traced by strace, and the time of bare reads of
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::ErrorKind,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

/// The files of one scrape, in the order of their first read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Files that are kept open and read again.
    pub kept: Vec<PathBuf>,
    /// Files that are opened each time; repeated if opened several times.
    pub opened: Vec<PathBuf>,
}

impl Files {
    /// Parses lines such as `812 pread64(9</proc/stat>, ""..., 4096, 0) = 812` and `812
    /// openat(AT_FDCWD, ""..., …) = 9</proc/x>`.
    pub fn parse(text: &str) -> Self {
        let (mut files, mut seen) = (Self::default(), BTreeSet::new());
        // Number of descriptors opened in this scrape, by path.
        let mut fresh: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines() {
            let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
            // With several threads strace may print a call in two halves; the second half has the
            // result.
            if call.starts_with("open") || call.starts_with("<... open") {
                if let Some(path) = call.rsplit_once(" = ").and_then(|(_, end)| of_descriptor(end)) {
                    *fresh.entry(path.to_owned()).or_default() += 1;
                }
                continue;
            }
            let Some(path) = call.split_once('(').and_then(|(_, rest)| of_descriptor(rest)) else {
                continue;
            };
            if !path.starts_with('/') || !seen.insert(path.to_owned()) {
                continue;
            }
            match fresh.get(path) {
                Some(times) => files.opened.extend(vec![PathBuf::from(path); *times]),
                None => files.kept.push(path.into()),
            }
        }
        files
    }

    /// Number of file reads.
    pub fn count(&self) -> usize {
        self.kept.len() + self.opened.len()
    }

    /// Reads all files `times` times, and returns the duration of each round.
    pub fn read(&self, times: usize) -> Result<Vec<Duration>> {
        // Files of a process disappear with it, as those of strace have.
        let open = |path: &PathBuf| match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            result => Some(result.with_context(|| path.display().to_string())),
        };
        let kept = self.kept.iter().filter_map(open).collect::<Result<Vec<_>>>()?;
        let mut buffer = vec![0_u8; 256 * 1024];
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let start = Instant::now();
            for file in &kept {
                whole(file, &mut buffer);
            }
            for path in &self.opened {
                if let Ok(file) = File::open(path) {
                    whole(&file, &mut buffer);
                }
            }
            took.push(start.elapsed());
        }
        Ok(took)
    }
}

/// Reads to the end. Some sysfs files return an error where a device has no value; this counts as a
/// read.
fn whole(file: &File, buffer: &mut [u8]) {
    let mut at = 0;
    while let Ok(count @ 1..) = file.read_at(buffer, at) {
        at += count as u64;
    }
}

/// `9</proc/stat>` is `/proc/stat`.
fn of_descriptor(text: &str) -> Option<&str> {
    let (number, rest) = text.split_once('<')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let path = rest.split_once('>')?.0;
    digits.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_how_they_are_read() {
        let text = "812 pread64(9</proc/stat>, \"\"..., 65536, 0) = 812\n\
            812 pread64(9</proc/stat>, \"\"..., 65536, 812) = 0\n\
            812 openat(AT_FDCWD, \"\"..., O_RDONLY|O_CLOEXEC) = 10</sys/class/net/eth0/mtu>\n\
            812 read(10</sys/class/net/eth0/mtu>, \"\"..., 64) = 5\n\
            813 openat(AT_FDCWD</>, \"\"..., O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)\n\
            813 openat(AT_FDCWD</>, \"\"..., O_RDONLY <unfinished ...>\n\
            813 <... openat resumed>) = 12</sys/dev/block/8:0/stat>\n\
            813 read(12</sys/dev/block/8:0/stat>, \"\"..., 64) = 5\n\
            813 read(7<socket:[1234]>, \"\"..., 64) = 5\n\
            813 openat(AT_FDCWD</>, \"\"..., O_RDONLY|O_CLOEXEC|O_DIRECTORY) = 11</sys/class/net>\n";
        let files = Files::parse(text);
        assert_eq!(files.kept, [PathBuf::from("/proc/stat")]);
        let opened = ["/sys/class/net/eth0/mtu", "/sys/dev/block/8:0/stat"];
        assert_eq!(files.opened, opened.map(PathBuf::from));
        assert_eq!(files.count(), 3);
    }
}
