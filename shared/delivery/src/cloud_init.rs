//! User-data for cloud-init: the boot command alone, or merged with existing user-data.
//!
//! cloud-init runs boot commands and boothooks at every boot. It marks everything else
//! (`write_files`, `runcmd`) as done before it is done, and never runs it again after a power cut.

mod content;

use crate::{mime, payload::Payload, pyyaml::YamlDocument, script, splice};

/// Form of the user-data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One cloud-config that starts with the boot command.
    CloudConfig,
    /// A MIME message with a boothook, which no merge rule can drop.
    Mime,
}

/// Existing user-data.
#[derive(Debug, Clone, Copy)]
pub struct With<'a> {
    /// Its name, for messages and as the part's name.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// User-data for a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Notes for the user who renders it.
    pub notes: Vec<String>,
}

/// Merge rule for cloud-init if another part follows: lists are appended, nothing is replaced.
const MERGE: &str = "merge_how:\n- name: list\n  settings: [append]\n- name: dict\n  settings: [no_replace, \
                     recurse_list]\n";

/// cloud-init logs the output of a boot command, but drops that of a boothook: this appends both to
/// one file.
const HOOK_LOG: &str = "log=${VIRTFLEET_ROOT:-}/var/log/cloud-init-output.log\n(: >>\"$log\") 2>/dev/null && exec \
                        >>\"$log\" 2>&1\n";

/// Existing user-data as cloud-init processes it.
struct Part<'a> {
    name: &'a str,
    /// Without white space before it: the handlers of cloud-init expect their first line at the
    /// beginning, and a kernel expects `#!` there.
    text: &'a str,
    /// The content type; none for a MIME message.
    kind: Option<&'static str>,
    /// The content of a cloud-config.
    config: Option<YamlDocument<'a>>,
    notes: Vec<String>,
}

impl<'a> Part<'a> {
    /// Recognises user-data, and refuses what cloud-init would drop with a warning that only the
    /// guest's log has.
    fn read(with: &With<'a>) -> Result<Self, String> {
        let name = with.name;
        let text = content::trimmed(with.text);
        let lines_before = with.text[..with.text.len() - text.len()].matches('\n').count();
        let kind = content::kind(text);
        if kind.is_none() && !is_mime(text) {
            return Err(format!(
                "{name}: cloud-init does not recognise its first line: #cloud-config, #!, ## template: jinja, a MIME \
                 header"
            ));
        }
        let at = |line: usize, message: &str| format!("{name}:{}: {message}", line + lines_before);
        let config = match kind {
            Some(kind) => content::check(kind, text).map_err(|found| at(found.line, &found.message))?,
            None => None,
        };
        let repeated = config.iter().flat_map(|config| &config.repeated);
        let repeated = repeated.map(|(line, key)| {
            at(
                *line,
                &format!("the key {key} occurs twice; cloud-init takes the last one"),
            )
        });
        let unchecked = content::note(kind).map(|note| format!("{name}: {note}"));
        let notes = repeated.chain(unchecked).collect();
        Ok(Self {
            name,
            text,
            kind,
            config,
            notes,
        })
    }
}

/// Whether the text begins with the header of a MIME message.
fn is_mime(text: &str) -> bool {
    let header = || text.lines().take_while(|line| !line.is_empty());
    let well_formed = |line: &str| {
        let name = line.split_once(':').map_or("", |(name, _)| name);
        line.starts_with([' ', '\t']) || !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic())
    };
    let version = |line: &str| line.to_ascii_lowercase().starts_with("mime-version:");
    header().all(well_formed) && header().any(version)
}

/// Renders the user-data. `made` has comment lines about its origin.
///
/// # Errors
/// User-data that cloud-init does not recognise, or would drop, alone or with the agent.
pub fn render(payload: &Payload, form: Form, with: &[With<'_>], made: &str) -> Result<Rendered, String> {
    let script = script::boot_command(payload);
    let theirs = with.iter().map(Part::read).collect::<Result<Vec<_>, _>>()?;
    let mut notes: Vec<String> = theirs.iter().flat_map(|part| part.notes.clone()).collect();
    if form == Form::CloudConfig {
        match theirs.as_slice() {
            [] => {
                let item = splice::item("", &script);
                let text = format!("#cloud-config\n{made}{MERGE}bootcmd:\n{item}");
                return Ok(Rendered { text, notes });
            }
            [
                Part {
                    name,
                    text,
                    config: Some(config),
                    ..
                },
            ] => {
                if let Some(text) = splice::first_bootcmd(text, config, made, &script) {
                    return Ok(Rendered { text, notes });
                }
                notes.push(format!(
                    "{name}: the boot command cannot be added without changing the rest, so the output is a MIME message"
                ));
            }
            _ => notes.push("not a single cloud-config, so the output is a MIME message".to_owned()),
        }
    }
    let hook = format!("#cloud-boothook\n#!/bin/sh\n{made}{HOOK_LOG}{script}");
    let mut parts = vec![mime::Part {
        kind: Some("text/cloud-boothook"),
        name: "virtfleet-delivery",
        content: &hook,
    }];
    // cloud-init keeps one script of each name, and runs them in the order of their names.
    let names = theirs.iter().enumerate().map(|(at, part)| match theirs.len() {
        1 => mime::part_name(part.name),
        _ => format!("{:02}-{}", at + 1, mime::part_name(part.name)),
    });
    let names: Vec<String> = names.collect();
    for (part, name) in theirs.iter().zip(&names) {
        parts.push(mime::Part {
            kind: part.kind,
            name,
            content: part.text,
        });
    }
    let text = mime::message(made, &parts);
    Ok(Rendered { text, notes })
}

#[cfg(test)]
pub(crate) mod tests;
