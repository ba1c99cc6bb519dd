use super::*;
use crate::disks::fixtures::{FOREIGN, swap, wanted};

fn line(wanted: &Wanted) -> String {
    let (program, arguments) = arguments(wanted, FOREIGN);
    format!("{program} {}", arguments.join(" "))
}

#[test]
fn arguments_have_the_uuid_and_no_force_flag() {
    let of = |filesystem| Wanted {
        filesystem,
        ..wanted("data")
    };
    for (disk, expected) in [
        (
            of(DiskFilesystem::Ext4),
            format!("mkfs.ext4 -q -U {FOREIGN} -m 0 -E nodiscard"),
        ),
        (
            of(DiskFilesystem::Xfs),
            format!("mkfs.xfs -q -K -m uuid={FOREIGN}"),
        ),
        (
            of(DiskFilesystem::Btrfs),
            format!("mkfs.btrfs -q -K -U {FOREIGN}"),
        ),
        (swap("data"), format!("mkswap -U {FOREIGN}")),
    ] {
        assert_eq!(line(&disk), expected);
        let labelled = Wanted {
            label: Some("box".into()),
            ..disk
        };
        assert_eq!(line(&labelled), format!("{expected} -L box"));
    }
    let (program, arguments) = luks_arguments(FOREIGN);
    assert_eq!((program, arguments[0].as_str()), ("cryptsetup", "luksFormat"));
    assert!(arguments.contains(&FOREIGN.to_owned()));
}

#[test]
fn user_arguments_come_last_and_override_nothing() {
    let strings = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
    let disk = Wanted {
        reserved_percent: Some(3),
        mkfs_options: strings(&["-E", "stride=16", "-i", "65536", "-Elazy_itable_init=0"]),
        ..wanted("data")
    };
    assert_eq!(
        line(&disk),
        format!("mkfs.ext4 -q -U {FOREIGN} -m 3 -E nodiscard,stride=16,lazy_itable_init=0 -i 65536")
    );
}

#[test]
fn user_arguments_are_validated() {
    use DiskFilesystem::{Btrfs, Ext4, Swap, Xfs};
    for (filesystem, options, good) in [
        (Ext4, &[][..], true),
        (Ext4, &["-O", "^has_journal,metadata_csum"], true),
        (Ext4, &["-i65536", "-b", "4096"], true),
        (Ext4, &["-J", "size=64"], true),
        (Ext4, &["-E", "lazy_itable_init=0,stride=16"], true),
        (Ext4, &["-F"], false),
        (Ext4, &["-FF"], false),
        (Ext4, &["-n"], false),
        (Ext4, &["-S"], false),
        (Ext4, &["-U", FOREIGN], false),
        (Ext4, &["-L", "x"], false),
        (Ext4, &["-m", "5"], false),
        (Ext4, &["-d", "/root"], false),
        (Ext4, &["-J", "device=UUID=1"], false),
        (Ext4, &["-J", "size=64,device=LABEL=x"], false),
        (Ext4, &["-O", "journal_dev"], false),
        (Ext4, &["-E", "offset=4096"], false),
        (Ext4, &["-Eoffset=4096"], false),
        (Ext4, &["-E", "stride=16, offset=1"], false),
        (Ext4, &["-E", "discard"], false),
        (Ext4, &["/dev/vdc"], false),
        (Ext4, &["-b", "/dev/vdc"], false),
        (Ext4, &["vdc"], false),
        (Ext4, &["-b"], false),
        (Ext4, &["-b", "-F"], false),
        (Ext4, &["-b", ""], false),
        (Ext4, &["-qF"], false),
        (Ext4, &["--"], false),
        (Xfs, &["-i", "size=512"], true),
        (Xfs, &["-d", "agcount=8", "-m", "reflink=0"], true),
        (Xfs, &["-f"], false),
        (Xfs, &["-N"], false),
        (Xfs, &["-d", "file=1,name=x"], false),
        (Xfs, &["-d", "size=1g"], false),
        (Xfs, &["-l", "logdev=vdc"], false),
        (Xfs, &["-m", "crc=1,uuid=1"], false),
        (Xfs, &["-r", "rtdev=vdc"], false),
        (Xfs, &["-p", "proto"], false),
        (Xfs, &["-c", "options=x"], false),
        (Btrfs, &["--nodesize", "16384"], true),
        (Btrfs, &["--nodesize=16384"], true),
        (Btrfs, &["--nodesizes=16384"], false),
        (Btrfs, &["-f"], false),
        (Btrfs, &["--force"], false),
        (Btrfs, &["-r", "dir"], false),
        (Btrfs, &["-b", "1g"], false),
        (Btrfs, &["-U", "x"], false),
        (Swap, &["--pagesize", "4096"], true),
        (Swap, &["-f"], false),
        (Swap, &["-c"], false),
        (Swap, &["-o", "4096"], false),
        (Swap, &["--lock=yes"], false),
    ] {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let objection = objection(filesystem, &options);
        assert_eq!(
            objection.is_none(),
            good,
            "{filesystem:?} {options:?}: {objection:?}"
        );
    }
}
