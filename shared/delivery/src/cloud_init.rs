//! User-data for cloud-init: the boot command alone, or merged with existing user-data.
//!
//! cloud-init runs boot commands and boothooks at every boot. It marks everything else
//! (`write_files`, `runcmd`) as done before it is done, and never runs it again after a power cut.

use virtfleet_wire::layered::{Node, NodeValue, parse_yaml};

use crate::{boot, mime, payload::Payload, splice};

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

/// Types that cloud-init recognises by the beginning of the text (table in its
/// `handlers/__init__.py`), longest first.
const KINDS: [(&str, &str); 8] = [
    ("#cloud-config-archive", "text/cloud-config-archive"),
    ("#cloud-config-jsonp", "text/cloud-config-jsonp"),
    ("#cloud-config", "text/cloud-config"),
    ("#cloud-boothook", "text/cloud-boothook"),
    ("#include-once", "text/x-include-once-url"),
    ("#include", "text/x-include-url"),
    ("#part-handler", "text/part-handler"),
    ("#!", "text/x-shellscript"),
];

/// The content type of user-data; none for a MIME message.
fn kind<'a>(with: &With<'_>) -> Result<Option<&'a str>, String> {
    let first = with.text.lines().next().unwrap_or_default();
    let head: String = with
        .text
        .chars()
        .take(4096)
        .collect::<String>()
        .to_ascii_lowercase();
    if first.starts_with("## template:") {
        return Ok(Some("text/jinja2"));
    }
    if let Some((_, kind)) = KINDS.iter().find(|(start, _)| first.starts_with(start)) {
        match *kind {
            "text/cloud-config" => is_cloud_config(with)?,
            "text/cloud-config-archive" => drop(yaml(with)?),
            _ => {}
        }
        return Ok(Some(kind));
    }
    if head.contains("mime-version:") {
        return Ok(None);
    }
    Err(format!(
        "{}: cloud-init does not recognise its first line: #cloud-config, #!, ## template: jinja, a MIME header",
        with.name
    ))
}

/// The documents of user-data that must be YAML.
fn yaml(with: &With<'_>) -> Result<Vec<Node>, String> {
    parse_yaml(with.text)
        .map_err(|error| format!("{}:{}: not YAML: {}", with.name, error.line, error.message))
}

/// Rejects what cloud-init would drop: a cloud-config that it cannot parse, with a warning that
/// only the guest's log has.
fn is_cloud_config(with: &With<'_>) -> Result<(), String> {
    let name = with.name;
    let documents = yaml(with)?;
    match documents.as_slice() {
        [] => Ok(()),
        [one] if matches!(one.value, NodeValue::Mapping(_)) => Ok(()),
        [one] => Err(format!(
            "{name}:{}: a cloud-config must be a mapping, e.g. `packages: [jq]`",
            one.line
        )),
        [_, second, ..] => Err(format!(
            "{name}:{}: a second document starts here, but cloud-init reads only one",
            second.line
        )),
    }
}

/// Renders the user-data. `made` has comment lines about its origin.
///
/// # Errors
/// User-data of a type that cloud-init does not recognise, or a cloud-config that is not a YAML
/// mapping.
pub fn render(payload: &Payload, form: Form, with: &[With<'_>], made: &str) -> Result<Rendered, String> {
    let script = boot::script(payload);
    let kinds = with.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
    let mut notes = Vec::new();
    if form == Form::CloudConfig {
        match (with, kinds.as_slice()) {
            ([], _) => {
                let item = splice::item("", &script);
                let text = format!("#cloud-config\n{made}{MERGE}bootcmd:\n{item}");
                return Ok(Rendered { text, notes });
            }
            ([one], [Some("text/cloud-config")]) => match splice::first_bootcmd(one.text, &script) {
                Some(text) => {
                    let (header, rest) = text.split_once('\n').unwrap_or((&text, ""));
                    let text = format!("{header}\n{made}{rest}");
                    return Ok(Rendered { text, notes });
                }
                None => notes.push(format!(
                    "{}: its bootcmd cannot be extended without rewriting it, so the output is a MIME message",
                    one.name
                )),
            },
            _ => notes.push("not a single cloud-config, so the output is a MIME message".to_owned()),
        }
    }
    let hook = format!("#cloud-boothook\n#!/bin/sh\n{made}{HOOK_LOG}{script}");
    let mut parts = vec![mime::Part {
        kind: Some("text/cloud-boothook"),
        name: "virtfleet-delivery",
        content: &hook,
    }];
    let names: Vec<String> = with.iter().map(|with| part_name(with.name)).collect();
    for ((with, kind), name) in with.iter().zip(kinds).zip(&names) {
        parts.push(mime::Part {
            kind,
            name,
            content: with.text,
        });
    }
    let text = mime::message(made, &parts);
    Ok(Rendered { text, notes })
}

/// The last component of a path, valid in a header.
fn part_name(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or(path);
    last.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
