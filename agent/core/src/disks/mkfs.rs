//! Tools that make filesystems, their arguments, and the arguments that users may add.

use virtfleet_wire::settings::DiskFilesystem;

use super::wanted::Wanted;

/// Returns the tool and its arguments before the device.
///
/// - No tool gets a force flag: each refuses a disk with known content, which is one more guard.
///   `mkfs.ext4` needs no `-F` for a whole disk: it asks about that only on a terminal (before
///   1.43), and about a partition table only if there is one.
/// - Nothing is discarded: the disk reads as zeros, so a discard gains nothing. If another program
///   wrote to the disk between the last probe and the first write of the tool, a discard would
///   destroy all of it, and metadata alone leaves most of it intact.
/// - Lazy initialisation of ext4's inode tables is left to the tool. The journal is zeroed at once,
///   the tool's default: otherwise a crash early on could replay the journal of an earlier
///   filesystem. The agent's journal handles a crash of mkfs itself.
/// - No blocks are reserved for root (`-m 0`) unless requested: the data of containers fills the
///   disk, and root's own files are elsewhere.
pub fn arguments(wanted: &Wanted, uuid: &str) -> (&'static str, Vec<String>) {
    let label = wanted
        .label
        .as_deref()
        .map(|label| ["-L".to_owned(), label.to_owned()]);
    let mut further = wanted.mkfs_options.clone();
    let own = match wanted.filesystem {
        DiskFilesystem::Ext4 => {
            let reserved = wanted.reserved_percent.unwrap_or(0).to_string();
            let extended = with_extended(&mut further, "nodiscard");
            words(&["-q", "-U", uuid, "-m", &reserved, "-E", &extended])
        }
        DiskFilesystem::Xfs => words(&["-q", "-K", "-m", &format!("uuid={uuid}")]),
        DiskFilesystem::Btrfs => words(&["-q", "-K", "-U", uuid]),
        DiskFilesystem::Swap => words(&["-U", uuid]),
    };
    let arguments = own
        .into_iter()
        .chain(label.into_iter().flatten())
        .chain(further)
        .collect();
    (program(wanted.filesystem), arguments)
}

/// Returns the arguments for an equal filesystem in a scratch file, as reference for
/// [`super::remains`]: ext4's journal stays a hole in the file instead of written zeros.
pub fn reference_arguments(filesystem: &str, arguments: &[String]) -> Vec<String> {
    let mut arguments = arguments.to_vec();
    let extended = arguments.iter().position(|argument| argument == "-E");
    if filesystem == "ext4"
        && let Some(value) = extended.and_then(|at| arguments.get_mut(at + 1))
    {
        value.push_str(",lazy_journal_init=1");
    }
    arguments
}

/// Returns the label in arguments of [`arguments`].
pub fn label_in(arguments: &[String]) -> Option<&str> {
    let at = arguments.iter().position(|argument| argument == "-L")?;
    arguments.get(at + 1).map(String::as_str)
}

/// Removes all `-E` from the arguments and appends their values to `own`: of several `-E` the tool
/// uses only the last.
fn with_extended(arguments: &mut Vec<String>, own: &str) -> String {
    let mut value = own.to_owned();
    let mut rest = Vec::new();
    let mut items = std::mem::take(arguments).into_iter();
    while let Some(item) = items.next() {
        let Some(inline) = item.strip_prefix("-E") else {
            rest.push(item);
            continue;
        };
        let said = if inline.is_empty() {
            items.next()
        } else {
            Some(inline.to_owned())
        };
        if let Some(said) = said {
            value.push(',');
            value.push_str(&said);
        }
    }
    *arguments = rest;
    value
}

/// Name of the tool.
pub fn program(filesystem: DiskFilesystem) -> &'static str {
    match filesystem {
        DiskFilesystem::Ext4 => "mkfs.ext4",
        DiskFilesystem::Xfs => "mkfs.xfs",
        DiskFilesystem::Btrfs => "mkfs.btrfs",
        DiskFilesystem::Swap => "mkswap",
    }
}

