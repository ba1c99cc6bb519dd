//! Names and sentences, as far as a script can hold them: plain technical English, in the terms of
//! Linux and Kubernetes.
//!
//! What is left to do is counted per folder in [`LEFT`]; the numbers only fall.

use std::collections::{BTreeMap, BTreeSet};

use regex_lite::Regex;

use super::{
    rules::{BANNED_CONSTANTS, BANNED_WORDS, LEFT, MAX_COMMENT},
    tree,
};

/// What a folder has left of each kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    words: usize,
    long_comments: usize,
    constants: usize,
}

/// The folder of [`LEFT`] that a file belongs to.
fn folder(path: &str) -> &'static str {
    let mut folders = LEFT.iter().map(|(folder, _)| *folder);
    folders.find(|folder| path.starts_with(*folder)).unwrap_or("")
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Comments and texts of a line of Rust: what a person may read.
fn prose(line: &str) -> String {
    if is_comment(line) {
        return line.to_owned();
    }
    let (mut texts, mut within) = (String::new(), false);
    for part in line.split('"') {
        if within {
            texts.push_str(part);
            texts.push(' ');
        }
        within = !within;
    }
    let comment = line.split_once(" // ").map(|(_, comment)| comment);
    texts + comment.unwrap_or_default()
}

/// True for a line of a table or a diagram, which cannot be wrapped.
fn is_figure(line: &str) -> bool {
    line.contains(['─', '│', '└', '┌', '▶']) || line.trim_start_matches([' ', '/', '!']).starts_with('|')
}

fn banned() -> Regex {
    let words: Vec<String> = BANNED_WORDS.iter().map(|word| format!(r"\b{word}\b")).collect();
    Regex::new(&format!("(?i){}", words.join("|"))).unwrap()
}

#[test]
fn names_and_sentences_are_plain() {
    let (banned, mut found) = (banned(), BTreeMap::<&str, Count>::new());
    let mut examples = Vec::new();
    for (path, text) in tree::sources() {
        let path = path.strip_prefix(tree::root()).unwrap();
        let path = path.to_str().unwrap();
        // The rules themselves name what they ban.
        if path.starts_with("tests/scenarios/house/") {
            continue;
        }
        let count = found.entry(folder(path)).or_default();
        for (index, line) in text.lines().enumerate() {
            let mut report =
                |what: &str| examples.push(format!("{path}:{}: {what}: {}", index + 1, line.trim()));
            let matches = banned.find_iter(&prose(line)).count();
            if matches > 0 {
                count.words += matches;
                report("word");
            }
            if is_comment(line) && !is_figure(line) && line.chars().count() > MAX_COMMENT {
                count.long_comments += 1;
                report("long comment");
            }
            let name = line
                .trim_start()
                .trim_start_matches("pub(super) ")
                .trim_start_matches("pub(crate) ");
            let name = name
                .strip_prefix("pub const ")
                .or_else(|| name.strip_prefix("const "));
            let name = name.and_then(|rest| rest.split(':').next());
            if name.is_some_and(|name| BANNED_CONSTANTS.contains(&name)) {
                count.constants += 1;
                report("constant");
            }
        }
    }
    let mut more = Vec::new();
    for (folder, count) in &found {
        let (_, left) = LEFT.iter().find(|(one, _)| one == folder).unwrap();
        let now = [count.words, count.long_comments, count.constants];
        if now.iter().zip(left).any(|(now, left)| now > left) {
            more.push(format!("{folder:?}: {now:?} now, LEFT has {left:?}"));
        }
    }
    let shown = examples.iter().rev().take(if more.is_empty() { 0 } else { 4000 });
    assert!(
        more.is_empty(),
        "[words, long comments, constants] may only become fewer:\n{}\n{}",
        more.join("\n"),
        shown.cloned().collect::<Vec<_>>().join("\n")
    );
}

/// Types that are not local to their file: the same name must not mean two things.
#[test]
fn no_type_name_is_used_twice_without_need() {
    let declaration = Regex::new(r"(?m)^pub(?:\([a-z]+\))? (?:struct|enum|trait) (\w+)").unwrap();
    let mut places = BTreeMap::<String, BTreeSet<String>>::new();
    for (path, text) in tree::sources() {
        let path = path.strip_prefix(tree::root()).unwrap();
        let path = path.to_str().unwrap().to_owned();
        if path.starts_with("tests/") || path.contains("/tests") {
            continue;
        }
        for found in declaration.captures_iter(&text) {
            places
                .entry(found[1].to_owned())
                .or_default()
                .insert(path.clone());
        }
    }
    places.retain(|_, paths| paths.len() > 1);
    let known = super::rules::DUPLICATE_TYPES;
    assert!(
        places.len() <= known,
        "{} type names are used twice, {known} were: {places:#?}",
        places.len()
    );
}

#[test]
fn only_what_a_person_reads_is_searched() {
    assert_eq!(prose("let wish = \"a text\"; // why"), "a text why");
    assert_eq!(prose("    /// A comment."), "    /// A comment.");
    assert!(is_figure("//! a ─▶ b") && is_figure("/// | a | b |") && !is_figure("// a long sentence"));
    assert!(banned().is_match("Nobody knows") && !banned().is_match("a wishbone"));
}
