//! The system as a whole: its name, its clock, its limits.

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

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::off(
        "cgroups",
        "Controllers of cgroups and how many they have",
        cgroups::new,
    ),
    Entry::on("entropy", "The kernel's pool of randomness", entropy::new),
    Entry::on("filefd", "Open files of the whole system", filefd::new),
    Entry::on("kernel_hung", "Tasks that were found to hang", kernel_hung::new),
    Entry::on("os", "The operating system by its os-release file", os::new),
    Entry::on("selinux", "Whether SELinux is on and enforcing", selinux::new),
    Entry::off("sysctl", "Sysctls that the settings name", sysctl::new).with(&[
        Flag::texts("include", "include"),
        Flag::texts("include-info", "includeInfo"),
    ]),
    Entry::on("time", "Wall clock, time zone and clock sources", time::new),
    Entry::on("timex", "How well the clock is kept", timex::new),
    Entry::on("uname", "Kernel and host name", uname::new),
];

/// What has to run after all other collectors: it must know which families are on the page.
pub(super) const LAST: &[Entry] =
    &[
        Entry::on("textfile", "Metrics that others leave in files", textfile::new)
            .with(&[Flag::texts("directory", "directories")]),
    ];
