//! The boot command: a shell script that writes the payload durably, verifies it at every boot and
//! runs the delivery.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::payload::{File, Payload};

/// End marker of a file in the script; no line of a file that is written as plain text may equal
/// it.
const END_MARKER: &str = "VIRTFLEET_END";
/// Columns of base64.
const BASE64_COLUMNS: usize = 100;

/// The script: ASCII, and a subshell as a whole, so that it leaves no state in a shell that
/// continues after it.
pub(crate) fn script(payload: &Payload) -> String {
    let mut text = include_str!("text/boot-head.sh").to_owned();
    for file in payload.all_files() {
        put(&mut text, &file);
    }
    // Writing to a string cannot fail.
    writeln!(text, "wait={}", payload.wait).ok();
    text.push_str(include_str!("text/boot-tail.sh"));
    text
}

fn put(text: &mut String, file: &File) {
    let plain = plain(&file.content);
    let decode = if plain.is_some() { "" } else { " base64" };
    writeln!(
        text,
        "put {:04o} {}{decode} <<'{END_MARKER}'",
        file.mode, file.path
    )
    .ok();
    if let Some(plain) = plain {
        text.push_str(plain);
    } else {
        let encoded = STANDARD.encode(&file.content);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(BASE64_COLUMNS));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
    }
    text.push_str(END_MARKER);
    text.push('\n');
}

/// The content as text, if it is readable and neither YAML, nor a template, nor a here-document
/// changes it.
fn plain(content: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(content).ok()?;
    let readable = text
        .bytes()
        .all(|b| b == b'\n' || b == b'\t' || (b' '..=b'~').contains(&b));
    let template = ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark));
    let ends = text.ends_with('\n') && !text.lines().any(|line| line == END_MARKER);
    (readable && ends && !template).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_content_is_written_as_plain_text() {
        assert_eq!(plain(b"a\tb\n"), Some("a\tb\n"));
        for odd in [
            &b""[..],
            b"no end",
            b"cr\r\n",
            b"\xc3\xa9\n",
            b"\xff\n",
            b"{{ x }}\n",
            b"${#x}\n",
            b"a\nVIRTFLEET_END\nb\n",
        ] {
            assert_eq!(plain(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn packaged_texts_pass_through_every_form() {
        for text in [
            include_str!("text/boot-head.sh"),
            include_str!("text/boot-tail.sh"),
            include_str!("text/deliver.sh"),
            include_str!("text/virtfleet-delivery.service"),
            include_str!("text/wait-for-delivery.conf"),
        ] {
            assert!(plain(text.as_bytes()).is_some(), "{text}");
        }
    }
}
