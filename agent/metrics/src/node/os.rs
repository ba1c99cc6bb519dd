//! `os`: the operating system, from `/etc/os-release` or `/usr/lib/os-release` under the root
//! filesystem.

use virtfleet_agent_core::procfs::os_release;
use virtfleet_agent_host::{Roots, read_once};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

const FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];
/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;

/// Labels of `node_os_info` and the os-release assignments that provide them.
const LABELS: [(&str, &str); 12] = [
    ("build_id", "BUILD_ID"),
    ("id", "ID"),
    ("id_like", "ID_LIKE"),
    ("image_id", "IMAGE_ID"),
    ("image_version", "IMAGE_VERSION"),
    ("name", "NAME"),
    ("pretty_name", "PRETTY_NAME"),
    ("variant", "VARIANT"),
    ("variant_id", "VARIANT_ID"),
    ("version", "VERSION"),
    ("version_codename", "VERSION_CODENAME"),
    ("version_id", "VERSION_ID"),
];

struct Os {
    roots: Roots,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Os {
        roots: context.roots.clone(),
        buffer: Vec::new(),
    }))
}

impl Collector for Os {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        for file in FILES {
            let path = self.roots.root_file(file);
            match read_once(&path, &mut self.buffer, MAX_FILE_BYTES) {
                Err(error) if error.is_missing() => {}
                bytes => return write(page, file, &String::from_utf8_lossy(bytes?)),
            }
        }
        Err(CollectError::no_data("there is no os-release file"))
    }
}

fn write(page: &mut Page, file: &str, text: &str) -> Result<(), CollectError> {
    let assignments: Vec<_> = os_release::assignments(text).collect();
    // The last assignment has precedence, as in a shell.
    let value = |key: &str| {
        let found = assignments.iter().rev().find(|(other, _)| *other == key);
        found.map_or("", |(_, value)| value.as_ref())
    };
    page.family(
        "node_os_info",
        "The operating system from its os-release file, always 1.",
        MetricType::Gauge,
    )
    .sample(&LABELS.map(|(label, key)| (label, value(key))), 1.0);
    if let Some(version) = os_release::version(value("VERSION_ID")).filter(|version| *version > 0.0) {
        page.family(
            "node_os_version",
            "The operating system's version, major.minor.",
            MetricType::Gauge,
        )
        .sample(
            &[
                ("id", value("ID")),
                ("id_like", value("ID_LIKE")),
                ("name", value("NAME")),
            ],
            version,
        );
    }
    let end = value("SUPPORT_END");
    if !end.is_empty() {
        let end = os_release::support_end(end).ok_or_else(|| {
            CollectError::failed(format!(
                "{file}: SUPPORT_END {end:?} is not a date such as 2027-05-14"
            ))
        })?;
        page.gauge(
            "node_os_support_end_timestamp_seconds",
            "End of support for the operating system, in seconds since 1970.",
            end as f64,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_date_is_reported() {
        let error = write(&mut Page::new(), "/etc/os-release", "SUPPORT_END=soon").unwrap_err();
        assert_eq!(
            error.to_string(),
            "/etc/os-release: SUPPORT_END \"soon\" is not a date such as 2027-05-14"
        );
    }

    #[test]
    fn the_last_assignment_has_precedence_and_a_missing_version_is_no_sample() {
        let mut page = Page::new();
        write(&mut page, "f", "ID=a\nID=b\nVERSION_ID=rolling\n").unwrap();
        let text = page.to_text();
        assert!(text.contains(",id=\"b\","), "{text}");
        assert_eq!(page.samples(), 1);
    }
}
