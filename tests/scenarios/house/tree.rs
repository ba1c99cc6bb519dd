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
pub(crate) fn files() -> Vec<String> {
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

/// Whether a Rust source declares the module, and not only under a condition.
fn declares(text: &str, module: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = lines.iter().position(|line| {
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        line.strip_prefix("mod ")
            .is_some_and(|rest| rest == format!("{module};"))
    });
    declared.is_some_and(|at| at == 0 || !lines[at - 1].starts_with("#[cfg"))
}

/// A file that no other file declares is not compiled, and its tests do not run.
#[test]
fn every_scenario_file_belongs_to_a_program() {
    let folder = root().join("tests/scenarios");
    let scenarios: Vec<(PathBuf, String)> = sources()
        .into_iter()
        .map(|(path, text)| (root().join(path), text))
        .filter(|(path, _)| path.starts_with(&folder))
        .collect();
    let programs = ["main.rs", "house.rs", "fuzz.rs"].map(|name| folder.join(name));
    for program in &programs {
        assert!(
            scenarios.iter().any(|(path, _)| path == program),
            "{} is missing",
            program.display()
        );
    }
    let orphans: Vec<String> = scenarios
        .iter()
        .filter(|(path, _)| !programs.contains(path))
        .filter(|(path, _)| {
            let (module, above) = (path.file_stem().unwrap(), path.parent().unwrap());
            let may_declare = |other: &Path| {
                if above == folder {
                    other == programs[0]
                } else {
                    other == above.with_extension("rs") || other.parent() == Some(above)
                }
            };
            !scenarios
                .iter()
                .any(|(other, text)| may_declare(other) && declares(text, &module.to_string_lossy()))
        })
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(
        orphans.is_empty(),
        "no scenario file declares these with `mod NAME;`; the top is tests/scenarios/main.rs:\n{}",
        orphans.join("\n")
    );
}

/// `make check` builds the unit tests of libraries only: each program would be linked a second time
/// for its tests.
#[test]
fn programs_have_no_unit_tests() {
    let programs = |path: &Path| {
        let of_a_program = |part: &std::ffi::OsStr| part == "bin" || part == "main.rs";
        path.iter().any(of_a_program) && !path.starts_with("tests/scenarios")
    };
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|(path, text)| programs(path) && text.lines().any(|line| line.trim() == "#[test]"))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(
        found.is_empty(),
        "unit tests of a program are not run; move what they test to the crate's library: {found:?}"
    );
}

/// A benchmark that no run tries stops working, and nothing says so.
#[test]
fn every_benchmark_is_in_the_smoke_run() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let (makefile, script) = (read("Makefile"), read("tests/bench-smoke.sh"));
    let table = script.split("\ntable='\n").nth(1).unwrap();
    let table = table.split("\n'\n").next().unwrap();
    let first_words = table.lines().filter_map(|line| line.split(' ').next());
    let tried: BTreeSet<&str> = first_words.collect();
    let targets = makefile.lines().filter_map(|line| line.split_once(':'));
    let targets: BTreeSet<&str> = targets
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("bench-") && *name != "bench-smoke")
        .collect();
    assert_eq!(
        tried, targets,
        "left: the table of tests/bench-smoke.sh; right: the targets of the Makefile"
    );
}

/// `tests/parts/parts.sh` downloads the packages of its table in the versions of `tests/parts/pins`,
/// and refuses other contents.
#[test]
fn every_downloaded_server_is_pinned() {
    let read = |name: &str| fs::read_to_string(root().join("tests/parts").join(name)).unwrap();
    let (pins, script) = (read("pins"), read("parts.sh"));
    let rows: Vec<Vec<&str>> = pins
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_complete = |row: &Vec<&str>| match row[..] {
        [_, "sid" | "trixie" | "cargo", _, _, _, hash] => hash.len() == 64 && hash.bytes().all(is_hex),
        // A SHA-256 in base64, as in go.sum.
        [_, "go", _, _, _, hash] => hash.len() == 47 && hash.starts_with("h1:") && hash.ends_with('='),
        _ => false,
    };
    let wrong: Vec<_> = rows.iter().filter(|row| !is_complete(row)).collect();
    assert!(
        wrong.is_empty(),
        "tests/parts/pins: not part, suite, package, version, architecture and hash: {wrong:?}"
    );
    // Several releases of a Go module are used.
    let packages: Vec<_> = rows
        .iter()
        .filter(|row| row[1] != "go")
        .map(|row| (&row[..3], row[4]))
        .collect();
    let distinct: BTreeSet<_> = packages.iter().collect();
    assert_eq!(
        distinct.len(),
        packages.len(),
        "tests/parts/pins has two versions of a package"
    );

    let table = script.split("\ntable='\n").nth(1).unwrap();
    let table = table.split("\n'\n").next().unwrap();
    let mut parts = 0;
    for line in table.lines() {
        let mut words = line.split_whitespace();
        let (part, package) = (words.next().unwrap(), words.next().unwrap());
        for suite in ["sid", "trixie"] {
            assert!(
                rows.iter().any(|row| row[..3] == [part, suite, package]),
                "tests/parts/pins has no {package} of {suite} for {part}; tests/parts/parts.sh pin prints the row"
            );
        }
        parts += 1;
    }
    assert!(parts >= 6, "{parts} parts in the table of tests/parts/parts.sh");
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
