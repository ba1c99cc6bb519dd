//! How the agent gets into a guest, as values: one small input becomes the files that must lie in the guest, and those become
//! user-data for cloud-init or a configuration for Ignition.
//!
//! ```text
//! kind: Delivery ─ spec ─▶ checked ─ payload ─▶ files ─┬─ boot ─▶ one shell command ─ cloud_init ─▶ user-data
//!                                                      └─ ignition ─────────────────────────────▶ configuration
//! packaging/ ─ guest ─▶ what `virtfleet-agent install` writes
//! ```
//!
//! Nothing here reads a file or runs a command; whoever calls passes contents and hashes. `docs/delivery.md` tells the
//! operator's side, `docs/decisions/0007-delivery.md` the reasons.

mod boot;
pub mod cloud_init;
pub mod guest;
pub mod ignition;
mod mime;
mod own;
pub mod payload;
pub mod spec;
mod splice;

/// Where the delivered binary lies: a folder that is writable on systems with a read-only `/usr`, too.
pub const AGENT_PATH: &str = "/opt/virtfleet/bin/virtfleet-agent";
/// The folder that `install` uses when no other is named; the binary lies in its `bin`.
pub const PREFIX: &str = "/opt/virtfleet";
/// The delivery's own folder in the guest.
pub const STATE: &str = "/var/lib/virtfleet/delivery";
/// What `virtfleet-agent install` has put in place, a word and its values a line: `sha256`, `version`, `wanted` (the SHA-256
/// that the delivery asked for at that time, `-` without one), `file` (one line each).
pub const INSTALLED: &str = "/var/lib/virtfleet/delivery/installed";
/// What the delivery asks for, in the same form: `sha256`, `version`, `disk LABEL PATH`, `url URL`, `group GROUP FILE`, `repair`.
pub const WANTED: &str = "/var/lib/virtfleet/delivery/wanted";

/// The first value that a file of words and values has for a word.
pub fn word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    words(text, word).next()
}

/// All values that a file of words and values has for a word.
pub fn words<'t>(text: &'t str, word: &str) -> impl Iterator<Item = &'t str> {
    text.lines()
        .filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
}
