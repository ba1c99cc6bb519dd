//! Several types of user-data as one MIME message, as cloud-init expects it.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// One part of the message.
pub(crate) struct Part<'a> {
    /// Its content type, e.g. `text/x-shellscript`. None: the content is itself a MIME message.
    pub(crate) kind: Option<&'a str>,
    /// The file name for cloud-init.
    pub(crate) name: &'a str,
    pub(crate) content: &'a str,
}

/// The message. `made` is in its preamble, which is never executed.
pub(crate) fn message(made: &str, parts: &[Part<'_>]) -> String {
    let mut boundary = "virtfleet-part".to_owned();
    while parts.iter().any(|part| part.content.contains(&boundary)) {
        boundary.push('x');
    }
    let mut text =
        format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n{made}\n");
    for part in parts {
        // Writing to a string cannot fail.
        writeln!(text, "\n--{boundary}").ok();
        if let Some(kind) = part.kind {
            // A reader takes the line break before a boundary away, with a carriage return before
            // it.
            let plain = part.content.is_ascii() && !part.content.contains('\r');
            let safe = plain && part.content.lines().all(|line| line.len() < 990);
            let (charset, encoding) = if safe {
                ("us-ascii", "7bit")
            } else {
                ("utf-8", "base64")
            };
            writeln!(
                text,
                "Content-Type: {kind}; charset=\"{charset}\"\nContent-Transfer-Encoding: {encoding}\n\
                 Content-Disposition: attachment; filename=\"{}\"\n",
                part.name
            )
            .ok();
            if safe {
                text.push_str(part.content);
            } else {
                let encoded = STANDARD.encode(part.content);
                let mut rest = encoded.as_str();
                while !rest.is_empty() {
                    let (line, after) = rest.split_at(rest.len().min(76));
                    text.push_str(line);
                    text.push('\n');
                    rest = after;
                }
            }
        } else {
            text.push_str(part.content);
        }
    }
    writeln!(text, "\n--{boundary}--").ok();
    text
}

/// The last component of a path, valid in a header.
pub(crate) fn part_name(path: &str) -> String {
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
