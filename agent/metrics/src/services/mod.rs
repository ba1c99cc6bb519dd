//! systemd, logind and processes.

mod logind;
mod processes;
mod systemd;

use super::{Entry, Flag};

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::off("logind", "Login sessions", logind::new),
    Entry::dashboards("processes", "Processes and threads by state", processes::new),
    Entry::dashboards("systemd", "systemd units and their states", systemd::new).with(&[
        Flag::text("unit-include", "unitInclude"),
        Flag::text("unit-exclude", "unitExclude"),
        Flag::switch("enable-restarts-metrics", "restarts"),
        Flag::switch("enable-start-time-metrics", "startTimes"),
        Flag::switch("enable-task-metrics", "tasks"),
    ]),
];
