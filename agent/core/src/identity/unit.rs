//! Parser for systemd unit files and environment files, to determine a service's command line.
//!
//! Supported, by systemd.syntax(7), systemd.service(5) and systemd.exec(5): sections, `#` and `;`
//! comments, backslash continuations, quotes, `Environment=`, `EnvironmentFile=` (with `-` for an
//! optional file), `$NAME` as words and `${NAME}` within words. Specifiers (`%i`) are not expanded.

use std::collections::BTreeMap;

/// Maximum size of an expanded command line in bytes.
const MAX_EXPANDED: usize = 64 * 1024;

/// Relevant settings of a service's unit and its drop-ins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// The last `ExecStart=` command line, unexpanded.
    pub exec_start: Option<String>,
    /// `Environment=` assignments.
    pub environment: BTreeMap<String, String>,
    /// `EnvironmentFile=` paths in order, without the leading `-`.
    pub environment_files: Vec<String>,
}

impl Service {
    /// Applies a unit file or a drop-in; call in systemd's order. An empty assignment resets the
    /// setting.
    pub fn read(&mut self, text: &str) {
        let mut in_service = false;
        for line in logical_lines(text) {
            let line = line.trim();
            if line.starts_with('[') {
                in_service = line == "[Service]";
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| in_service) else {
                continue;
            };
            let value = value.trim();
            match key.trim() {
                "ExecStart" => self.exec_start = (!value.is_empty()).then(|| value.to_owned()),
                "Environment" if value.is_empty() => self.environment.clear(),
                "Environment" => self
                    .environment
                    .extend(words(value).iter().filter_map(|word| assignment(word))),
                "EnvironmentFile" if value.is_empty() => self.environment_files.clear(),
                "EnvironmentFile" => self
                    .environment_files
                    .push(value.strip_prefix('-').unwrap_or(value).to_owned()),
                _ => {}
            }
        }
    }

    /// Returns the arguments of the command line, expanded with this environment (including the
    /// environment files).
    pub fn arguments(&self, environment: &BTreeMap<String, String>) -> Vec<String> {
        let exec = self.exec_start.as_deref().unwrap_or_default();
        let mut arguments = Vec::new();
        let mut grown = 0;
        for word in words(exec) {
            let bare = word.strip_prefix('$').filter(|name| is_name(name));
            let expanded = match bare {
                Some(name) => environment
                    .get(name)
                    .map(|value| words(value))
                    .unwrap_or_default(),
                None => vec![braces(&word, environment)],
            };
            for word in expanded {
                // Empty words count against the limit, too.
                grown += word.len() + 1;
                if grown > MAX_EXPANDED {
                    return arguments;
                }
                arguments.push(word);
            }
        }
        arguments
    }
}

/// Parses `NAME=value` lines of an environment file (`/etc/default/kubelet`, `kubeadm-flags.env`);
/// a leading `export` is allowed.
pub fn environment_file(text: &str) -> BTreeMap<String, String> {
    logical_lines(text)
        .iter()
        .filter_map(|line| {
            let line = line.trim();
            let line = line.strip_prefix("export ").unwrap_or(line);
            let (name, value) = line.split_once('=').filter(|(name, _)| is_name(name))?;
            Some((name.to_owned(), words(value).join(" ")))
        })
        .collect()
}

/// Joins continuation lines, and removes comments.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let comment = line.trim_start().starts_with(['#', ';']);
        // A comment line within a continuation is skipped, and the continuation goes on.
        if comment {
            continue;
        }
        let (line, joins) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| open) {
            Some(last) => {
                last.push(' ');
                last.push_str(line);
            }
            None => lines.push(line.to_owned()),
        }
        open = joins;
    }
    lines
}

/// Splits at white space. Quotes protect it, and a backslash the next character (not in single
/// quotes).
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            (_, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn assignment(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    is_name(name).then(|| (name.to_owned(), value.to_owned()))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Replaces `${NAME}` by its value, or by nothing.
fn braces(word: &str, environment: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            expanded.push_str("${");
            rest = after;
            continue;
        };
        expanded.push_str(environment.get(name).map_or("", String::as_str));
        rest = after;
        if expanded.len() > MAX_EXPANDED {
            return expanded;
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unit_with_drop_ins_yields_one_command_line() {
        let mut service = Service::default();
        service.read(
            "[Unit]\nExecStart=/not/this\n[Service]\nExecStart=/usr/bin/kubelet --v=2\nRestart=always\n",
        );
        service.read(
            "[Service]\nEnvironment=\"KUBELET_CONFIG=--config=/a b\" EXTRA=\nEnvironmentFile=-/etc/default/kubelet\n\
             # comment\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_CONFIG ${ONE}x \\\n  # within\n  --last='c d' $NONE\n",
        );
        assert_eq!(service.environment_files, ["/etc/default/kubelet"]);
        let mut environment = service.environment.clone();
        environment.insert("ONE".into(), "1 2".into());
        assert_eq!(
            service.arguments(&environment),
            ["/usr/bin/kubelet", "--config=/a", "b", "1 2x", "--last=c d"]
        );
    }

    #[test]
    fn empty_words_count_towards_the_limit() {
        let service = Service {
            exec_start: Some("$A ".repeat(1_000)),
            ..Service::default()
        };
        let environment = BTreeMap::from([("A".to_owned(), "'' ".repeat(1_000))]);
        assert_eq!(service.arguments(&environment).len(), MAX_EXPANDED);
    }

    #[test]
    fn environment_files_are_read() {
        let environment = environment_file(
            "# kubeadm\nKUBELET_KUBEADM_ARGS=\"--node-labels=a=b,c=d --provider-id=x\"\nexport A='1'\n2B=no\nnothing\n",
        );
        assert_eq!(
            environment["KUBELET_KUBEADM_ARGS"],
            "--node-labels=a=b,c=d --provider-id=x"
        );
        assert_eq!(environment["A"], "1");
        assert_eq!(environment.len(), 2);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_expansion_ends(text in "(\\[Service\\]|ExecStart=|Environment=|A=|\\$A|\\$\\{A\\}|\"|'|\\\\|\n| |x){0,40}") {
            let mut service = Service::default();
            service.read(&text);
            service.arguments(&service.environment);
            environment_file(&text);
        }
    }
}
