//! Inserts a boot command before those of a cloud-config without changing the rest of its text.
//!
//! The text is never reformatted: cloud-init reads YAML 1.1, in which `0644` and `yes` mean other
//! values than in YAML 1.2, and comments must be kept.

use crate::pyyaml::{self, Content, Style, YamlDocument, YamlNode};

/// The text with the comment lines `made` behind its first line, and with `script` as the first
/// item of `bootcmd`. `config` is its content. None if that is impossible by insertion alone; the
/// caller then uses another form.
pub(crate) fn first_bootcmd(
    text: &str,
    config: &YamlDocument<'_>,
    made: &str,
    script: &str,
) -> Option<String> {
    let theirs = entries(config)?;
    // Keys that cannot be compared may be `bootcmd`, too.
    let keys: Vec<&str> = theirs.iter().map(|(key, _)| key.text()).collect::<Option<_>>()?;
    let list = match keys.iter().filter(|key| **key == "bootcmd").count() {
        // A `bootcmd` of a mapping that is merged would be replaced.
        0 if theirs.iter().any(|(key, _)| key.merges()) => return None,
        0 => false,
        1 => true,
        _ => return None,
    };
    // With these, cloud-init may run no boot commands, or drop the text in this VM.
    if keys
        .iter()
        .any(|key| matches!(*key, "cloud_init_modules" | "launch-index"))
    {
        return None;
    }

    let (header, rest) = text.split_at(text.find('\n').map_or(text.len(), |at| at + 1));
    let mut spliced = header.to_owned();
    end_line(&mut spliced);
    spliced.push_str(made);
    let item = if list {
        let lines: Vec<&str> = rest.split_inclusive('\n').collect();
        let key = lines.iter().position(|line| line.starts_with("bootcmd:"))?;
        let silent = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let first = key + 1 + lines[key + 1..].iter().take_while(|line| silent(line)).count();
        let dash = lines.get(first)?;
        let at: usize = lines[..first].iter().map(|line| line.len()).sum();
        let indent = &dash[..dash.len() - dash.trim_start_matches(' ').len()];
        let item = item(indent, script);
        spliced.extend([&rest[..at], &item, &rest[at..]]);
        item[indent.len()..].to_owned()
    } else {
        spliced.push_str(rest);
        end_line(&mut spliced);
        let item = item("", script);
        spliced.extend(["bootcmd:\n", &item]);
        item
    };

    // Verifies the result of the insertion.
    let after = pyyaml::load(&spliced).ok()?;
    let mut after = entries(&after)?.to_vec();
    let at = after.iter().position(|(key, _)| key.text() == Some("bootcmd"))?;
    // Elsewhere, an alias could refer to the list.
    let YamlNode {
        anchor: None,
        content: Content::Sequence(items),
        ..
    } = &mut after[at].1
    else {
        return None;
    };
    let ours = Content::Scalar(Style::Literal, item.strip_prefix("- ")?);
    if items.first()?.content != ours {
        return None;
    }
    items.remove(0);
    if !list && items.is_empty() {
        after.remove(at);
    }
    // cloud-init parses a text with this word as a mail, and can lose letters that are not ASCII.
    let mail = spliced.to_ascii_lowercase().contains("mime-version:");
    (!mail && after == theirs).then_some(spliced)
}

/// The entries of a cloud-config; none if there are only comments.
fn entries<'d, 't>(document: &'d YamlDocument<'t>) -> Option<&'d [(YamlNode<'t>, YamlNode<'t>)]> {
    match document.root.as_ref().map(|node| &node.content) {
        None => Some(&[]),
        Some(Content::Mapping(entries)) => Some(entries),
        _ => None,
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "(\n  echo 'ours: #1'\n\n)\n";
    const MADE: &str = "# made\n";

    fn spliced(text: &str) -> Option<String> {
        first_bootcmd(text, &pyyaml::load(text).unwrap(), MADE, SCRIPT)
    }

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
            "#cloud-config\r\nx: |\r\n  a\r\nbootcmd:\r\n- a\r\n",
            // The last line stays without a line feed if nothing follows it.
            "#cloud-config\nbootcmd:\n- |\n  a\nx: |\n  abc",
            "#cloud-config\nx: |\n  a: \t!b\nx: yes\ny: [\na\n]\n",
            "#cloud-config\nb: &b {k: 1}\nx:\n  <<: *b\n  <<: *b\n",
            "#cloud-config\nx: \"\nbootcmd:\n\"\n",
        ] {
            let spliced = spliced(text).unwrap_or_else(|| panic!("{text}"));
            let rest = text.strip_prefix("#cloud-config").unwrap();
            let script = item("", SCRIPT);
            let added = spliced.len() - text.len();
            assert!(added >= MADE.len() + script.len(), "{spliced}");
            for line in rest.split_inclusive('\n') {
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
            "#cloud-config\na: b\n...\n",
            "#cloud-config\n~\n",
            // The value of the last key would get a line feed.
            "#cloud-config\na: |\n  b",
            "#cloud-config\na: |+\n  b\n ",
            // An alias refers to the list, too.
            "#cloud-config\nbootcmd: &b\n- a\nruncmd: *b\n",
            // The new key would replace it.
            "#cloud-config\n<<: {bootcmd: [a]}\n",
            "#cloud-config\n\"boot\\x63md\": [a]\n",
            "#cloud-config\na: &a bootcmd\n*a : [a]\n",
            "#cloud-config\nbootcmd:\n- a\nbootcmd:\n- b\n",
            "#cloud-config\n'bootcmd': [b]\n",
            // The comment would be in the value of a.
            "#cloud-config\ra: |\r  x\n  y\r",
            "#cloud-config\na: é\nb: 'MIME-Version: 1.0'\n",
            // cloud-init would not run it.
            "#cloud-config\ncloud_init_modules: [write_files]\n",
            "#cloud-config\nlaunch-index: 1\nbootcmd:\n- a\n",
        ] {
            assert_eq!(spliced(text), None, "{text}");
        }
    }
}
