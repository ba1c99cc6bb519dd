//! Inserts a boot command before those of a cloud-config without changing the rest of its text.
//!
//! The text is never reformatted: cloud-init reads YAML 1.1, in which `0644` and `yes` mean other
//! values than in YAML 1.2, and comments must be kept.

use serde_json::{Value, json};
use virtfleet_wire::layered::{Node, parse_yaml};

/// The text with `script` as the first item of `bootcmd`. None if that is impossible by insertion
/// alone; the caller then uses another form.
pub(crate) fn first_bootcmd(text: &str, script: &str) -> Option<String> {
    let before = document(text)?;
    let mut wanted = before.clone();
    let list = wanted.as_object_mut()?.entry("bootcmd").or_insert(json!([]));
    list.as_array_mut()?.insert(0, script.into());

    let lines: Vec<&str> = text.lines().collect();
    let spliced = if before.get("bootcmd").is_some() {
        let key = lines.iter().position(|line| line.starts_with("bootcmd:"))?;
        let silent = |line: &&&str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let first = key + 1 + lines[key + 1..].iter().take_while(silent).count();
        let dash = lines.get(first)?;
        let indent = &dash[..dash.len() - dash.trim_start_matches(' ').len()];
        dash.trim_start().starts_with('-').then_some(())?;
        format!(
            "{}\n{}{}\n",
            lines[..first].join("\n"),
            item(indent, script),
            lines[first..].join("\n")
        )
    } else {
        format!("{}\nbootcmd:\n{}", lines.join("\n"), item("", script))
    };
    // Verifies the result of the insertion.
    (document(&spliced)? == wanted).then_some(spliced)
}

/// A script as an item of a YAML list, as a literal block.
pub(crate) fn item(indent: &str, script: &str) -> String {
    let mut text = format!("{indent}- |\n");
    for line in script.lines() {
        if !line.is_empty() {
            text.push_str(indent);
            text.push_str("  ");
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

/// The mapping of a cloud-config; an empty one if there are only comments.
fn document(text: &str) -> Option<Value> {
    let documents = parse_yaml(text).ok()?;
    match documents.as_slice() {
        [] => Some(json!({})),
        [one] => Some(Node::to_json(one)).filter(Value::is_object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "(\n  echo 'ours: #1'\n\n)\n";

    #[test]
    fn the_rest_of_the_text_is_unchanged() {
        for text in [
            "#cloud-config\n",
            "#cloud-config",
            "#cloud-config\n# why\npackages: [jq]   # and not this\nwrite_files:\n- path: /x\n  permissions: 0644\n",
            "#cloud-config\n---\nbootcmd:\n- echo a\n- [echo, b]\n",
            "#cloud-config\nbootcmd:\n\n  # first\n  - |\n    echo a\n  - echo b\nruncmd: [x]\n",
            "#cloud-config\nbootcmd: # theirs\n    -   [echo, b]\n",
            "#cloud-config\nx: |+\n  a\n\n",
        ] {
            let spliced = first_bootcmd(text, SCRIPT).unwrap_or_else(|| panic!("{text}"));
            let after = document(&spliced).unwrap();
            assert_eq!(after["bootcmd"][0], SCRIPT, "{spliced}");
            for line in text.lines() {
                assert!(spliced.contains(line), "{line} of {text}");
            }
        }
    }

    #[test]
    fn texts_that_need_more_than_insertion_are_rejected() {
        for text in [
            "#cloud-config\nbootcmd: [a]\n",
            "#cloud-config\nbootcmd: []\n",
            "#cloud-config\nbootcmd:\n",
            "#cloud-config\n{a: b}\n",
            "#cloud-config\n- a\n",
            "#cloud-config\na: b\n---\nc: d\n",
            "#cloud-config\na: [\n",
            "#cloud-config\na: b\n...\n",
        ] {
            assert_eq!(first_bootcmd(text, SCRIPT), None, "{text}");
        }
    }
}
