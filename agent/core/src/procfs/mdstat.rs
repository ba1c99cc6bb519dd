//! `/proc/mdstat` (kernel: `drivers/md/md.c`, `md_seq_show`).

use super::{ParseError, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity<'text> {
    Active,
    /// Assembled, but not active.
    Inactive,
    /// Recovering: copies data to a new disk.
    Recovering,
    /// Resyncing: makes the disks consistent.
    Resyncing,
    /// Checking: compares the disks.
    Checking,
    /// Another activity, as the kernel prints it, such as `reshape` or `failed`.
    Other(&'text str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array<'text> {
    /// Name, e.g. `md127`.
    pub name: &'text str,
    pub activity: Activity<'text>,
    /// Number of required disks.
    pub required: u64,
    /// Number of active disks.
    pub active: u64,
    /// Number of failed disks.
    pub failed: u64,
    /// Number of spare disks.
    pub spare: u64,
    /// Size in blocks of 1 KiB.
    pub blocks: u64,
    /// Number of synchronised blocks; all of them if no synchronisation is running.
    pub synced: u64,
}

/// States besides `active` and `inactive`.
const OTHER_STATES: [&str; 2] = ["broken", "failed"];

/// Parses the arrays. An empty line ends an array; the kernel may indent it.
pub fn arrays(text: &str) -> impl Iterator<Item = Result<Array<'_>, ParseError>> {
    let mut lines = text.lines().enumerate().peekable();
    std::iter::from_fn(move || {
        loop {
            let (index, line) = lines.next()?;
            let heading = ["Personalities", "unused devices", "read_ahead"]
                .iter()
                .any(|start| line.starts_with(start));
            if heading || line.trim().is_empty() {
                continue;
            }
            let mut below = Vec::new();
            let is_below = |line: &str| line.starts_with([' ', '\t']) && !line.trim().is_empty();
            while let Some(next) = lines.next_if(|(_, line)| is_below(line)) {
                below.push(next);
            }
            let array = array(index, line, &below);
            // What follows without an empty line may have been a line of the array.
            let behind = lines.peek().filter(|(_, line)| !line.trim().is_empty());
            return Some(match behind {
                None => array,
                Some((index, line)) => {
                    array.and(Err(ParseError::at(*index, "an empty line below an array", line)))
                }
            });
        }
    })
}

fn array<'text>(
    index: usize,
    line: &'text str,
    below: &[(usize, &'text str)],
) -> Result<Array<'text>, ParseError> {
    let expected = |expected, found| ParseError::at(index, expected, found);
    let (name, rest) = line
        .split_once(" : ")
        .filter(|(name, _)| !name.trim().is_empty() && !name.starts_with([' ', '\t']))
        .ok_or_else(|| expected("NAME : STATE", line))?;
    let state = words(rest)
        .next()
        .ok_or_else(|| expected("an array's state", line))?;
    let is_member = |word: &str| word.contains('[') && !word.starts_with('[');
    let members = words(rest).filter(|word| is_member(word)).count() as u64;
    // Without members, the kernel prints no size, and the counts in the line of the array.
    let has_size = |(_, line): &(usize, &str)| line.contains(" blocks");
    let sizeless = members == 0 && !below.first().is_some_and(has_size);
    let (at, status, below) = match below {
        _ if sizeless => (index, rest, below),
        [] => return Err(expected("an array's size", "")),
        [(at, status), below @ ..] => (*at, *status, below),
    };
    let blocks = if sizeless {
        0
    } else {
        let blocks = words(status).next().and_then(|word| word.parse().ok());
        blocks.ok_or_else(|| ParseError::at(at, "an array's size in blocks", status))?
    };
    let (required, active) = if state == "inactive" {
        (0, 0)
    } else if words(rest).any(|word| ["raid0", "linear", "faulty"].contains(&word)) {
        // These have no redundancy, so the kernel prints no counts.
        (members, members)
    } else {
        counts(status).ok_or_else(|| ParseError::at(at, "[DISKS/WORKING] [UU]", status))?
    };
    let mut array = Array {
        name: name.trim(),
        activity: match state {
            "active" => Activity::Active,
            "inactive" => Activity::Inactive,
            _ if OTHER_STATES.contains(&state) => Activity::Other(state),
            _ => return Err(expected("a state of an array", state)),
        },
        required,
        active,
        failed: line.matches("(F)").count() as u64,
        spare: line.matches("(S)").count() as u64,
        blocks,
        synced: blocks,
    };
    for (at, line) in below {
        if line.trim_start().starts_with("bitmap") {
            continue;
        }
        let activity = [
            // `recovery = …`; `recover=REMOTE` if another node of the cluster recovers.
            ("recover", Activity::Recovering),
            ("reshape", Activity::Other("reshape")),
            ("check", Activity::Checking),
            ("resync", Activity::Resyncing),
        ];
        let Some((_, activity)) = activity.into_iter().find(|(word, _)| line.contains(word)) else {
            continue;
        };
        array.activity = activity;
        let waits = ["PENDING", "DELAYED", "REMOTE"]
            .iter()
            .any(|word| line.contains(word));
        array.synced = if waits {
            0
        } else {
            done(line).ok_or_else(|| ParseError::at(*at, "(DONE/ALL)", line))?
        };
        break;
    }
    Ok(array)
}

/// Numbers of required and active disks in `... [2/1] [U_]`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let words = || words(line);
    words().zip(words().skip(1)).find_map(|(counts, map)| {
        let map = map.strip_prefix('[')?.strip_suffix(']')?;
        if map.is_empty() || !map.bytes().all(|b| b == b'U' || b == b'_') {
            return None;
        }
        let (required, active) = counts.strip_prefix('[')?.strip_suffix(']')?.split_once('/')?;
        Some((required.parse().ok()?, active.parse().ok()?))
    })
}

