//! Directories of `textfile`: paths in the guest whose components may contain `*`, `?` and `[a-z]`,
//! as in a shell.

use std::{collections::BTreeSet, io};

use regex_lite::Regex;
use virtfleet_agent_core::settings::folders::{Folder, Part};
use virtfleet_agent_host::{Roots, exists, read_directory};

use crate::RegistryError;

/// Maximum number of directories.
/// Maximum number of names per directory, and of intermediate paths.
const MAX_DIRECTORIES: usize = 256;
const MAX_NAMES: usize = 10_000;

/// The directories of the settings.
#[derive(Debug)]
pub(super) struct Folders(Vec<Folder>);

impl Folders {
    /// An empty path selects none, as with node_exporter's flag.
    ///
    /// # Errors
    /// A pattern is invalid.
    pub(super) fn new(paths: &[String]) -> Result<Self, RegistryError> {
        Folder::all(paths).map(Self)
    }

    /// True if no directory is configured.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The existing directories by path in the guest. A pattern without a match is returned
    /// unchanged, so that opening it gives an error. Omissions are added to `wrong`.
    pub(super) fn find(&self, roots: &Roots, wrong: &mut BTreeSet<String>) -> Vec<String> {
        let mut found = Vec::new();
        for folder in &self.0 {
            let mut paths = vec![String::new()];
            for part in &folder.parts {
                let mut next = Vec::new();
                for path in &paths {
                    match part {
                        Part::Name(name) => next.push(format!("{path}/{name}")),
                        Part::Pattern(pattern) => matching(roots, path, pattern, &mut next, wrong),
                    }
                }
                // Only the last component determines which of them are used.
                cut(&mut next, MAX_NAMES, wrong);
                paths = next;
            }
            let patterns = folder.parts.iter().any(|part| matches!(part, Part::Pattern(_)));
            if patterns {
                paths.retain(|path| exists(&roots.root_file(path)));
            }
            if paths.is_empty() {
                found.push(folder.path.clone());
            }
            found.append(&mut paths);
        }
        found.sort_unstable();
        found.dedup();
        cut(&mut found, MAX_DIRECTORIES, wrong);
        found
    }
}

fn cut(paths: &mut Vec<String>, most: usize, wrong: &mut BTreeSet<String>) {
    if let Some(first) = paths.get(most) {
        wrong.insert(format!(
            "{first} and the following ones: more than {most} directories"
        ));
        paths.truncate(most);
    }
}

fn matching(
    roots: &Roots,
    path: &str,
    pattern: &Regex,
    found: &mut Vec<String>,
    wrong: &mut BTreeSet<String>,
) {
    // A shell pattern matches nothing in an unreadable directory.
    let Ok(mut names) = names(roots, if path.is_empty() { "/" } else { path }, wrong) else {
        return;
    };
    names.retain(|name| pattern.is_match(name));
    names.sort_unstable();
    found.extend(names.into_iter().map(|name| format!("{path}/{name}")));
}

/// UTF-8 names in a directory of the guest. Names beyond the maximum and unreadable entries are
/// left out and added to `wrong`.
pub(super) fn names(roots: &Roots, folder: &str, wrong: &mut BTreeSet<String>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for (index, entry) in read_directory(&roots.root_file(folder))?.enumerate() {
        if index == MAX_NAMES {
            wrong.insert(format!("{folder}: more than {MAX_NAMES} names"));
            break;
        }
        match entry {
            Ok(entry) => names.extend(entry.file_name().into_string()),
            Err(error) => drop(wrong.insert(format!("{folder}: {error}"))),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_core::settings::folders::KEY;

    use super::*;

    #[test]
    fn directories_are_found_and_unmatched_patterns_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["srv/a/metrics", "srv/b/metrics", "srv/c"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let roots = Roots {
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        let found = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
            Folders::new(&paths).map(|folders| {
                let mut wrong = BTreeSet::new();
                let found = folders.find(&roots, &mut wrong);
                assert_eq!(wrong, BTreeSet::new());
                found
            })
        };
        assert_eq!(
            found(&["/srv/*/metrics", "/srv/a//metrics"]).unwrap(),
            ["/srv/a/metrics", "/srv/b/metrics"]
        );
        assert_eq!(found(&["", "/none", "/srv/x*"]).unwrap(), ["/none", "/srv/x*"]);
        for path in ["relative", "/srv/../etc", "/srv/[a"] {
            assert_eq!(found(&[path]).unwrap_err().key(), KEY, "{path}");
        }
    }

    #[test]
    fn omissions_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        let find = |path: &str| {
            let mut wrong = BTreeSet::new();
            let found = Folders::new(&[path.to_owned()]).unwrap().find(&roots, &mut wrong);
            (found.len(), wrong.into_iter().collect::<Vec<_>>())
        };
        for n in 0..MAX_DIRECTORIES {
            fs::create_dir_all(dir.path().join(format!("home/{n:03}/metrics"))).unwrap();
        }
        // Entries without the directory do not count.
        for n in 0..MAX_DIRECTORIES {
            fs::create_dir(dir.path().join(format!("home/a{n}"))).unwrap();
        }
        assert_eq!(find("/home/*/metrics"), (MAX_DIRECTORIES, Vec::new()));
        fs::create_dir(dir.path().join("home/a9/metrics")).unwrap();
        let too_many = "/home/a9/metrics and the following ones: more than 256 directories".to_owned();
        assert_eq!(find("/home/*/metrics"), (MAX_DIRECTORIES, vec![too_many]));
        let folder = dir.path().join("full");
        fs::create_dir(&folder).unwrap();
        for n in 0..MAX_NAMES {
            fs::write(folder.join(n.to_string()), "").unwrap();
        }
        let mut wrong = BTreeSet::new();
        assert_eq!(names(&roots, "/full", &mut wrong).unwrap().len(), MAX_NAMES);
        assert!(wrong.is_empty());
        fs::write(folder.join("more"), "").unwrap();
        assert_eq!(names(&roots, "/full", &mut wrong).unwrap().len(), MAX_NAMES);
        assert!(wrong.contains("/full: more than 10000 names"), "{wrong:?}");
        assert_eq!(find("/full/none*").1, ["/full: more than 10000 names"]);
    }
}
