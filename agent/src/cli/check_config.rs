//! `virtfleet-agent check-config`: lists every problem, or the effective settings and the origin of
//! each.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use virtfleet_agent_host::Roots;
use virtfleet_wire::layered::Problem;

use crate::output::Output;
use virtfleet_agent_state::settings::load;

/// Output of `check-config`, and whether the settings are valid.
#[derive(Debug)]
pub(super) struct Checked {
    /// Text for standard output.
    pub(super) text: String,
    /// True if every setting of every file was applied. If not, the verb's exit code is 1.
    pub(super) valid: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    valid: bool,
    problems: Vec<Problem>,
    /// Keys that earlier versions had.
    ignored: Vec<Problem>,
    /// Files that were read and applied, lowest precedence first.
    files: Vec<String>,
    skipped: Vec<String>,
    masked: Vec<String>,
    settings: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    key: String,
    value: Value,
    origin: String,
}

/// Reads the settings as `run` would and renders the result. `file` alone may be one part of the
/// settings; then a missing setting is no problem, because another file may hold it. With `whole`
/// the file must be complete.
pub(super) fn check_config(
    roots: &Roots,
    file: Option<&Path>,
    whole: bool,
    output: Output,
) -> Result<Checked, serde_json::Error> {
    let mut loaded = load(roots, file);
    if !whole {
        loaded.problems.retain(|problem| !problem.is_about_default());
    }
    let leaves = loaded.origins.leaves.into_iter();
    let document = Document {
        valid: loaded.problems.is_empty(),
        problems: loaded.problems,
        ignored: loaded.ignored,
        files: loaded.files,
        skipped: loaded.skipped,
        masked: loaded.masked,
        settings: leaves
            .filter(|leaf| leaf.path != "apiVersion" && leaf.path != "kind")
            .map(|leaf| Setting {
                key: leaf.path,
                value: leaf.value,
                origin: leaf.origin.to_string(),
            })
            .collect(),
    };
    Ok(Checked {
        text: output.render(&document, text)?,
        valid: document.valid,
    })
}

fn text(document: &Document) -> String {
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        text.push_str(&arguments.to_string());
        text.push('\n');
    };
    for problem in &document.problems {
        line(format_args!("{problem}"));
    }
    if document.valid {
        line(format_args!("ok"));
    }
    if !document.ignored.is_empty() {
        line(format_args!("\nignored:"));
    }
    for key in &document.ignored {
        line(format_args!("  {key}"));
    }
    if !document.valid {
        return text;
    }
    for (title, files) in [
        ("files, lowest precedence first", &document.files),
        (
            "not read, because a file of higher precedence or an empty file has the same name",
            &document.masked,
        ),
    ] {
        if !files.is_empty() {
            line(format_args!("\n{title}:"));
        }
        for file in files {
            line(format_args!("  {file}"));
        }
    }
    line(format_args!("\nsettings:"));
    // A section without values is left out.
    let says_something = |setting: &&Setting| setting.value.as_object().is_none_or(|map| !map.is_empty());
    let rows: Vec<_> = document
        .settings
        .iter()
        .filter(says_something)
        .map(|setting| (&setting.key, setting.value.to_string(), &setting.origin))
        .collect();
    let key_width = rows
        .iter()
        .map(|(key, ..)| key.chars().count())
        .max()
        .unwrap_or(0);
    let value_width = rows
        .iter()
        .map(|(_, value, _)| value.chars().count())
        .max()
        .unwrap_or(0)
        .min(40);
    for (key, value, origin) in rows {
        line(format_args!("  {key:key_width$}  {value:value_width$}  {origin}"));
    }
    text
}

#[cfg(test)]
mod tests;
