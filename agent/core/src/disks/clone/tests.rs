use proptest::prelude::*;

use super::{samples::*, *};

fn judged(clone: Vec<u8>, root: Vec<u8>) -> Result<CloneProof, Vec<Deviation>> {
    let sector = Sector {
        clone: 512,
        root: 512,
        root_name: "vda",
    };
    let judged = judge(&mut Memory(clone), &mut Memory(root), sector, &first_boot());
    judged.map_err(|error| match error {
        NotProven::Deviates(deviations) => deviations,
        NotProven::Unreadable(reason) => panic!("{reason}"),
    })
}

/// Judges a changed image, and returns its deviations as text.
fn refused(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut clone = image();
    change(&mut clone);
    let deviations = judged(clone, root()).unwrap_err();
    let sentences: Vec<String> = deviations.iter().map(Deviation::sentence).collect();
    sentences.join("\n")
}

#[test]
fn untouched_clone_is_accepted() {
    for more in [0, 4096, 1 << 20] {
        let mut clone = image();
        clone.resize(IMAGE + more, 0);
        let proof = judged(clone, root()).unwrap();
        assert_eq!((proof.image_bytes, proof.behind), (IMAGE as u64, more as u64));
        assert_eq!(proof.partitions.len(), 3);
        assert!(proof.partitions[2].because.contains("inode 12"), "{proof:?}");
        assert!(proof.partitions[1].because.contains("every byte"), "{proof:?}");
    }
    let never_mounted = |bytes: &mut Vec<u8>| {
        put(bytes, field(0x2c), &[0; 4]);
        put(bytes, field(0x34), &[0; 2]);
        seal(bytes);
    };
    let mut clone = image();
    never_mounted(&mut clone);
    let proof = judged(clone, root()).unwrap();
    assert!(proof.partitions[2].because.contains("never mounted"), "{proof:?}");
}

#[test]
fn digest_covers_tables_superblocks_and_size() {
    let digest = |clone: Vec<u8>| judged(clone, root()).unwrap().digest;
    let same = digest(image());
    assert_eq!((same.len(), digest(image())), (64, same.clone()));
    let mut larger = image();
    larger.resize(IMAGE + 4096, 0);
    let mut written = image();
    put(&mut written, field(0x178), &4999_u32.to_le_bytes());
    seal(&mut written);
    for other in [larger, written] {
        assert_ne!(digest(other), same);
    }
}

#[test]
fn changed_superblock_fields_are_refused() {
    let late = u32::try_from(FIRST_BOOT).unwrap().to_le_bytes();
    let changed: [(usize, &[u8], &str); 14] = [
        (0x2c, &late, "last mount"),
        (0x30, &late, "last write"),
        (0x34, &[6, 0], "mount count"),
        (0x34, &[7, 0], "mount count"),
        (0x2c, &[0; 4], "mount count"),
        (0x3a, &[0, 0], "state"),
        (0x3a, &[3, 0], "state"),
        (0x194, &[1, 0, 0, 0], "state"),
        (0xe8, &[12, 0, 0, 0], "state"),
        (0x60, &[0x46, 0, 0, 0], "needs recovery"),
        (0x68, &[1], "UUID"),
        (0x108, &[1], "creation time"),
        (0x178, &9001_u32.to_le_bytes(), "KiB written"),
        (0x58, &[128, 0], "geometry"),
    ];
    for (at, value, word) in changed {
        let text = refused(|clone| {
            put(clone, field(at), value);
            seal(clone);
        });
        assert!(text.contains(word), "{at:#x}: {text}");
    }
    // A wrong checksum, and an unknown layout.
    assert!(refused(|clone| put(clone, field(0x30), &[0])).contains("checksum"));
    for (at, value) in [(0x18, 9_u8), (0x60, 0x52), (0x20, 0), (0x28, 0), (0x4, 0xff)] {
        let text = refused(|clone| {
            put(clone, field(at), &[value, if at == 0x4 { 0xff } else { 0 }, 0, 0]);
            seal(clone);
        });
        assert!(text.contains("it cannot be judged"), "{at:#x}: {text}");
    }
}

