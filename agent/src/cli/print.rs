//! Output to standard output and standard error.

use std::io::{Error, ErrorKind, Result, Write};

/// Writes text to standard output.
pub(super) fn text(text: &str) -> Result<()> {
    bytes(text.as_bytes())
}

/// Writes bytes to standard output.
pub(super) fn bytes(bytes: &[u8]) -> Result<()> {
    write(std::io::stdout().lock(), bytes)
}

/// Writes coloured text to standard output. anstream removes the colours if the output is not a
/// terminal.
pub(super) fn coloured(text: &str) -> Result<()> {
    write(anstream::stdout().lock(), text.as_bytes())
}

/// Writes an error to standard error.
pub(super) fn complain(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "virtfleet-agent: {text}"));
}

/// Writes bytes. A closed pipe (`| head`) is not an error.
fn write(mut out: impl Write, bytes: &[u8]) -> Result<()> {
    let gone = |error: &Error| error.kind() == ErrorKind::BrokenPipe;
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })
}
