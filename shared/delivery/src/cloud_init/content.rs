//! User-data by its type: what cloud-init would drop, or drop all user-data for, is refused.

use std::collections::BTreeSet;

use crate::{
    mime::part_name,
    pyyaml::{self, Content, Kind, Refusal, Result, YamlDocument, YamlNode, not_supported},
};

/// Types that cloud-init recognises by the beginning of the text (table in its
/// `handlers/__init__.py`), longest first.
const KINDS: [(&str, &str); 9] = [
    ("#cloud-config-archive", "text/cloud-config-archive"),
    ("#cloud-config-jsonp", "text/cloud-config-jsonp"),
    ("## template: jinja", "text/jinja2"),
    ("#cloud-boothook", "text/cloud-boothook"),
    ("#include-once", "text/x-include-once-url"),
    ("#cloud-config", "text/cloud-config"),
    ("#part-handler", "text/part-handler"),
    ("#include", "text/x-include-url"),
    ("#!", "text/x-shellscript"),
];

/// Types that cloud-init accepts in a cloud-config-archive and does not drop.
const IN_ARCHIVES: [&str; 8] = [
    "text/cloud-config",
    "text/jinja2",
    "text/cloud-boothook",
    "text/part-handler",
    "text/x-shellscript",
    "text/x-shellscript-per-boot",
    "text/x-shellscript-per-instance",
    "text/x-shellscript-per-once",
];

/// The text without white space before it, which is that of Unicode and, in Python, these control
/// characters.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f'))
}

/// The type that cloud-init recognises.
pub(super) fn kind(text: &str) -> Option<&'static str> {
    let start = trimmed(text).chars().take(32).collect::<String>().to_lowercase();
    let found = KINDS.iter().find(|(first, _)| start.starts_with(first));
    found.map(|(_, kind)| *kind)
}

/// What can take the agent's boothook down in the guest, and cannot be checked here. The type is
/// none for a MIME message.
pub(super) fn note(kind: Option<&str>) -> Option<&'static str> {
    match kind {
        None => Some(
            "the parts of a MIME message are not checked; with one that cloud-init cannot decode or fetch, the VM gets \
             no user-data and no agent",
        ),
        Some("text/x-include-url" | "text/x-include-once-url") => Some(
            "cloud-init fetches these addresses first; if one cannot be fetched, the VM gets no user-data and no agent",
        ),
        Some(_) => None,
    }
}

/// Checks a text of this type. The result is the content of a cloud-config.
pub(super) fn check<'t>(kind: &str, text: &'t str) -> Result<Option<YamlDocument<'t>>> {
    match kind {
        "text/cloud-config" => {
            let document = pyyaml::load(text)?;
            check_config(&document)?;
            Ok(Some(document))
        }
        "text/cloud-config-archive" => check_archive(text).map(|()| None),
        "text/cloud-config-jsonp" => not_supported(1, "#cloud-config-jsonp; write a #cloud-config"),
        _ => Ok(None),
    }
}

fn refuse<T>(line: usize, message: &str) -> Result<T> {
    let message = message.to_owned();
    Err(Refusal { line, message })
}