#[test]
fn mount_after_cloning_is_detected_at_any_time() {
    // Another VM mounted it: after the newest file of the image, and before the first boot of this
    // VM.
    for mounted in [
        BUILT + 16,
        BUILT + 100_000,
        u32::try_from(FIRST_BOOT).unwrap() - 1,
    ] {
        let text = refused(|clone| {
            put(clone, field(0x2c), &mounted.to_le_bytes());
            put(clone, field(0x34), &5_u16.to_le_bytes());
            // A file that was written then is not on the root disk, so it does not count.
            put(clone, inode(12) + 0xc, &(mounted + 1).to_le_bytes()[..]);
            put(clone, field(0x30), &mounted.to_le_bytes());
            seal(clone);
        });
        assert!(
            text.contains("may have been mounted") || text.contains("after this VM's first boot"),
            "{mounted}: {text}"
        );
    }
    // Files changed in the second of the mount prove nothing.
    let text = refused(|clone| {
        put(clone, field(0x2c), &(BUILT + 15).to_le_bytes());
        seal(clone);
    });
    assert!(text.contains("may have been mounted"), "{text}");
    // Without a common file there is no proof.
    let text = refused(|clone| {
        for number in FIRST_INODE..FIRST_INODE + 5 {
            clone[inode(number) + 0x84] ^= 4;
        }
    });
    assert!(text.contains("may have been mounted"), "{text}");
    let text = refused(|clone| {
        let late = u32::try_from(FIRST_BOOT).unwrap() + 1;
        put(clone, inode(13) + 0xc, &late.to_le_bytes());
    });
    assert!(text.contains("inode 13"), "{text}");
}

#[test]
fn unusable_root_disk_leads_to_refusal() {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut root = root();
        change(&mut root);
        let deviations = judged(image(), root).unwrap_err();
        deviations[0].sentence()
    };
    assert!(with(&|root| root[512] = 0).contains("root disk"));
    assert!(with(&|root| put(root, field(0x38), &[0, 0])).contains("partition 3"));
    assert!(with(&|root| root[FAT.0 + 6000] ^= 1).contains("partition 2"));
    let mounted_as_often = with(&|root| {
        put(root, field(0x34), &4_u16.to_le_bytes());
        seal(root);
    });
    assert!(mounted_as_often.contains("mount count"), "{mounted_as_often}");
    let sector = Sector {
        clone: 4096,
        root: 512,
        root_name: "vda",
    };
    let found = judge(&mut Memory(image()), &mut Memory(root()), sector, &first_boot());
    let Err(NotProven::Deviates(found)) = found else {
        panic!("{found:?}");
    };
    assert!(found[0].field.contains("block size"));
}

/// Fields of the protective entry with the size of the disk: tools write different values there.
fn size_fields(at: usize) -> bool {
    (447..450).contains(&at) || (451..454).contains(&at) || (458..462).contains(&at)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Every change of a byte outside of the filesystem's own blocks is refused.
    #[test]
    fn changed_bytes_outside_the_filesystem_are_refused(
        near in prop_oneof![0_usize..40 * SECTOR, IMAGE - 40 * SECTOR..IMAGE, 0..IMAGE, FAT.0..FAT.0 + 1024],
        with in 1_u8..,
    ) {
        let inside = EXT4.0..EXT4.0 + (1 << 20);
        prop_assume!(!size_fields(near) && !inside.contains(&near));
        let mut clone = image();
        clone[near] ^= with;
        // 0x80 marks the protective entry as active, which some firmware needs.
        prop_assume!(near != 446 || clone[446] != 0x80);
        prop_assert!(judged(clone, root()).is_err(), "byte {near} ^ {with:#x}");
    }

    /// Any content is judged without a panic.
    #[test]
    fn corrupted_images_are_refused(changes in proptest::collection::vec((0..IMAGE, any::<u8>()), 1..40), there in any::<bool>()) {
        let (mut clone, mut other) = (image(), root());
        let target = if there { &mut other } else { &mut clone };
        for (at, byte) in changes {
            // Change tables and superblocks more often than random offsets would.
            let at = match at % 3 {
                0 => at % (40 * SECTOR),
                1 => EXT4.0 + at % 8192,
                _ => at,
            };
            target[at] = byte;
        }
        seal(&mut clone);
        seal(&mut other);
        let sector = Sector { clone: 512, root: 512, root_name: "vda" };
        drop(judge(&mut Memory(clone), &mut Memory(other), sector, &first_boot()));
    }

    #[test]
    fn truncated_disks_are_refused(length in 0..IMAGE, there in 0..IMAGE) {
        let (mut clone, mut other) = (image(), root());
        clone.truncate(length);
        other.truncate(there);
        let sector = Sector { clone: 512, root: 512, root_name: "vda" };
        let found = judge(&mut Memory(clone), &mut Memory(other), sector, &first_boot());
        prop_assert!(found.is_err());
    }
}
