//! Reads the files of identity fields and records why a field is missing.

use std::path::PathBuf;

use virtfleet_agent_host::{ReadError, Roots, read_text};
use virtfleet_wire::identity::{Missing, Sourced};

/// Maximum size of an ordinary file in bytes.
pub(super) const MAX_FILE_BYTES: usize = 64 * 1024;
/// Maximum size of cloud-init's instance data in bytes.
pub(super) const MAX_INSTANCE_DATA_BYTES: usize = 1 << 20;

/// A file, named relative to the root that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) enum GuestFile<'a> {
    /// Absolute path in the guest.
    Root(&'a str),
    /// Path below procfs.
    Proc(&'a str),
    /// Path below sysfs.
    Sys(&'a str),
}

impl GuestFile<'_> {
    pub(super) fn path(self, roots: &Roots) -> PathBuf {
        match self {
            GuestFile::Root(path) => roots.root(path),
            GuestFile::Proc(path) => roots.proc(path),
            GuestFile::Sys(path) => roots.sys(path),
        }
    }

    /// The path as the report shows it: the path in an ordinary guest, independent of the roots.
    pub(super) fn source(self) -> String {
        match self {
            GuestFile::Root(path) => path.to_owned(),
            GuestFile::Proc(path) => format!("/proc/{path}"),
            GuestFile::Sys(path) => format!("/sys/{path}"),
        }
    }

    pub(super) fn read(self, roots: &Roots, cap: usize) -> Result<String, ReadError> {
        read_text(&self.path(roots), cap)
    }
}

/// Reads fields below the roots and collects the missing ones.
pub(super) struct FieldReader<'a> {
    pub(super) roots: &'a Roots,
    pub(super) missing: Vec<Missing>,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(roots: &'a Roots) -> Self {
        Self {
            roots,
            missing: Vec::new(),
        }
    }

    /// The value of the first file that has one. `parse` returns `None` if a text has no value.
    pub(super) fn value<T>(
        &mut self,
        field: &str,
        files: &[GuestFile<'_>],
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Sourced<T>> {
        let mut reasons = Vec::new();
        for at in files {
            match self.attempt(*at, &parse) {
                Ok(value) => return Some(value),
                Err(reason) => reasons.push(reason),
            }
        }
        self.miss(field, reasons);
        None
    }

    /// The value of one file, or the reason why there is none, with the file's path.
    pub(super) fn attempt<T>(
        &self,
        at: GuestFile<'_>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Sourced<T>, String> {
        let source = at.source();
        let reason = match at.read(self.roots, MAX_FILE_BYTES) {
            Ok(text) => match parse(&text) {
                Some(value) => return Ok(Sourced::new(value, source)),
                None => "no value".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        Err(format!("{source}: {reason}"))
    }

    pub(super) fn miss(&mut self, field: &str, reasons: Vec<String>) {
        self.missing.push(Missing {
            field: field.to_owned(),
            reason: reasons.join("; "),
        });
    }
}
