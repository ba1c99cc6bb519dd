//! Which parts of the agent may touch the guest: what Cargo cannot hold, because the standard
//! library can open files, too.

use super::{
    rules::{EFFECTS, WITHOUT_EFFECTS},
    tree,
};

/// The lines of a source file that are neither comments nor tests, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    let in_order = lines.take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    in_order
        .map(|(index, line)| (index + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

fn effect(line: &str) -> Option<&'static str> {
    let is_whole = |at: usize, effect: &str| {
        let within = |before: char| before.is_alphanumeric() || before == '_' || before == ':';
        effect.starts_with('.') || !line[..at].ends_with(within)
    };
    let mut effects = EFFECTS.iter().copied();
    effects.find(|effect| line.match_indices(effect).any(|(at, _)| is_whole(at, effect)))
}

#[test]
fn only_the_host_crate_touches_the_guest() {
    let mut found = Vec::new();
    for (path, text) in tree::sources() {
        let path = path.strip_prefix(tree::root()).unwrap();
        let path = path.to_str().unwrap();
        if !WITHOUT_EFFECTS.iter().any(|folder| path.starts_with(folder)) || is_test(path) {
            continue;
        }
        found.extend(code(&text).filter_map(|(number, line)| {
            effect(line).map(|effect| format!("{path}:{number}: {effect}: {}", line.trim()))
        }));
    }
    assert!(
        found.is_empty(),
        "do it in agent/host and call it from here:\n{}",
        found.join("\n")
    );
}

#[test]
fn effects_are_found_outside_of_tests_and_comments() {
    let text = "use std::{fs, io};\n// fs::read\nlet a = fs::read(path);\n#[cfg(test)]\nfs::write(x);\n";
    let found: Vec<usize> = code(text)
        .filter(|(_, line)| effect(line).is_some())
        .map(|(number, _)| number)
        .collect();
    assert_eq!(found, [3]);
    assert_eq!(effect("if !path.exists() {"), Some(".exists()"));
    assert_eq!(effect("use virtfleet_agent_core::procfs::{pairs, stat};"), None);
    assert_eq!(
        effect("let file = OpenOptions::new().open(path)?;"),
        Some("OpenOptions")
    );
    assert_eq!(effect("use std::os::unix::ffi::OsStrExt as _;"), None);
}
