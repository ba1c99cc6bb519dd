//! The script that delivers the agent: the parts in `text/` that the payload needs, and its files.
//! It writes the files durably, verifies them at every boot, and fetches and installs the agent.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    own::{DELIVER, DELIVER_MODE},
    payload::{AgentBinary, File, Payload, TLS_PATHS, UNIT_PATH, compact},
    spec::Source,
};

/// End marker of a file in the script; no line of a file that is written as plain text may equal
/// it.
const END_MARKER: &str = "END";
/// End marker of the script in the boot command, which has the same rule.
const SCRIPT_END_MARKER: &str = "VIRTFLEET_END";
/// Columns of base64.
const BASE64_COLUMNS: usize = 100;

/// How the script gets into a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// The boot command writes and runs it. It then keeps itself and its unit in place, and repairs
    /// what an interrupted first boot of cloud-init left empty.
    BootCommand,
    /// It is a file, and its unit is another.
    Files,
}

/// The boot command: ASCII, and a subshell as a whole, so that it leaves no state in a shell that
/// continues after it.
pub(crate) fn boot_command(payload: &Payload) -> String {
    compact(include_str!("text/boot-command.sh"))
        .replace("@WAIT@", &payload.wait.to_string())
        .replace("@SCRIPT@", &script(payload, Mechanism::BootCommand))
}

/// The script, in ASCII.
pub(crate) fn script(payload: &Payload, mechanism: Mechanism) -> String {
    let by_boot_command = mechanism == Mechanism::BootCommand;
    let mut text = compact(include_str!("text/script-head.sh"));
    if by_boot_command {
        // Writing to a string cannot fail.
        writeln!(
            text,
            "[ \"$1\" != --boot ] || put {DELIVER_MODE:o} {} <\"$0\"",
            relative(DELIVER)
        )
        .ok();
    }
    for file in &payload.files {
        put(&mut text, file);
    }
    if by_boot_command {
        let unit = File {
            path: UNIT_PATH.to_owned(),
            mode: 0o644,
            content: payload.unit.clone().into_bytes(),
        };
        put(&mut text, &unit);
        text.push_str(&compact(include_str!("text/script-link.sh")));
    }
    text.push_str(&compact(include_str!("text/script-load.sh")));
    if by_boot_command {
        text.push_str(&compact(include_str!("text/script-repair.sh")));
    }
    if !payload.binaries.is_empty() {
        agent(&mut text, payload, mechanism);
    }
    if payload.files.iter().any(|file| file.path == TLS_PATHS[1]) {
        text.push_str(&compact(include_str!("text/script-key.sh")));
    }
    text.push_str("flush\n");
    text
}

/// Fetches and installs the agent.
fn agent(text: &mut String, payload: &Payload, mechanism: Mechanism) {
    // The rest of the time is for `install`.
    let seconds = (payload.wait * 3 / 4).to_string();
    text.push_str(&compact(include_str!("text/script-agent.sh")).replace("@SECONDS@", &seconds));
    let sources = || payload.binaries.iter().flat_map(|binary| &binary.sources);
    if sources().any(|source| source.disk.is_some()) {
        text.push_str(&compact(include_str!("text/script-disk.sh")));
    }
    if sources().any(|source| source.url.is_some()) {
        text.push_str(&compact(match mechanism {
            Mechanism::BootCommand => include_str!("text/script-url.sh"),
            Mechanism::Files => include_str!("text/script-curl.sh"),
        }));
    }
    let mut machines = Vec::new();
    for binary in &payload.binaries {
        let Some(machine) = &binary.machine else {
            request(text, binary);
            continue;
        };
        let start = if machines.is_empty() {
            "case $(uname -m) in\n"
        } else {
            ""
        };
        writeln!(text, "{start}{machine})").ok();
        request(text, binary);
        text.push_str(";;\n");
        machines.push(machine.as_str());
    }
    if !machines.is_empty() {
        writeln!(
            text,
            "*) refuse \"this machine is $(uname -m), and user-data has the agent only for {} (agent.machines)\" ;;\nesac",
            machines.join(" ")
        )
        .ok();
    }
    text.push_str(&compact(include_str!("text/script-install.sh")));
}

/// The requested SHA-256, and a function that tries the sources in their order.
fn request(text: &mut String, binary: &AgentBinary) {
    let attempts: Vec<String> = binary.sources.iter().filter_map(attempt).collect();
    writeln!(
        text,
        "sha={}\nsources() {{\n{}\n}}",
        binary.sha256,
        attempts.join(" ||\n")
    )
    .ok();
}

fn attempt(source: &Source) -> Option<String> {
    match (&source.disk, &source.url) {
        (Some(disk), _) => Some(format!(
            "try disk {} {}",
            quoted(&disk.label),
            quoted(relative(&disk.path))
        )),
        (None, Some(url)) => Some(format!("try url {}", quoted(url))),
        (None, None) => None,
    }
}

/// A word of the shell.
fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@%+=,".contains(&b);
    if word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A path relative to the root.
fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn put(text: &mut String, file: &File) {
    let plain = plain(&file.content);
    let decode = if plain.is_some() { "" } else { " 'base64 -d'" };
    let path = relative(&file.path);
    // With a slash, and never an option.
    let here = if path.contains('/') && !path.starts_with('-') {
        ""
    } else {
        "./"
    };
    writeln!(text, "put {:o} {here}{path}{decode} <<'{END_MARKER}'", file.mode).ok();
    if let Some(plain) = plain {
        text.push_str(plain);
    } else {
        let encoded = STANDARD.encode(&file.content);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(BASE64_COLUMNS));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
    }
    text.push_str(END_MARKER);
    text.push('\n');
}

/// The content as text, if it is readable and neither YAML, nor a template, nor a here-document
/// changes it.
fn plain(content: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(content).ok()?;
    let readable = text
        .bytes()
        .all(|b| b == b'\n' || b == b'\t' || (b' '..=b'~').contains(&b));
    let template = ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark));
    let is_marker = |line: &str| [END_MARKER, SCRIPT_END_MARKER].contains(&line);
    let ends = text.ends_with('\n') && !text.lines().any(is_marker);
    (readable && ends && !template).then_some(text)
}

#[cfg(test)]
mod tests;
