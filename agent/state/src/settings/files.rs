//! Finds and reads the settings files, lowest precedence first, by systemd's rule for drop-ins.
//!
//! `/etc/virtfleet/agent.yaml` has the lowest precedence. The files of the three `agent.d`
//! directories follow in the order of their names, independent of their directory. Of files with
//! the same name, only the one in the directory with the highest precedence is read: `/run` before
//! `/etc` before `/usr/lib`. An empty file, or a link to `/dev/null`, masks files of that name.

use std::path::Path;

use virtfleet_agent_core::settings::{FRAGMENT_FOLDERS, MAIN_FILE, is_fragment, reading_order};
use virtfleet_agent_host::{ReadError, Roots, is_mask, is_present, list, read_text};
use virtfleet_wire::layered::{Fragment, Problem};

/// Maximum size of one settings file in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of fragments that are read. Further ones are reported as problems and skipped.
const MAX_FILES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Found {
    /// Lowest precedence first.
    pub(super) fragments: Vec<Fragment>,
    pub(super) problems: Vec<Problem>,
    pub(super) unreadable: Vec<String>,
    pub(super) masked: Vec<String>,
}

/// Reads only the file that the caller names.
pub(super) fn read_one(path: &Path) -> Found {
    let mut found = Found::default();
    found.read(path, path.display().to_string());
    found
}

/// Reads all files below the root filesystem. If there are none, the defaults apply.
pub(super) fn read_all(roots: &Roots) -> Found {
    let mut found = Found::default();
    let main = roots.root(MAIN_FILE);
    // A dangling link is a problem; a missing file is not.
    if is_mask(&main) {
        found.masked.push(MAIN_FILE.to_owned());
    } else if is_present(&main) {
        found.read(&main, MAIN_FILE.to_owned());
    }

    let mut fragments = Vec::new();
    for directory in FRAGMENT_FOLDERS {
        let names = match list(&roots.root(directory)) {
            Ok(names) => names,
            Err(ReadError::Missing) => continue,
            Err(error) => {
                let message = format!("cannot list the directory: {error}");
                found.problems.push(Problem::of_file(directory, 0, message));
                continue;
            }
        };
        for name in names {
            let path = Path::new(&name);
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if name.starts_with('.') => {}
                _ if is_fragment(&name) => fragments.push((directory, name)),
                Some("yml" | "json") => {
                    let message = "not read: the name of a fragment ends in .yaml";
                    found
                        .problems
                        .push(Problem::of_file(&format!("{directory}/{name}"), 0, message));
                }
                _ => {}
            }
        }
    }
    let order = reading_order(fragments);
    found.masked.extend(order.masked);
    for (index, file) in order.read.into_iter().enumerate() {
        let path = roots.root(&file);
        if index >= MAX_FILES {
            let message = format!("not read: only the first {MAX_FILES} fragments are read");
            found.problems.push(Problem::of_file(&file, 0, message));
            found.unreadable.push(file);
        } else if is_mask(&path) {
            found.masked.push(file);
        } else {
            found.read(&path, file);
        }
    }
    found
}

impl Found {
    fn read(&mut self, path: &Path, file: String) {
        match read_text(path, MAX_BYTES) {
            Ok(text) => self.fragments.push(Fragment { file, text }),
            Err(error) => {
                let message = format!("cannot be read: {error}");
                self.problems.push(Problem::of_file(&file, 0, message));
                self.unreadable.push(file);
            }
        }
    }
}