fn check_config(document: &YamlDocument<'_>) -> Result<()> {
    let entries = match document.root.as_ref().map(|root| &root.content) {
        None => return Ok(()),
        Some(Content::Mapping(entries)) => entries,
        Some(_) => {
            return refuse(
                document.line,
                "a cloud-config must be a mapping, e.g. `packages: [jq]`",
            );
        }
    };
    for (key, value) in entries {
        match key.text().filter(|_| !key.merges()) {
            None => {
                let what = "`<<`, an alias, an escape or several lines as a key at the top level; write the key itself";
                return not_supported(key.line, what);
            }
            Some("bootcmd") => check_boot_commands(key.line, value)?,
            Some("merge_how" | "merge_type") if !keeps_mappings(value) => {
                let what = "these merge rules: without valid ones that include `dict`, cloud-init drops the whole text; \
                            write \"dict(recurse_array,no_replace)+list(append)\", or remove them";
                return not_supported(key.line, what);
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// cloud-init runs no boot command at all, not even the delivery's, if one is no text and no list.
fn check_boot_commands(line: usize, value: &YamlNode<'_>) -> Result<()> {
    let Content::Sequence(items) = &value.content else {
        return not_supported(line, "a bootcmd that is not a list here; write the list");
    };
    let odd = items.iter().find_map(|item| match item.kind() {
        Kind::Mapping => Some((item.line, "a mapping (`echo a: b` is one in YAML)")),
        Kind::Other => Some((
            item.line,
            "a boolean, a number, a date or bytes (`yes` and `1` are in YAML)",
        )),
        Kind::Text | Kind::Null | Kind::Mappings | Kind::Sequence => None,
    });
    let Some((line, kind)) = odd else { return Ok(()) };
    not_supported(
        line,
        format_args!(
            "an item of bootcmd that is {kind}, not a text: cloud-init then runs none of them; write it in quotes"
        ),
    )
}

/// Whether the merge rules are valid, and one is for mappings: without it, nothing is merged.
fn keeps_mappings(rules: &YamlNode<'_>) -> bool {
    let names: Option<Vec<String>> = match &rules.content {
        Content::Sequence(rules) => rules.iter().map(|rule| merged(rule).map(str::to_owned)).collect(),
        _ => rules.text().and_then(|text| {
            let rules = text.split('+').map(|rule| rule.trim().to_lowercase());
            let rules = rules.filter(|rule| !rule.is_empty());
            rules
                .map(|rule| Some(rule.strip_suffix(')')?.split_once('(')?.0.to_owned()))
                .collect()
        }),
    };
    let known = |name: &String| matches!(name.as_str(), "dict" | "list" | "str");
    names.is_some_and(|names| names.iter().all(known) && names.iter().any(|name| name == "dict"))
}

/// The type that a rule of a list of merge rules is for.
fn merged<'t>(rule: &YamlNode<'t>) -> Option<&'t str> {
    let all_text = |items: &[YamlNode<'_>]| items.iter().all(|item| item.kind() == Kind::Text);
    match &rule.content {
        Content::Mapping(entries) => {
            let of = |wanted: &str| {
                let found = entries.iter().rfind(|(key, _)| key.text() == Some(wanted));
                found.map(|(_, value)| value)
            };
            match &of("settings")?.content {
                Content::Sequence(settings) if all_text(settings) => of("name")?.text(),
                _ => None,
            }
        }
        Content::Sequence(items) => {
            let (name, settings) = items.split_first()?;
            name.text().filter(|_| all_text(settings))
        }
        _ => None,
    }
}

/// cloud-init drops all user-data for some items that are not of the documented form.
fn check_archive(text: &str) -> Result<()> {
    let document = pyyaml::load(text)?;
    let items = match document.root.as_ref().map(|root| &root.content) {
        None => return Ok(()),
        Some(Content::Sequence(items)) => items,
        Some(_) => return refuse(document.line, "a cloud-config-archive must be a list"),
    };
    if let Some(line) = pyyaml::changed_line(text) {
        let what = "a tab behind spaces, or `!` with a comma behind it, in an archive; give its items as several --with";
        return not_supported(line, what);
    }
    let mut names = BTreeSet::new();
    for item in items {
        let (of_type, content, filename) = match &item.content {
            Content::Scalar(..) if item.kind() == Kind::Text => (None, item.value.as_str(), None),
            Content::Mapping(entries) => {
                let [of_type, content, filename] = values(entries)?;
                (of_type, content.unwrap_or_default(), filename)
            }
            _ => return not_supported(item.line, "an item that is no text and no mapping; quote it"),
        };
        if filename.is_some_and(|name| part_name(name) != name || !names.insert(name)) {
            let what = "this `filename`: letters, digits, `.`, `_` and `-` only, and each name once";
            return not_supported(item.line, what);
        }
        let item_kind = of_type.or_else(|| kind(content)).unwrap_or("text/cloud-config");
        if !IN_ARCHIVES.contains(&item_kind) {
            let what = format_args!("the type {item_kind} in an archive; give it with its own --with");
            return not_supported(item.line, what);
        }
        check(item_kind, content).map_err(|found| Refusal {
            line: item.line,
            message: format!("line {} of this item's content: {}", found.line, found.message),
        })?;
    }
    Ok(())
}

/// The values of `type`, `content` and `filename` of an item of an archive.
fn values<'n>(entries: &'n [(YamlNode<'_>, YamlNode<'_>)]) -> Result<[Option<&'n str>; 3]> {
    const KEYS: [&str; 3] = ["type", "content", "filename"];
    let mut values = [None; 3];
    for (key, value) in entries {
        let Some(at) = KEYS.iter().position(|known| key.text() == Some(*known)) else {
            let what = "a key other than type, content and filename here; give the item with its own --with";
            return not_supported(key.line, what);
        };
        if !matches!(value.content, Content::Scalar(..)) || value.kind() != Kind::Text {
            return not_supported(value.line, "a value of an archive that is no text here; quote it");
        }
        values[at] = Some(value.value.as_str());
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
