//! `/proc/PID/mountinfo` (kernel: `Documentation/filesystems/proc.rst`, section 3.5; escapes:
//! `fs/proc_namespace.c`).
//!
//! Works on bytes, because a mount point may have any bytes.

use std::borrow::Cow;

use super::ParseError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount<'text> {
    /// Mount id, unique while the mount exists.
    pub id: u32,
    /// The device's major number.
    pub major: u32,
    /// The device's minor number.
    pub minor: u32,
    /// Path within the filesystem; `/` except for bind mounts and subvolumes.
    pub root: Cow<'text, [u8]>,
    /// Mount point, with the kernel's octal escapes decoded.
    pub mount_point: Cow<'text, [u8]>,
    pub fs_type: &'text [u8],
    /// Source, as printed by the kernel.
    pub source: &'text [u8],
    /// Mount options, separated by commas.
    pub options: &'text [u8],
    /// Superblock options, separated by commas.
    pub super_options: &'text [u8],
    /// Whether it is read-only: the mount or its superblock is `ro`, or the superblock is
    /// `emergency_ro`.
    pub read_only: bool,
}

/// Parses the mounts in the kernel's order.
pub fn mounts(text: &[u8]) -> impl Iterator<Item = Result<Mount<'_>, ParseError>> {
    text.split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            mount(line).map_err(|expected| ParseError::at(index, expected, &String::from_utf8_lossy(line)))
        })
}

fn mount(line: &[u8]) -> Result<Mount<'_>, &'static str> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = number(words.next().unwrap_or_default()).ok_or("a mount's number")?;
    let _parent = words.next();
    let device = words.next().unwrap_or_default();
    let colon = device
        .iter()
        .position(|byte| *byte == b':')
        .ok_or("MAJOR:MINOR of a device")?;
    let major = number(&device[..colon]).ok_or("MAJOR:MINOR of a device")?;
    let minor = number(&device[colon + 1..]).ok_or("MAJOR:MINOR of a device")?;
    let root = words.next().ok_or("a path within the filesystem")?;
    let mount_point = words
        .next()
        .filter(|path| path.starts_with(b"/"))
        .ok_or("a mount point that starts with /")?;
    let options = words.next().ok_or("mount options")?;
    // Any number of optional fields, ended by a single hyphen.
    words
        .by_ref()
        .find(|word| *word == b"-")
        .ok_or("a hyphen after the optional fields")?;
    let fs_type = words.next().ok_or("a filesystem type")?;
    let source = words.next().ok_or("a mount source")?;
    let super_options = words.next().ok_or("superblock options")?;
    let has =
        |options: &[u8], wanted: &[u8]| options.split(|byte| *byte == b',').any(|option| option == wanted);
    Ok(Mount {
        id,
        major,
        minor,
        root: unescape(root),
        mount_point: unescape(mount_point),
        fs_type,
        source,
        options,
        super_options,
        read_only: has(options, b"ro") || has(super_options, b"ro") || has(super_options, b"emergency_ro"),
    })
}

fn number(word: &[u8]) -> Option<u32> {
    str::from_utf8(word).ok()?.parse().ok()
}

/// Decodes `\` with three octal digits, the kernel's escape for spaces, tabs, line feeds and
/// backslashes.
pub fn unescape(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'\\') {
        return Cow::Borrowed(path);
    }
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &after[3..];
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                          37 36 0:43 / /mnt/a\\040b\\011c\\012d\\134e ro,relatime - nfs4 srv:/x\\040y rw\n";

    #[test]
    fn optional_fields_escapes_and_read_only() {
        let all: Vec<_> = mounts(SAMPLE.as_bytes()).collect::<Result<_, _>>().unwrap();
        assert_eq!((all[0].id, all[0].major, all[0].minor), (36, 98, 0));
        assert_eq!(all[0].mount_point.as_ref(), b"/mnt2");
        assert_eq!(
            (all[0].fs_type, all[0].source),
            (b"ext3".as_slice(), b"/dev/root".as_slice())
        );
        assert!(!all[0].read_only);
        assert_eq!(all[1].mount_point.as_ref(), b"/mnt/a b\tc\nd\\e");
        assert_eq!(all[1].source, b"srv:/x\\040y");
        assert!(all[1].read_only);
    }

    #[test]
    fn read_only_by_mount_superblock_or_emergency() {
        for (options, super_options, read_only) in [
            ("rw", "rw,errors=remount-ro", false),
            ("ro,nosuid", "rw", true),
            ("rw", "ro", true),
            ("rw", "rw,emergency_ro", true),
        ] {
            let line = format!("1 0 8:1 / / {options} - ext4 /dev/a {super_options}");
            let mount = mounts(line.as_bytes()).next().unwrap().unwrap();
            assert_eq!(mount.read_only, read_only, "{line}");
        }
    }

    #[test]
    fn malformed_lines_are_reported() {
        let cut = SAMPLE.len() - 12;
        for (text, line) in [
            (&SAMPLE.as_bytes()[..cut], 2),
            (b"x 35 98:0 / / rw - a b rw", 1),
            (b"1 2 98 / / rw - a b rw", 1),
            (b"\n1 2 9:8 / relative rw - a b rw", 2),
            (b"1 2 9:8 / / rw a b rw", 1),
        ] {
            let error = mounts(text).collect::<Result<Vec<_>, _>>().unwrap_err();
            assert_eq!(error.line, line, "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(mounts(b"").count(), 0);
    }

    #[test]
    fn invalid_utf8_is_accepted() {
        let mount = mounts(b"1 2 9:8 / /\xff\\9 rw - a b rw").next().unwrap().unwrap();
        assert_eq!(mount.mount_point.as_ref(), b"/\xff\\9");
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE), bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = mounts(text.as_bytes()).count();
            let _ = mounts(&bytes).count();
        }
    }
}
