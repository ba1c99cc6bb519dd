//! The system as a whole: its name, clock and limits.

mod cgroups;
mod entropy;
mod filefd;
mod kernel_hung;
mod os;
mod selinux;
mod sysctl;
mod textfile;
mod textfile_folders;
mod time;
mod timex;
mod uname;

use super::{Entry, Flag};

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::off(
        "cgroups",
        "Cgroup controllers and their number of cgroups",
        cgroups::new,
    ),
    Entry::on("entropy", "The kernel's entropy pool", entropy::new),
    Entry::on("filefd", "Open files of the whole system", filefd::new),
    Entry::on("kernel_hung", "Hung tasks", kernel_hung::new),
    Entry::on("os", "The operating system from its os-release file", os::new),
    Entry::on("selinux", "Whether SELinux is on and enforcing", selinux::new),
    Entry::off("sysctl", "Sysctls selected in the settings", sysctl::new).with(&[
        Flag::texts("include", "include"),
        Flag::texts("include-info", "includeInfo"),
    ]),
    Entry::on("time", "Wall clock, time zone and clock sources", time::new),
    Entry::on("timex", "State of the clock synchronization", timex::new),
    Entry::on("uname", "Kernel and host name", uname::new),
];

/// Collectors that run after all others, because they need the families on the page.
pub(super) const LAST: &[Entry] = &[Entry::on(
    "textfile",
    "Metrics that other programs write to files",
    textfile::new,
)
.with(&[Flag::texts("directory", "directories")])];
