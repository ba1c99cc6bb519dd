//! What is fuzzed: for each target, a function that takes any bytes, gives them to parsers, and
//! panics when a rule of theirs is broken.
//!
//! Built twice: into the fuzzer (`tests/fuzz`), and into the scenario `fuzz`, which replays what
//! was found with the normal toolchain.

mod dbus;
mod dns;
mod guest;
mod input;
mod netlink;
mod pages;
mod procfs;
mod queue;
mod remote_write;
mod server;
mod settings;

/// A function that takes any bytes.
pub(crate) type Play = fn(&[u8]);

/// Every target: its name, and what it does.
pub(crate) const TARGETS: &[(&str, Play)] = &[
    ("dbus", dbus::messages),
    ("dns-answer", server::dns_answer),
    ("dns-given", dns::given),
    ("downward", guest::downward),
    ("identity", guest::identity),
    ("netlink", netlink::messages),
    ("openmetrics", pages::openmetrics),
    ("proc-cpu", procfs::cpu),
    ("proc-disk", procfs::disk),
    ("proc-memory", procfs::memory),
    ("proc-net", procfs::net),
    ("query", server::query),
    ("queue", queue::files),
    ("remote-write", remote_write::messages),
    ("report", settings::report),
    ("resolv", dns::resolv),
    ("settings", settings::settings),
    ("textfile", pages::textfile),
    ("unit", guest::unit),
    ("words", settings::words),
    ("yaml", settings::yaml),
];
