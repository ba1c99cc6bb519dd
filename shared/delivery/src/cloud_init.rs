//! User-data for cloud-init: the boot command alone, or together with user-data that is there already.
//!
//! A boot command and a boothook are what cloud-init runs at every boot; everything else (`write_files`, `runcmd`) it marks as
//! done before it is done, and never runs again after a power cut.

use virtfleet_wire::layered::{Node, NodeValue, parse_yaml};

use crate::{boot, mime, payload::Payload, splice};

/// How the user-data is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One cloud-config with our boot command in front.
    CloudConfig,
    /// A MIME message with a boothook, which no rule of merging can drop.
    Mime,
}

/// User-data that is there already.
#[derive(Debug, Clone, Copy)]
pub struct With<'a> {
    /// Its name, for messages and as the part's name.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// User-data that can be given to a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// What whoever renders should know.
    pub notes: Vec<String>,
}

/// How cloud-init is to merge ours when something else follows: lists grow, nothing is replaced.
const MERGE: &str = "merge_how:\n- name: list\n  settings: [append]\n- name: dict\n  settings: [no_replace, \
                     recurse_list]\n";

/// cloud-init keeps what a boot command prints, and drops what a boothook prints: this puts both into one file.
const HOOK_LOG: &str = "log=${VIRTFLEET_ROOT:-}/var/log/cloud-init-output.log\n(: >>\"$log\") 2>/dev/null && exec \
                        >>\"$log\" 2>&1\n";

/// Kinds that cloud-init knows by how the text begins (its own table, `handlers/__init__.py`), longest first.
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
        "{}: its first line is none that cloud-init knows: #cloud-config, #!, ## template: jinja, a MIME header",
        with.name
    ))
}

/// The documents of user-data that has to be YAML.
fn yaml(with: &With<'_>) -> Result<Vec<Node>, String> {
    parse_yaml(with.text)
        .map_err(|error| format!("{}:{}: not YAML: {}", with.name, error.line, error.message))
}

/// cloud-init drops a cloud-config that it cannot read, with a warning in the guest that nobody sees.
fn is_cloud_config(with: &With<'_>) -> Result<(), String> {
    let name = with.name;
    let documents = yaml(with)?;
    match documents.as_slice() {
        [] => Ok(()),
        [one] if matches!(one.value, NodeValue::Mapping(_)) => Ok(()),
        [one] => Err(format!(
            "{name}:{}: a cloud-config is a mapping, e.g. `packages: [jq]`, and this is none",
            one.line
        )),
        [_, second, ..] => Err(format!(
            "{name}:{}: a second document begins; cloud-init reads one",
            second.line
        )),
    }
}

/// Renders. `made` says how this came about, as comment lines.
///
/// Errors: user-data of a kind that cloud-init does not know, a cloud-config that is no YAML mapping.
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
                    "{}: its bootcmd cannot be added to without rewriting it, so this is a MIME message",
                    one.name
                )),
            },
            _ => notes.push("not one cloud-config alone, so this is a MIME message".to_owned()),
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

/// A path's last part, as a header takes it.
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
