//! Validation of mount options and swap options.

use virtfleet_wire::settings::DiskFilesystem;

/// Options that select another device, another part of it, or another kind of mount.
const PLACE_OPTIONS: [&str; 23] = [
    "loop",
    "offset",
    "sizelimit",
    "remount",
    "bind",
    "rbind",
    "move",
    "uuid",
    "label",
    "partuuid",
    "partlabel",
    "device",
    "logdev",
    "rtdev",
    "journal_path",
    "journal_dev",
    "sb",
    "subvol",
    "subvolid",
    "shared",
    "slave",
    "private",
    "unbindable",
];
/// Options that the agent sets itself, or that move the mount out of its control.
const AGENT_OPTIONS: [&str; 11] = [
    "nofail", "fail", "auto", "noauto", "user", "users", "owner", "group", "_netdev", "helper", "uhelper",
];
/// Options by which a filesystem accepts a clone as itself, or loses data at a power cut.
const UNSAFE_OPTIONS: [&str; 9] = [
    "nouuid",
    "norecovery",
    "noload",
    "nologreplay",
    "degraded",
    "rescue",
    "usebackuproot",
    "nobarrier",
    "test_dummy_encryption",
];

/// Returns the problems, one message per invalid option.
pub(super) fn objections(filesystem: DiskFilesystem, options: &[String]) -> Vec<String> {
    options
        .iter()
        .filter_map(|option| objection(filesystem, option))
        .collect()
}

fn objection(filesystem: DiskFilesystem, option: &str) -> Option<String> {
    if option.is_empty()
        || !option.bytes().all(|b| b.is_ascii_graphic())
        || option.contains([',', '"', '\'', '\\', '#'])
    {
        return Some(format!(
            "{option:?} must be a single option without spaces, commas and quotes"
        ));
    }
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    if filesystem == DiskFilesystem::Swap {
        let good = match name {
            "discard" => option == "discard" || matches!(value, "once" | "pages"),
            "pri" => value.parse::<u16>().is_ok_and(|value| value <= 32767),
            _ => false,
        };
        return (!good).then(|| {
            format!(
                "{option:?} is not an option of swap; valid: discard, discard=once, discard=pages, pri=0 to pri=32767"
            )
        });
    }
    let why = if name.starts_with("x-") || name.starts_with("X-") || AGENT_OPTIONS.contains(&name) {
        "is set by the agent"
    } else if PLACE_OPTIONS.contains(&name) {
        "would mount something other than the disk"
    } else if UNSAFE_OPTIONS.contains(&name) || option == "barrier=0" {
        "can lose data or mistake a clone for the disk"
    } else {
        return None;
    };
    Some(format!("{option:?} {why}"))
}
