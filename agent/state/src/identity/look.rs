//! Reads files on behalf of the fields of an identity, and keeps account of what was not found.

use std::path::PathBuf;

use virtfleet_agent_host::{ReadError, Roots, read_text};
use virtfleet_wire::identity::{Missing, Sourced};

/// The most that an ordinary file may weigh.
pub(super) const SMALL: usize = 64 * 1024;
/// The most that cloud-init's instance data may weigh.
pub(super) const LARGE: usize = 1 << 20;

/// A file, in the tree that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) enum At<'a> {
    /// By its absolute path in the guest.
    Root(&'a str),
    /// Below procfs.
    Proc(&'a str),
    /// Below sysfs.
    Sys(&'a str),
}

impl At<'_> {
    pub(super) fn path(self, roots: &Roots) -> PathBuf {
        match self {
            At::Root(path) => roots.root(path),
            At::Proc(path) => roots.proc(path),
            At::Sys(path) => roots.sys(path),
        }
    }

    /// As the report names it: the path in an ordinary guest, wherever the roots are.
    pub(super) fn source(self) -> String {
        match self {
            At::Root(path) => path.to_owned(),
            At::Proc(path) => format!("/proc/{path}"),
            At::Sys(path) => format!("/sys/{path}"),
        }
    }

    pub(super) fn read(self, roots: &Roots, cap: usize) -> Result<String, ReadError> {
        read_text(&self.path(roots), cap)
    }
}

/// Roots, and what was looked for in vain.
pub(super) struct Look<'a> {
    pub(super) roots: &'a Roots,
    pub(super) missing: Vec<Missing>,
}

impl<'a> Look<'a> {
    pub(super) fn new(roots: &'a Roots) -> Self {
        Self {
            roots,
            missing: Vec::new(),
        }
    }

    /// The first of these files that has a value; a parser that finds nothing says none.
    pub(super) fn value<T>(
        &mut self,
        field: &str,
        files: &[At<'_>],
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

    /// One file's value, or the reason why there is none, with the file's name.
    pub(super) fn attempt<T>(
        &self,
        at: At<'_>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Sourced<T>, String> {
        let source = at.source();
        let reason = match at.read(self.roots, SMALL) {
            Ok(text) => match parse(&text) {
                Some(value) => return Ok(Sourced::new(value, source)),
                None => "says nothing".to_owned(),
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
