//! Delivery of the agent into a guest: one small input determines the files that the guest needs,
//! and these become user-data for cloud-init, a config for Ignition, or part of a profile of
//! Kubermatic's operating-system-manager.
//!
//! ```text
//! kind: Delivery ─ spec ─▶ checked ─ payload ─▶ files ─ script ─┬─ cloud_init ─▶ user-data
//!                                                               ├─ ignition ───▶ configuration
//!                                                               └─ osp ────────▶ profile
//! packaging/ ─ guest ─▶ files of `virtfleet-agent install`
//! ```
//!
//! Nothing here reads a file or runs a command; the caller passes contents and hashes.
//! `docs/delivery.md` describes the use, `docs/decisions/0007-delivery.md` the reasons.

#![warn(missing_docs)]

pub mod cloud_init;
pub mod guest;
mod gzip;
pub mod ignition;
mod mime;
pub mod osc;
pub mod osp;
mod own;
pub mod payload;
mod pyyaml;
mod script;
pub mod spec;
mod splice;

pub use gzip::gzip;

/// Path of the delivered binary: in a folder that is writable on systems with a read-only `/usr`,
/// too.
pub const AGENT_PATH: &str = "/opt/virtfleet/bin/virtfleet-agent";
/// Default folder of `install`; the binary is in its `bin`.
pub const PREFIX: &str = "/opt/virtfleet";
/// The delivery's folder in the guest.
pub const STATE: &str = "/var/lib/virtfleet/delivery";
/// State of `virtfleet-agent install`, a key and its values per line: `sha256`, `version`, `wanted`
/// (the SHA-256 that the delivery requested at that time, `-` without one), `file` (one line each).
pub const INSTALLED: &str = "/var/lib/virtfleet/delivery/installed";
/// The request of the delivery, in the same form: `sha256`, `version`, `disk LABEL PATH`, `url
/// URL`, `group GROUP FILE`, `repair`. A line that begins with `on MACHINE` is only for machines
/// for which `uname -m` prints that.
pub const WANTED: &str = "/var/lib/virtfleet/delivery/wanted";

/// The first value of a key in a file of keys and values.
pub fn word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    words(text, word).next()
}

/// The SHA-256 that a delivery ([`WANTED`]) requests for a kind of machine, as `uname -m` prints
/// it.
pub fn requested_sum<'t>(wanted: &'t str, machine: &str) -> Option<&'t str> {
    let for_machine = |line: &'t str| line.strip_prefix(machine)?.strip_prefix(" sha256 ");
    word(wanted, "sha256").or_else(|| words(wanted, "on").find_map(for_machine))
}

/// All values of a key in a file of keys and values.
pub fn words<'t>(text: &'t str, word: &str) -> impl Iterator<Item = &'t str> {
    text.lines()
        .filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
}

#[cfg(test)]
mod size_tests;
