//! Mount options, and swap's.

use virtfleet_wire::settings::DiskFilesystem;

/// Options that name another device, another part of it, or another way of mounting than ours.
const PLACE: [&str; 23] = [
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
/// Options that the agent sets, or that take the mount out of its hands.
const OURS: [&str; 11] = [
    "nofail", "fail", "auto", "noauto", "user", "users", "owner", "group", "_netdev", "helper", "uhelper",
];
/// Options by which a filesystem takes a clone for itself, or loses what a power cut interrupts.
const UNSAFE: [&str; 9] = [
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

/// What is wrong with the options, one message for each that is.
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
            "{option:?} is not one option without spaces, commas and quotes"
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
                "{option:?} is no option of swap: discard, discard=once, discard=pages, pri=0 to pri=32767"
            )
        });
    }
    let why = if name.starts_with("x-") || name.starts_with("X-") || OURS.contains(&name) {
        "is for the agent to set"
    } else if PLACE.contains(&name) {
        "would mount something else than the disk"
    } else if UNSAFE.contains(&name) || option == "barrier=0" {
        "can lose data or take a clone for the disk"
    } else {
        return None;
    };
    Some(format!("{option:?} {why}"))
}
