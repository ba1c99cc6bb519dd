//! Rules about the files of the tree, asked of git: what is not in it does not count.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use virtfleet_tests::process::Launch;

use super::rules::{LONGEST_SOURCE, TOP};

/// The top of the tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the tree")
}

/// Files that git has or would take (not ignored), relative to the top.
fn files() -> Vec<String> {
    let listed = Launch::new("git")
        .arg("-C")
        .arg(root())
        // A clone that another user made, as in a container's checkout, is read all the same.
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .text(Duration::from_mins(1))
        .unwrap();
    let there = |path: &&str| !path.is_empty() && root().join(path).is_file();
    listed.split('\0').filter(there).map(str::to_owned).collect()
}

/// Rust sources, each with its absolute path and its text.
pub(crate) fn sources() -> Vec<(PathBuf, String)> {
    let rust = files().into_iter().filter(|path| {
        Path::new(path)
            .extension()
            .is_some_and(|extension| extension == "rs")
    });
    let read = |path: String| (root().join(&path), fs::read_to_string(root().join(path)).unwrap());
    rust.map(read).collect()
}

#[test]
fn the_top_holds_only_what_was_decided() {
    let files = files();
    let top: BTreeSet<&str> = files.iter().filter_map(|path| path.split('/').next()).collect();
    let stray: Vec<_> = top
        .into_iter()
        .filter(|name| !name.starts_with('.') && !TOP.contains(name))
        .collect();
    assert!(
        stray.is_empty(),
        "at the top without a reason in docs/decisions/: {stray:?}"
    );
}

#[test]
fn source_files_stay_small() {
    let long: Vec<String> = sources()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_SOURCE)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert!(
        long.is_empty(),
        "more than {LONGEST_SOURCE} lines; one idea a file:\n{}",
        long.join("\n")
    );
}

#[test]
fn no_file_names_a_machine_it_was_made_on() {
    // Put together here, so that this file does not hold what it looks for.
    let mut needles = vec![
        [".cargo", "registry"].join("/"),
        ["", "target", "debug", "deps"].join("/"),
    ];
    needles.push(format!("{}/", root().display()));
    needles.extend(
        env::var("HOME")
            .ok()
            .filter(|home| home.len() > 1)
            .map(|home| format!("{home}/.")),
    );
    let work = ["/wo", "rk/"].concat();
    let mut found = Vec::new();
    for path in files() {
        // What is not text is not read: pictures and archives.
        let Ok(text) = fs::read_to_string(root().join(&path)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            let rooted = line.match_indices(&work).any(|(at, _)| {
                !line[..at].ends_with(|before: char| before.is_alphanumeric() || "._-*}~/".contains(before))
            });
            if rooted || needles.iter().any(|needle| line.contains(needle.as_str())) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "paths of one machine:\n{}", found.join("\n"));
}
