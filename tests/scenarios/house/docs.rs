//! What the documentation tells a reader to type exists: commands are parsed by the programs' own
//! definitions, and files of `packaging/` and targets of the Makefile are looked up.

use std::{fs, path::Path};

use clap::{Command, error::ErrorKind};
use regex_lite::Regex;

use super::tree;

/// Where a text stands.
struct Place {
    file: String,
    line: usize,
}

/// Something that a document shows as code.
struct Code {
    place: Place,
    text: String,
    /// In a block of its own, not in a sentence: then it is a whole command.
    fenced: bool,
}

/// README.md and the pages below docs/.
pub(crate) fn pages() -> Vec<(String, String)> {
    let markdown = tree::files().into_iter().filter(|path| {
        path == "README.md"
            || path.starts_with("docs/") && Path::new(path).extension().is_some_and(|end| end == "md")
    });
    let read = |path: String| {
        let text = fs::read_to_string(tree::root().join(&path)).unwrap();
        (path, text)
    };
    markdown.map(read).collect()
}

/// Lines of fenced blocks, and what stands between backticks elsewhere.
fn code(file: &str, text: &str) -> Vec<Code> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        let code = |text: &str| Code {
            place: Place {
                file: file.to_owned(),
                line: index + 1,
            },
            text: text.to_owned(),
            fenced,
        };
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced && !is_drawing(line) {
            found.push(code(line));
        } else if !fenced {
            found.extend(line.split('`').skip(1).step_by(2).map(code));
        }
    }
    found
}

/// Whether a line has characters that draw boxes and arrows.
fn is_drawing(line: &str) -> bool {
    line.contains(|c| matches!(c, '\u{2500}'..='\u{25ff}'))
}

/// The words of a shell's line, without quotes, prompt, comment and redirections; one list for each
/// command.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.trim().trim_start_matches("$ ");
    let (mut all, mut words, mut word) = (Vec::new(), Vec::<String>::new(), String::new());
    let (mut quote, mut quoted) = (None, false);
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.push(c),
            (None, '\'' | '"') => (quote, quoted) = (Some(c), true),
            (None, '|' | ';' | '&') => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                all.push(std::mem::take(&mut words));
            }
            (None, _) if c.is_whitespace() => {
                words.extend((!word.is_empty() || quoted).then(|| std::mem::take(&mut word)));
                quoted = false;
            }
            (None, '#') if word.is_empty() => break,
            (None, _) => word.push(c),
        }
    }
    all.push(words);
    for words in &mut all {
        if let Some(end) = words.iter().position(|word| word.starts_with(['>', '<'])) {
            words.truncate(end);
        }
    }
    all
}

/// A command of ours with its arguments, and the definition that parses it.
fn ours(words: &[String]) -> Option<(Command, Vec<String>)> {
    let is_prefix = |word: &&String| {
        *word == "sudo" || *word == "exec" || word.split_once('=').is_some_and(|(name, _)| is_name(name))
    };
    let words: Vec<&String> = words.iter().skip_while(is_prefix).collect();
    let (first, mut rest) = words.split_first()?;
    let mut program = first.rsplit('/').next().unwrap_or_default();
    if program == "kubectl" && rest.first().is_some_and(|word| *word == "virtfleet") {
        (program, rest) = ("virtfleetctl", &rest[1..]);
    }
    let command = match program {
        "virtfleet-agent" => virtfleet_agent::cli::command(),
        "virtfleet-collector" => virtfleet_collector::cli::command(),
        "virtfleetctl" => virtfleet_collector::ctl::cli::command(),
        _ => return None,
    };
    let line = std::iter::once(program.to_owned()).chain(rest.iter().map(ToString::to_string));
    Some((command, line.collect()))
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

/// Why the program does not take a command of the documentation.
fn refusal(code: &Code, words: &[String]) -> Option<String> {
    // A pattern in a sentence, such as `plan [disks|dns]`, is no command.
    let pattern = |word: &String| word.contains(['[', '{', '…', '<', '(']) || word.contains("...");
    if !code.fenced && (words.len() < 2 || words.iter().any(pattern)) {
        return None;
    }
    let (command, line) = ours(words)?;
    let error = command.try_get_matches_from(&line).err()?;
    let wrong = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => false,
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => true,
        _ => code.fenced,
    };
    wrong.then(|| {
        let why = error.to_string();
        format!(
            "{}:{}: {}: {}",
            code.place.file,
            code.place.line,
            line.join(" "),
            why.lines().next().unwrap_or_default()
        )
    })
}

#[test]
fn documented_commands_are_what_the_programs_take() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (file, text) in pages() {
        for code in code(&file, &text) {
            for words in commands(&code.text) {
                seen += usize::from(ours(&words).is_some());
                wrong.extend(refusal(&code, &words));
            }
        }
    }
    assert!(seen > 50, "only {seen} commands were found");
    assert!(
        wrong.is_empty(),
        "commands that fail as documented:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn documented_files_of_packaging_and_make_targets_exist() {
    let makefile = fs::read_to_string(tree::root().join("Makefile")).unwrap();
    let target = |name: &str| makefile.lines().any(|line| line.starts_with(&format!("{name}:")));
    let path = Regex::new("packaging/[A-Za-z0-9._/-]+").unwrap();
    let make = Regex::new("^(?:\\$ )?make ([a-z][a-z0-9-]*)").unwrap();
    let (mut wrong, mut seen) = (Vec::new(), [0, 0]);
    for (file, text) in pages() {
        for (index, line) in text.lines().enumerate() {
            for found in path.find_iter(line) {
                seen[0] += 1;
                let found = found.as_str().trim_end_matches(['.', '/']);
                if !tree::root().join(found).exists() {
                    wrong.push(format!("{file}:{}: there is no {found}", index + 1));
                }
            }
        }
        for code in code(&file, &text) {
            if let Some(found) = make.captures(code.text.trim()) {
                seen[1] += 1;
                if !target(&found[1]) {
                    wrong.push(format!(
                        "{file}:{}: the Makefile has no {}",
                        code.place.line, &found[1]
                    ));
                }
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen > 10), "{seen:?} were found");
    assert!(
        wrong.is_empty(),
        "documented and not there:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_wrong_verb_flag_or_value_is_found() {
    let check = |text: &str, fenced| {
        let place = Place {
            file: "x.md".to_owned(),
            line: 3,
        };
        let code = Code {
            place,
            text: text.to_owned(),
            fenced,
        };
        commands(text).iter().find_map(|words| refusal(&code, words))
    };
    for (text, fenced) in [
        ("$ virtfleetctl vmz", true),
        ("$ sudo ./virtfleet-agent plan --no-such-flag", true),
        ("A=b virtfleet-collector crds --x | kubectl apply -f -", true),
        ("$ kubectl virtfleet labels why", true),
        ("virtfleetctl vms --watchh", false),
    ] {
        let found = check(text, fenced).unwrap_or_else(|| panic!("{text} is taken"));
        assert!(found.starts_with("x.md:3: virtfleet"), "{found}");
    }
    for (text, fenced) in [
        ("$ virtfleetctl vms   # --whatever", true),
        ("$ virtfleet-collector crds >crds.yaml", true),
        ("virtfleet-agent plan [disks|dns|nic]", false),
        ("virtfleetctl labels why", false),
        ("$ echo virtfleetctl vmz", true),
    ] {
        assert_eq!(check(text, fenced), None, "{text}");
    }
}