/// Returns the tool for LUKS2 and its arguments before key file and device. `--batch-mode` only
/// suppresses the confirmation prompt.
pub fn luks_arguments(luks_uuid: &str) -> (&'static str, Vec<String>) {
    let arguments = [
        "luksFormat",
        "--batch-mode",
        "--type",
        "luks2",
        "--uuid",
        luks_uuid,
    ];
    ("cryptsetup", words(&arguments))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Maximum size of a label in bytes.
pub fn label_bytes(filesystem: DiskFilesystem) -> usize {
    match filesystem {
        DiskFilesystem::Ext4 | DiskFilesystem::Swap => 16,
        DiskFilesystem::Xfs => 12,
        DiskFilesystem::Btrfs => 255,
    }
}

/// Flags that a user may add, and words that their values must not contain. An allow list, because
/// the tools gain flags.
const EXT4: &[(&str, &[&str])] = &[
    ("-b", &[]),
    ("-C", &[]),
    (
        "-E",
        &["offset", "discard", "nodiscard", "test_fs", "root_selinux"],
    ),
    ("-G", &[]),
    ("-g", &[]),
    ("-I", &[]),
    ("-i", &[]),
    ("-J", &["device"]),
    ("-N", &[]),
    ("-O", &["journal_dev"]),
    ("-T", &[]),
    ("-e", &[]),
];
const XFS: &[(&str, &[&str])] = &[
    ("-b", &[]),
    ("-d", &["file", "name", "size"]),
    ("-i", &[]),
    ("-l", &["file", "name", "logdev"]),
    ("-m", &["uuid"]),
    ("-n", &[]),
    ("-s", &[]),
];
const BTRFS: &[(&str, &[&str])] = &[
    ("-d", &[]),
    ("--data", &[]),
    ("-m", &[]),
    ("--metadata", &[]),
    ("-n", &[]),
    ("--nodesize", &[]),
    ("-s", &[]),
    ("--sectorsize", &[]),
    ("-O", &[]),
    ("--features", &[]),
    ("-R", &[]),
    ("--runtime-features", &[]),
    ("--csum", &[]),
    ("--checksum", &[]),
];
const SWAP: &[(&str, &[&str])] = &[
    ("-p", &[]),
    ("--pagesize", &[]),
    ("-e", &[]),
    ("--endianness", &[]),
];

fn allowed(filesystem: DiskFilesystem) -> &'static [(&'static str, &'static [&'static str])] {
    match filesystem {
        DiskFilesystem::Ext4 => EXT4,
        DiskFilesystem::Xfs => XFS,
        DiskFilesystem::Btrfs => BTRFS,
        DiskFilesystem::Swap => SWAP,
    }
}

/// Returns the problem with a user's additional arguments, if any: the first one that is not a
/// known flag or its value. Every allowed flag has a value, in the same or in the next argument.
pub fn objection(filesystem: DiskFilesystem, options: &[String]) -> Option<String> {
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let Some((flag, bad_words, inline)) = flag_of(filesystem, option) else {
            let flags: Vec<&str> = allowed(filesystem).iter().map(|(flag, _)| *flag).collect();
            return Some(format!(
                "{option:?} is not an allowed flag of {}; allowed: {}",
                program(filesystem),
                flags.join(" ")
            ));
        };
        let value = match inline {
            Some(value) => value,
            None => match options.next() {
                Some(value) => value.as_str(),
                None => return Some(format!("{flag} needs a value as the next item")),
            },
        };
        if value.is_empty() || value.starts_with('-') || value.contains('/') {
            return Some(format!(
                "{value:?} is not a valid value of {flag}; devices and files are not allowed"
            ));
        }
        let bad = value
            .split(',')
            .filter_map(|word| word.split('=').next())
            .find(|word| bad_words.contains(&word.trim().trim_start_matches('^')));
        if let Some(bad) = bad {
            return Some(format!(
                "{flag} {bad} is not allowed: it would change which bytes are written, or the identity of the filesystem"
            ));
        }
    }
    None
}

/// Flag, words that its value must not contain, and the value if it is in the same argument.
type Flag<'a> = (&'static str, &'static [&'static str], Option<&'a str>);

fn flag_of(filesystem: DiskFilesystem, option: &str) -> Option<Flag<'_>> {
    allowed(filesystem).iter().find_map(|(flag, bad)| {
        let rest = option.strip_prefix(flag)?;
        let inline = match (flag.starts_with("--"), rest) {
            (_, "") => None,
            (true, rest) => Some(rest.strip_prefix('=')?),
            (false, rest) => Some(rest),
        };
        Some((*flag, *bad, inline))
    })
}

#[cfg(test)]
mod tests;
