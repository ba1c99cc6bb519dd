//! The folders of `textfile`: paths in the guest, whose parts may hold `*`, `?` and `[a-z]` as a shell has them.

use std::path::Path;

use regex_lite::Regex;

use crate::host::Roots;
use crate::metrics::RegistryError;

const KEY: &str = "metrics.textfile.directories";
/// Folders that are found at the most, and names of a folder that are looked at.
const FOLDERS: usize = 256;
const NAMES: usize = 10_000;

/// The folders of the settings.
#[derive(Debug)]
pub(super) struct Folders(Vec<Folder>);

#[derive(Debug)]
struct Folder {
    /// As the settings have it.
    path: String,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Name(String),
    Pattern(Regex),
}

impl Folders {
    /// An empty path is none, as with node_exporter's flag.
    pub(super) fn new(paths: &[String]) -> Result<Self, RegistryError> {
        let folders = paths.iter().filter(|path| !path.is_empty());
        folders
            .map(|path| Folder::new(path))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether nothing is read at all.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The folders that there are now, by their paths in the guest. Where a pattern finds none, it stands for itself, so
    /// that whoever opens it is told.
    pub(super) fn find(&self, roots: &Roots) -> Vec<String> {
        let mut found = Vec::new();
        for folder in &self.0 {
            let mut paths = vec![String::new()];
            for part in &folder.parts {
                let mut next = Vec::new();
                for path in &paths {
                    match part {
                        Part::Name(name) => next.push(format!("{path}/{name}")),
                        Part::Pattern(pattern) => matching(roots, path, pattern, &mut next),
                    }
                }
                next.truncate(FOLDERS);
                paths = next;
            }
            let patterns = folder.parts.iter().any(|part| matches!(part, Part::Pattern(_)));
            if patterns {
                paths.retain(|path| roots.root_file(path).exists());
            }
            if paths.is_empty() {
                found.push(folder.path.clone());
            }
            found.append(&mut paths);
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(FOLDERS);
        found
    }
}

fn matching(roots: &Roots, path: &str, pattern: &Regex, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(roots.root_file(if path.is_empty() { "/" } else { path })) else {
        return;
    };
    let mut names: Vec<_> = entries
        .take(NAMES)
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| pattern.is_match(name))
        .collect();
    names.sort_unstable();
    found.extend(names.into_iter().map(|name| format!("{path}/{name}")));
}

impl Folder {
    fn new(path: &str) -> Result<Self, RegistryError> {
        let wrong = |reason| RegistryError::Value { key: KEY, reason };
        if !Path::new(path).is_absolute() || path.contains('\0') {
            return Err(wrong("a folder is an absolute path"));
        }
        let mut parts = Vec::new();
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            if name == ".." {
                return Err(wrong("a folder's path has no .. in it"));
            }
            parts.push(if name.contains(['*', '?', '[']) {
                Part::Pattern(pattern(name)?)
            } else {
                Part::Name(name.to_owned())
            });
        }
        Ok(Self {
            path: path.to_owned(),
            parts,
        })
    }
}

/// A shell's pattern as a regular expression.
fn pattern(name: &str) -> Result<Regex, RegistryError> {
    let mut expression = String::from("(?s)^");
    let (mut in_set, mut before) = (false, ' ');
    let mut buffer = [0; 4];
    for c in name.chars() {
        let opened = std::mem::replace(&mut before, c) == '[';
        match c {
            '[' if !in_set => in_set = true,
            '!' if in_set && opened => {
                expression.push('^');
                continue;
            }
            ']' if in_set => in_set = false,
            '*' if !in_set => expression.push('.'),
            '?' if !in_set => {
                expression.push('.');
                continue;
            }
            '^' | '-' if in_set => {}
            _ => {
                expression.push_str(&regex_lite::escape(c.encode_utf8(&mut buffer)));
                continue;
            }
        }
        expression.push(c);
    }
    expression.push('$');
    Regex::new(&expression).map_err(|source| RegistryError::Pattern {
        key: KEY,
        pattern: name.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_a_shell() {
        for (text, name, matches) in [
            ("*", "anything", true),
            ("job-*", "job-1", true),
            ("job-*", "myjob-1", false),
            ("a.b*", "axb", false),
            ("?", "é", true),
            ("?", "ab", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("a!", "a!", true),
            ("+*", "+1", true),
        ] {
            assert_eq!(pattern(text).unwrap().is_match(name), matches, "{text} {name}");
        }
        assert!(pattern("[a").is_err());
    }

    #[test]
    fn folders_are_found_or_stand_for_themselves() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["srv/a/metrics", "srv/b/metrics", "srv/c"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let roots = Roots {
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        let found = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
            Folders::new(&paths).map(|folders| folders.find(&roots))
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
}