/// Number of finished blocks in `... (16775552/195310144) ...`.
fn done(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once('(')?;
    let (done, all) = rest.split_once(')')?.0.split_once('/')?;
    all.parse::<u64>().ok()?;
    done.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "Personalities : [raid1] [raid6] [raid0]\n\
        md3 : active raid6 sda1[8] sdh1[7] sdg1[6] sdf1[5] sde1[11] sdd1[3] sdc1[10] sdb1[9] sdd1[10](S) sdd2[11](S)\n\
        \x20     5853468288 blocks super 1.2 level 6, 64k chunk, algorithm 2 [8/8] [UUUUUUUU]\n\
        \x20     bitmap: 0/8 pages [0KB], 65536KB chunk\n\n\
        md127 : active (auto-read-only) raid1 sdi2[0] sdj2[1](F)\n\
        \x20     312319552 blocks [2/1] [U_]\n\n\
        md0 : active raid1 sdi1[0] sdj1[1]\n\
        \x20     248896 blocks [2/2] [UU]\n\
        \x20     [=>...................]  recovery =  8.5% (16775552/195310144) finish=17.0min speed=259783K/sec\n\
        \x20     bitmap: 1/2 pages [4KB], 65536KB chunk\n\n\
        md4 : inactive sda3[0](F) sdb3[1](S)\n\
        \x20     4883648 blocks [2/2] [UU]\n\n\
        md6 : active raid1 sdb2[2](F) sdc[1](S) sda2[0]\n\
        \x20     195310144 blocks [2/1] [U_]\n\
        \x20     \tresync=PENDING\n\n\
        md7 : active raid0 sdb1[0] sda1[1]\n\
        \x20     7813735424 blocks super 1.2 256k chunks\n\n\
        md8 : active raid10 sdb1[1] sda1[0]\n\
        \x20     195310144 blocks [2/2] [UU]\n\
        \x20     [=>..]  check =  8.5% (16775552/195310144) finish=17.0min speed=259783K/sec\n\n\
        unused devices: <none>\n";

    #[test]
    fn arrays_and_their_activity() {
        let all: Vec<_> = arrays(SAMPLE).collect::<Result<_, _>>().unwrap();
        let short: Vec<_> = all
            .iter()
            .map(|a| {
                (
                    a.name,
                    a.activity,
                    [a.required, a.active, a.failed, a.spare],
                    a.synced,
                )
            })
            .collect();
        assert_eq!(
            short,
            [
                ("md3", Activity::Active, [8, 8, 0, 2], 5_853_468_288),
                ("md127", Activity::Active, [2, 1, 1, 0], 312_319_552),
                ("md0", Activity::Recovering, [2, 2, 0, 0], 16_775_552),
                ("md4", Activity::Inactive, [0, 0, 1, 1], 4_883_648),
                ("md6", Activity::Resyncing, [2, 1, 1, 1], 0),
                ("md7", Activity::Active, [2, 2, 0, 0], 7_813_735_424),
                ("md8", Activity::Checking, [2, 2, 0, 0], 16_775_552),
            ]
        );
        assert_eq!(all[4].blocks, 195_310_144);
        assert_eq!(arrays("Personalities : \nunused devices: <none>\n").count(), 0);
    }

    #[test]
    fn other_activities_are_shown_as_printed() {
        fn of(text: &str) -> Activity<'_> {
            arrays(text).next().unwrap().unwrap().activity
        }
        let size = "5 blocks [2/2] [UU]";
        assert_eq!(
            of(&format!("md0 : failed raid1 a[0] b[1]\n  {size}\n")),
            Activity::Other("failed")
        );
        let reshape = format!("md0 : active raid5 a[0] b[1]\n  {size}\n  [>.]  reshape =  1.0% (1/5)\n");
        assert_eq!(of(&reshape), Activity::Other("reshape"));
    }

    #[test]
    fn arrays_without_members_or_counts_and_remote_recovery() {
        let text = "md0 : inactive super 1.2\n       \n\
            md1 : active raid1 super 1.2 [2/0] [__]\n      \tresync=PENDING\n      \n\
            md2 : active faulty sda1[0]\n      5 blocks super 1.2 nfaults=0\n      \n\
            md3 : active raid1 sdb[1] sdc[0]\n      7 blocks super 1.2 [2/1] [U_]\n      \trecover=REMOTE\n      \n";
        let all: Vec<_> = arrays(text).collect::<Result<_, _>>().unwrap();
        let short: Vec<_> = all
            .iter()
            .map(|a| (a.name, a.activity, [a.required, a.active], [a.blocks, a.synced]))
            .collect();
        assert_eq!(
            short,
            [
                ("md0", Activity::Inactive, [0, 0], [0, 0]),
                ("md1", Activity::Resyncing, [2, 0], [0, 0]),
                ("md2", Activity::Active, [1, 1], [5, 5]),
                ("md3", Activity::Recovering, [2, 1], [7, 0]),
            ]
        );
    }

    #[test]
    fn malformed_lines_are_reported() {
        for (text, line) in [
            ("md0", 1),
            ("md0 : active raid1", 1),
            ("md0 : check raid1 a[1] b[0]\n  5 blocks [2/1] [U_]\n", 1),
            ("md0 : raid1 a[1] b[0]\n  5 blocks [2/1] [U_]\n", 1),
            ("  md0 : active raid1 a[1] b[0]\n  5 blocks [2/1] [U_]\n", 1),
            ("\u{c} : active raid1 a[1] b[0]\n  5 blocks [2/1] [U_]\n", 1),
            ("md0 : active raid1 a[0]", 1),
            ("\nmd0 : active raid1 a[0]\n  many blocks [1/1] [U]", 3),
            ("md0 : active raid1 a[0]\n  5 blocks [1/x] [U]", 2),
            (
                "md0 : active raid1 a[0]\n  5 blocks [1/1] [U]\n  resync = 1% (x/5)",
                3,
            ),
            (
                "md0 : active raid1 a[0]\n  5 blocks [1/1] [U]\nnoise\n  resync = 1% (1/5)",
                3,
            ),
        ] {
            let error = arrays(text).collect::<Result<Vec<_>, _>>().unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
            // The arrays around it are found.
            let around = format!("{SAMPLE}{text}\n{SAMPLE}");
            assert_eq!(arrays(&around).flatten().count(), 14, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = arrays(&text).count();
        }
    }
}
