//! One value in a small file of procfs or sysfs.

use std::{path::Path, str::FromStr};

use super::{bounded::read_text, reread::read_once};

/// Maximum size of such a file in bytes: a page, the size of a sysfs attribute.
const MAX_BYTES: usize = 4096;

/// The text of a file, trimmed and without control characters. `None` if the file is missing,
/// unreadable or empty.
pub fn read_line(path: &Path) -> Option<String> {
    let text = read_text(path, MAX_BYTES).ok()?;
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The value of a file, e.g. a decimal number. `None` if the file is missing, or its content is not
/// such a value.
pub fn read_value<T: FromStr>(path: &Path) -> Option<T> {
    read_line(path)?.parse().ok()
}

/// The same for scrapes: reads with [`read_once`] into `buffer` and allocates nothing.
pub fn value_once<T: FromStr>(path: &Path, buffer: &mut Vec<u8>) -> Option<T> {
    let text = str::from_utf8(read_once(path, buffer, MAX_BYTES).ok()?).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_value_is_a_whole_trimmed_file() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            ("42\n", Some("42"), Some(42_u64)),
            (" 7\u{1b} \n", Some("7"), None),
            ("\n", None, None),
            ("12 kB\n", Some("12 kB"), None),
            ("-1\n", Some("-1"), None),
        ];
        for (content, line, number) in cases {
            let path = dir.path().join("file");
            fs::write(&path, content).unwrap();
            assert_eq!(read_line(&path).as_deref(), line, "{content:?}");
            assert_eq!(value_once(&path, &mut Vec::new()), number, "{content:?}");
        }
        fs::write(dir.path().join("long"), "1".repeat(MAX_BYTES + 1)).unwrap();
        assert_eq!(read_value::<u64>(&dir.path().join("long")), None);
        assert_eq!(read_value::<u64>(&dir.path().join("missing")), None);
        assert_eq!(
            value_once::<u64>(&dir.path().join("missing"), &mut Vec::new()),
            None
        );
    }
}
