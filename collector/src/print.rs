//! Messages on standard error.

use std::io::Write as _;

pub(crate) fn print_error(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "virtfleet-collector: {text}"));
}
