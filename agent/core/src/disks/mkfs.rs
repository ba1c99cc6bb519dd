//! How filesystems are made: the tool, its arguments, and which further arguments a user may give.

use virtfleet_wire::settings::DiskFilesystem;

use super::wanted::Wanted;

/// The tool and its arguments before the device.
///
/// - No tool is told to force: each then refuses a disk on which it finds something, and so is one more guard. `mkfs.ext4` needs
///   no `-F` for a whole disk: it asks about that only on a terminal (before 1.43), and about a partition table only when there is one.
/// - Nothing is discarded: the proof says that the disk reads as zeros, so nothing is gained; and a discard would destroy all that another
///   writer made in the moment between our last look and the tool's first write, where metadata alone leaves most of it.
/// - Lazy initialisation of ext4's inode tables is the tool's choice by kernel. The journal is zeroed at once, also the tool's default: without that a
///   crash before its first round may replay what an earlier filesystem left. Against a crash of mkfs itself our journal stands.
/// - No blocks are kept for root (`-m 0`) unless asked for: a data disk fills for containers, and root's own files are elsewhere.
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

/// The arguments for the same filesystem on a scratch file, to compare with ([`super::remains`]):
/// ext4's journal is left as the hole that it is there instead of written as zeros.
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

/// The label that the arguments give, as [`arguments`] writes it.
pub fn label_in(arguments: &[String]) -> Option<&str> {
    let at = arguments.iter().position(|argument| argument == "-L")?;
    arguments.get(at + 1).map(String::as_str)
}

/// Takes `-E` out of the arguments and puts what they said behind `own`: of several `-E` the tool heeds the last alone.
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

/// The tool that makes it.
pub fn program(filesystem: DiskFilesystem) -> &'static str {
    match filesystem {
        DiskFilesystem::Ext4 => "mkfs.ext4",
        DiskFilesystem::Xfs => "mkfs.xfs",
        DiskFilesystem::Btrfs => "mkfs.btrfs",
        DiskFilesystem::Swap => "mkswap",
    }
}

/// The tool of LUKS2 and its arguments before the key file and the device. `--batch-mode` only says that nobody is there to ask.
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

/// The most bytes of a label.
pub fn label_bytes(filesystem: DiskFilesystem) -> usize {
    match filesystem {
        DiskFilesystem::Ext4 | DiskFilesystem::Swap => 16,
        DiskFilesystem::Xfs => 12,
        DiskFilesystem::Btrfs => 255,
    }
}

/// Flags that a user may give, and the words that their value must not hold. A list of what is allowed, because the tools gain flags.
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

/// What is wrong with a user's further arguments: the first that is not one of a known flag and its value. Every flag that may be given
/// takes a value, behind it or as the next argument.
pub fn objection(filesystem: DiskFilesystem, options: &[String]) -> Option<String> {
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let Some((flag, bad_words, inline)) = flag_of(filesystem, option) else {
            let flags: Vec<&str> = allowed(filesystem).iter().map(|(flag, _)| *flag).collect();
            return Some(format!(
                "{option:?} is not among the flags of {} that may be given: {}",
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
                "{value:?} is no value of {flag}; a device or a file cannot be named"
            ));
        }
        let bad = value
            .split(',')
            .filter_map(|word| word.split('=').next())
            .find(|word| bad_words.contains(&word.trim().trim_start_matches('^')));
        if let Some(bad) = bad {
            return Some(format!(
                "{flag} {bad} cannot be given: it would change which bytes are written, or whose they are"
            ));
        }
    }
    None
}

/// The flag, the words that its value must not hold, and the value when it stands in the same argument.
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
