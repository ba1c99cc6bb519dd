//! Folders of `textfile`: paths in the guest, whose components may contain the shell wildcards `*`,
//! `?` and `[a-z]`.

use regex_lite::Regex;

use super::RegistryError;

pub const KEY: &str = "metrics.textfile.directories";

/// Folder, or many folders by a pattern.
#[derive(Debug)]
pub struct Folder {
    /// Path in the settings.
    pub path: String,
    /// Path components.
    pub parts: Vec<Part>,
}

/// Path component.
#[derive(Debug)]
pub enum Part {
    Name(String),
    Pattern(Regex),
}

impl Folder {
    /// Parses the folders in the settings. An empty path is ignored, as in node_exporter's flag.
    ///
    /// # Errors
    ///
    /// A path is not absolute, contains `..`, or has a malformed pattern.
    pub fn all(paths: &[String]) -> Result<Vec<Self>, RegistryError> {
        let folders = paths.iter().filter(|path| !path.is_empty());
        folders.map(|path| Self::new(path)).collect()
    }

    fn new(path: &str) -> Result<Self, RegistryError> {
        let wrong = |reason| RegistryError::Value { key: KEY, reason };
        if !path.starts_with('/') || path.contains('\0') {
            return Err(wrong("must be an absolute path"));
        }
        let mut parts = Vec::new();
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            if name == ".." {
                return Err(wrong("must not contain .."));
            }
            parts.push(if name.contains(['*', '?', '[']) {
                Part::Pattern(pattern(name)?)
            } else {
                Part::Name(name.to_owned())
            });
        }
        Ok(Self {
            path: path.to_owned(),
            parts,
        })
    }
}

/// Converts a shell pattern to a regular expression.
fn pattern(name: &str) -> Result<Regex, RegistryError> {
    let mut expression = String::from("(?s)^");
    let (mut in_set, mut before) = (false, ' ');
    let mut buffer = [0; 4];
    for c in name.chars() {
        let opened = std::mem::replace(&mut before, c) == '[';
        match c {
            '[' if !in_set => in_set = true,
            '!' if in_set && opened => {
                expression.push('^');
                continue;
            }
            ']' if in_set => in_set = false,
            '*' if !in_set => expression.push('.'),
            '?' if !in_set => {
                expression.push('.');
                continue;
            }
            '^' | '-' if in_set => {}
            _ => {
                expression.push_str(&regex_lite::escape(c.encode_utf8(&mut buffer)));
                continue;
            }
        }
        expression.push(c);
    }
    expression.push('$');
    Regex::new(&expression).map_err(|source| RegistryError::Pattern {
        key: KEY,
        pattern: name.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_patterns_are_converted() {
        for (text, name, matches) in [
            ("*", "anything", true),
            ("job-*", "job-1", true),
            ("job-*", "myjob-1", false),
            ("a.b*", "axb", false),
            ("?", "é", true),
            ("?", "ab", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("a!", "a!", true),
            ("+*", "+1", true),
        ] {
            assert_eq!(pattern(text).unwrap().is_match(name), matches, "{text} {name}");
        }
        assert!(pattern("[a").is_err());
    }
}
