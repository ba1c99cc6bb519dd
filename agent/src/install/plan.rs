//! The installation plan: the difference between the expected files and the current ones.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use virtfleet_agent_host::{has_content, is_plain, is_present, is_same_file, link_target};
use virtfleet_delivery::{
    INSTALLED, WANTED,
    guest::{self, Link, PACKAGE_UNITS, USER},
    payload::File,
    requested_sum, words,
};
use virtfleet_runtime::digest::sha256_file;

use super::{InstallError, Options, io_error};

/// The changes, in order. Paths are those of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The binary to copy if it is missing or different: source and target.
    pub binary: Option<(PathBuf, String)>,
    /// Files that are missing or different.
    pub files: Vec<File>,
    /// Links that are missing or different.
    pub links: Vec<Link>,
    /// Files and links of an older version that this version does not have.
    pub obsolete: Vec<String>,
    /// True if the user or the group is missing.
    pub user: bool,
    /// The record of the installation. It is written last, so that it is never ahead of the files.
    pub record: Option<File>,
}

/// Compares the expected files with the current ones. `own` is the binary to install, usually that
/// of this process.
///
/// # Errors
/// A package owns the agent, the prefix cannot be used, or `own` cannot be read.
pub fn plan(options: &Options, own: &Path, version: &str) -> Result<Plan, InstallError> {
    for folder in PACKAGE_UNITS {
        let unit = format!("{folder}/{}", guest::AGENT_UNIT);
        if is_present(&options.at(&unit)?) {
            return Err(InstallError::Packaged(unit));
        }
    }
    let prefix = options.prefix.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !options.prefix.is_absolute() || !prefix.chars().all(plain) {
        return Err(InstallError::Prefix(prefix));
    }

    let agent = options.agent();
    let sum = sha256_file(own).map_err(io_error("read", own))?;
    let there = options.at(&agent)?;
    // At every boot, the delivery runs the installed agent: its own file needs no second digest.
    let has_content = || is_same_file(own, &there) || sha256_file(&there).is_ok_and(|found| found == sum);
    let same = is_plain(&there, 0o755) && has_content();

    let files = guest::files(&agent);
    let links = guest::links();
    let ours: BTreeSet<&str> = files
        .iter()
        .map(|file| file.path.as_str())
        .chain(links.iter().map(|link| link.path.as_str()))
        .chain([agent.as_str()])
        .collect();
    let before = options.small_text(INSTALLED);
    let is_left = |path: &&str| options.at(path).is_ok_and(|path| is_present(&path));
    let obsolete = words(&before, "file")
        .filter(|path| is_ours(path) && !ours.contains(path))
        .filter(is_left)
        .map(str::to_owned)
        .collect();
    let record = record(&sum, version, &options.small_text(WANTED), &ours);
    let lacks = |file: &str| {
        !options
            .small_text(file)
            .lines()
            .any(|line| line.split(':').next() == Some(USER))
    };
    // A directory that is a dangling link in the image is an error before anything is written.
    for path in &ours {
        options.at(path)?;
    }
    Ok(Plan {
        binary: (!same).then(|| (own.to_owned(), agent.clone())),
        files: files
            .iter()
            .filter(|file| !is_there(options, file))
            .cloned()
            .collect(),
        links: links
            .iter()
            .filter(|link| {
                let there = options.at(&link.path).ok().and_then(|path| link_target(&path));
                there.as_deref() != Some(Path::new(&link.target))
            })
            .cloned()
            .collect(),
        obsolete,
        user: lacks("/etc/passwd") || lacks("/etc/group"),
        record: (!is_there(options, &record)).then_some(record),
    })
}

/// True if an older version can have installed this path. No other path is ever removed, even if
/// the record names it.
pub(super) fn is_ours(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let folder = [
        "/etc/systemd/system/",
        "/etc/udev/rules.d/",
        "/etc/sysusers.d/",
        "/etc/tmpfiles.d/",
    ]
    .iter()
    .any(|folder| path.starts_with(folder));
    name.contains("virtfleet") && (folder || path.ends_with("/bin/virtfleet-agent")) && !path.contains("..")
}

/// The content of [`virtfleet_delivery::INSTALLED`].
fn record(sum: &str, version: &str, wanted: &str, ours: &BTreeSet<&str>) -> File {
    let wanted = requested_sum(wanted, std::env::consts::ARCH).unwrap_or("-");
    let mut text = format!("sha256 {sum}\nversion {version}\nwanted {wanted}\n");
    for path in ours {
        text.push_str("file ");
        text.push_str(path);
        text.push('\n');
    }
    File {
        path: INSTALLED.to_owned(),
        mode: 0o644,
        content: text.into_bytes(),
    }
}

fn is_there(options: &Options, file: &File) -> bool {
    let Ok(path) = options.at(&file.path) else {
        return false;
    };
    has_content(&path, file.mode, &file.content)
}
