//! Everything that a disk may hold that is not ours, and how it gets there.

use std::path::Path;

use super::bytes;

/// How it gets onto the disk.
pub(crate) enum Make {
    /// A shell script: `$D` is the device, `$T` a folder with a folder `dir` of files, and a `key`.
    Sh(&'static str),
    /// Bytes at their offsets, by the disk's size: formats that a tool creates only with the help
    /// of the kernel, or for which there is no tool here.
    Bytes(fn(u64) -> Vec<(u64, Vec<u8>)>),
}

/// What is to be found.
pub(crate) enum Found {
    /// This kind, alone or among others.
    Kind(&'static str),
    /// Unknown bytes, the first of them at this offset or after.
    Bytes(u64),
    /// Anything but nothing: whether a tool knows it is that tool's affair.
    Any,
}

/// A kind of content.
pub(crate) struct Foreign {
    pub(crate) name: &'static str,
    pub(crate) found: Found,
    /// The least and the greatest size in MiB for which its tool makes it.
    pub(crate) sizes: (u64, u64),
    pub(crate) make: Make,
}

/// Programs of the scripts, for `skip::need`.
pub(crate) const PROGRAMS: &[&str] = &[
    "blkid",
    "cryptsetup",
    "dd",
    "genisoimage",
    "genromfs",
    "hformat",
    "make-bcache",
    "mkfs.bfs",
    "mkfs.btrfs",
    "mkfs.cramfs",
    "mkfs.erofs",
    "mkfs.exfat",
    "mkfs.ext4",
    "mkfs.f2fs",
    "mkfs.gfs2",
    "mkfs.jfs",
    "mkfs.minix",
    "mkfs.nilfs2",
    "mkfs.ntfs",
    "mkfs.ocfs2",
    "mkfs.reiser4",
    "mkfs.reiserfs",
    "mkfs.vfat",
    "mkfs.xfs",
    "mksquashfs",
    "mkswap",
    "mkudffs",
    "pvcreate",
    "sfdisk",
    "sgdisk",
    "sqlite3",
];

const ANY: (u64, u64) = (0, u64::MAX);

const fn sh(name: &'static str, kind: &'static str, script: &'static str) -> Foreign {
    sized(name, kind, ANY, script)
}

const fn sized(name: &'static str, kind: &'static str, sizes: (u64, u64), script: &'static str) -> Foreign {
    Foreign {
        name,
        found: Found::Kind(kind),
        sizes,
        make: Make::Sh(script),
    }
}

const fn rest(name: &'static str, first: u64, sizes: (u64, u64), script: &'static str) -> Foreign {
    Foreign {
        name,
        found: Found::Bytes(first),
        sizes,
        make: Make::Sh(script),
    }
}

const fn known(name: &'static str, kind: &'static str, make: fn(u64) -> Vec<(u64, Vec<u8>)>) -> Foreign {
    Foreign {
        name,
        found: Found::Kind(kind),
        sizes: ANY,
        make: Make::Bytes(make),
    }
}

const fn some(name: &'static str, make: fn(u64) -> Vec<(u64, Vec<u8>)>) -> Foreign {
    Foreign {
        name,
        found: Found::Any,
        sizes: ANY,
        make: Make::Bytes(make),
    }
}

const fn raw(name: &'static str, first: u64, make: fn(u64) -> Vec<(u64, Vec<u8>)>) -> Foreign {
    Foreign {
        name,
        found: Found::Bytes(first),
        sizes: ANY,
        make: Make::Bytes(make),
    }
}

const MIB: u64 = 1 << 20;

/// The table.
pub(crate) const FOREIGN: &[Foreign] = &[
    // Filesystems.
    sh("ext2", "ext2", "mkfs.ext2 -q $D"),
    sh("ext3", "ext3", "mkfs.ext3 -q $D"),
    sh("ext4", "ext4", "mkfs.ext4 -q $D"),
    sh("ext4 with blocks of 1 KiB", "ext4", "mkfs.ext4 -q -b 1024 $D"),
    sh("ext4's journal alone", "jbd", "mke2fs -q -O journal_dev $D"),
    sized("xfs", "xfs", (300, u64::MAX), "mkfs.xfs -q $D"),
    sized("btrfs", "btrfs", (110, u64::MAX), "mkfs.btrfs -q $D"),
    sh("btrfs mixed", "btrfs", "mkfs.btrfs -q --mixed $D"),
    sh("f2fs", "f2fs", "mkfs.f2fs -q $D"),
    sized("nilfs2", "nilfs2", (129, u64::MAX), "mkfs.nilfs2 -q $D"),
    sh("jfs", "jfs", "mkfs.jfs -q $D"),
    sh("reiserfs", "reiserfs", "mkfs.reiserfs -q -f -f $D"),
    sh("reiser4", "reiser4", "mkfs.reiser4 -y -f $D"),
    sh("ntfs", "ntfs", "mkfs.ntfs -F -Q -q $D"),
    sized("vfat 12", "vfat", (0, 255), "mkfs.vfat -I -F 12 -s 128 $D"),
    sized("vfat 16", "vfat", (257, 4095), "mkfs.vfat -I -F 16 -s 128 $D"),
    sh("vfat 32", "vfat", "mkfs.vfat -I -F 32 $D"),
    sh("exfat", "exfat", "mkfs.exfat $D"),
    sh("squashfs", "squashfs", "mksquashfs $T/dir $D -noappend -quiet"),
    sh("erofs", "erofs", "mkfs.erofs $D $T/dir"),
    sh("udf", "udf", "mkudffs $D"),
    sh(
        "ocfs2",
        "ocfs2",
        "mkfs.ocfs2 -q -M local --fs-features=local -F $D",
    ),
    sh("gfs2", "gfs2", "mkfs.gfs2 -O -q -p lock_nolock -j 1 -J 8 $D"),
    sh("minix 1", "minix", "mkfs.minix -1 $D"),
    sh("minix 3", "minix", "mkfs.minix -3 $D"),
    sh(
        "cramfs",
        "cramfs",
        "mkfs.cramfs $T/dir $T/i; dd if=$T/i of=$D conv=notrunc,fsync",
    ),
    sh(
        "romfs",
        "romfs",
        "genromfs -d $T/dir -f $T/i; dd if=$T/i of=$D conv=notrunc,fsync",
    ),
    sh("bfs", "bfs", "mkfs.bfs $D"),
    sh("hfs", "hfs", "hformat -f -l x $D"),
    known("hfs+", "hfsplus", bytes::hfsplus),
    known("apfs", "apfs", bytes::apfs),
    some("befs", bytes::befs),
    some("ufs", bytes::ufs),
    some("bcachefs", bytes::bcachefs),
    known("oracleasm", "oracleasm", bytes::oracleasm),
    some("vxfs", bytes::vxfs),
    // Swap.
    sh("swap", "swap", "mkswap $D"),
    known("swap of old", "swap", bytes::swap_old),
    known("a suspended machine", "swsuspend", bytes::suspended),
    // Discs, and KubeVirt's configuration disks.
    sh(
        "iso9660",
        "iso9660",
        "genisoimage -quiet -R -V x -o $T/i $T/dir; dd if=$T/i of=$D conv=notrunc,fsync",
    ),
    sh(
        "iso9660 hybrid",
        "iso9660",
        "genisoimage -quiet -R -o $T/i $T/dir; dd if=$T/i of=$D conv=notrunc,fsync; echo ',,83' | sfdisk -q --force $D",
    ),
    sh(
        "cidata as iso",
        "iso9660",
        "genisoimage -quiet -J -R -V cidata -o $T/i $T/dir; dd if=$T/i of=$D conv=notrunc,fsync",
    ),
    sh("cidata as vfat", "vfat", "mkfs.vfat -I -n CIDATA $D"),
    sh(
        "config-2",
        "iso9660",
        "genisoimage -quiet -J -R -V config-2 -o $T/i $T/dir; dd if=$T/i of=$D conv=notrunc,fsync",
    ),
    sh(
        "cfgdata",
        "iso9660",
        "genisoimage -quiet -J -R -V cfgdata -o $T/i $T/dir; dd if=$T/i of=$D conv=notrunc,fsync",
    ),
    known("downward metrics", "mvbd", bytes::mvbd),
    // Volumes.
    sh(
        "luks1",
        "crypto_LUKS",
        "cryptsetup -q luksFormat --type luks1 --pbkdf-force-iterations 1000 --key-file $T/key $D",
    ),
    sh(
        "luks2",
        "crypto_LUKS",
        "cryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file $T/key $D",
    ),
    rest(
        "luks2 without its first header",
        0,
        ANY,
        "cryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file $T/key $D; dd if=/dev/zero of=$D bs=4096 count=1 conv=notrunc,fsync; dd if=/dev/zero of=$D bs=4096 seek=4 count=1 conv=notrunc,fsync",
    ),
    sh(
        "lvm",
        "LVM2_member",
        "pvcreate -y --config 'devices{use_devicesfile=0 external_device_info_source=none} activation{udev_sync=0 udev_rules=0}' $D",
    ),
    sh("bcache, backing", "bcache", "make-bcache -B $D"),
    sh("bcache, cache", "bcache", "make-bcache -C $D"),
    known("md 0.90", "linux_raid_member", bytes::md_0_90),
    known("md 1.0", "linux_raid_member", bytes::md_1_0),
    known("md 1.1", "linux_raid_member", bytes::md_1_1),
    known("md 1.2", "linux_raid_member", bytes::md_1_2),
    known("zfs", "zfs_member", bytes::zfs),
    known("drbd", "drbd", bytes::drbd),
    known("vmfs volume", "VMFS_volume_member", bytes::vmfs_volume),
    some("vmfs", bytes::vmfs),
    some("bitlocker", bytes::bitlocker),
    some("vdo", bytes::vdo),
    some("stratis", bytes::stratis),
    some("ceph bluestore", bytes::bluestore),
    known("intel raid", "isw_raid_member", bytes::isw),
    known("ddf raid", "ddf_raid_member", bytes::ddf),
    // Partition tables.
    sh("mbr", "dos", "echo ',,83' | sfdisk -q $D"),
    sh(
        "mbr without partitions",
        "dos",
        "echo 'label: dos' | sfdisk -q $D",
    ),
    sh("gpt", "gpt", "sgdisk -n 1:0:0 $D"),
    sh("hybrid gpt", "gpt", "sgdisk -n 1:0:0 $D; sgdisk -h 1 $D"),
    sh(
        "gpt's backup alone",
        "gpt",
        "sgdisk -n 1:0:0 $D; dd if=/dev/zero of=$D bs=512 count=34 conv=notrunc,fsync",
    ),
    sh(
        "gpt without its mbr",
        "gpt",
        "sgdisk -n 1:0:0 $D; dd if=/dev/zero of=$D bs=512 count=1 conv=notrunc,fsync",
    ),
    sh("sun label", "sun", "echo 'label: sun' | sfdisk -q $D"),
    sh("sgi label", "sgi", "echo 'label: sgi' | sfdisk -q $D"),
    // Several at once.
    sh(
        "xfs's remains under ext4",
        "ext4",
        "mkfs.ext4 -q $D; printf XFSB | dd of=$D conv=notrunc,fsync",
    ),
    sh(
        "swap's remains over ext4",
        "ext4",
        "mkfs.ext4 -q $D; printf SWAPSPACE2 | dd of=$D bs=1 seek=4086 conv=notrunc,fsync",
    ),
    // What programs keep on raw disks.
    rest(
        "sqlite database",
        0,
        ANY,
        "rm -f $T/i; sqlite3 $T/i 'create table t (x); insert into t values (1)'; dd if=$T/i of=$D conv=notrunc,fsync",
    ),
    raw("page of a database", 38, bytes::database_page),
    rest("tar archive", 0, ANY, "tar -C $T -cf $D dir"),
    // What a clumsy wipe leaves.
    rest(
        "ext4 without its first MiB",
        MIB,
        ANY,
        "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 $D; dd if=/dev/zero of=$D bs=1M count=1 conv=notrunc,fsync",
    ),
    rest(
        "xfs without its first MiB",
        MIB,
        (300, u64::MAX),
        "mkfs.xfs -q $D; dd if=/dev/zero of=$D bs=1M count=1 conv=notrunc,fsync",
    ),
    rest(
        "btrfs without its first MiB",
        MIB,
        (110, u64::MAX),
        "mkfs.btrfs -q $D; dd if=/dev/zero of=$D bs=1M count=1 conv=notrunc,fsync",
    ),
    rest(
        "ext4 without its first 16 MiB",
        16 * MIB,
        ANY,
        "mkfs.ext4 -q $D; dd if=/dev/zero of=$D bs=1M count=16 conv=notrunc,fsync",
    ),
    rest(
        "xfs without its first 16 MiB",
        16 * MIB,
        (300, u64::MAX),
        "mkfs.xfs -q $D; dd if=/dev/zero of=$D bs=1M count=16 conv=notrunc,fsync",
    ),
    rest(
        "btrfs without its first 16 MiB",
        16 * MIB,
        (110, u64::MAX),
        "mkfs.btrfs -q $D; dd if=/dev/zero of=$D bs=1M count=16 conv=notrunc,fsync",
    ),
    // Bytes at odd places.
    raw("the first byte", 0, |_| vec![(0, vec![1])]),
    raw("the last byte of the first block", 511, |_| vec![(511, vec![1])]),
    raw("a byte in the second page", 4097, |_| vec![(4097, vec![0x80])]),
    raw("the last byte of the first MiB", MIB - 1, |_| {
        vec![(MIB - 1, vec![1])]
    }),
    raw("the last byte of the first 16 MiB", 16 * MIB - 1, |_| {
        vec![(16 * MIB - 1, vec![1])]
    }),
    raw("the first byte of the last 16 MiB", 16 * MIB, |size| {
        vec![(size - 16 * MIB, vec![1])]
    }),
    raw("the last byte", 16 * MIB, |size| vec![(size - 1, vec![1])]),
];

/// What the scripts need in `$T`.
pub(crate) fn furnish(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(folder.join("dir"))?;
    std::fs::write(folder.join("dir/meta-data"), "instance-id: x\n")?;
    std::fs::write(folder.join("dir/user-data"), "#cloud-config\n")?;
    std::fs::write(folder.join("key"), "key")?;
    Ok(())
}
