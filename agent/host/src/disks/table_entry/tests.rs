use super::*;

fn entry(lines: &[(&str, &str)]) -> Option<TableEntry> {
    TableEntry::parse(lines.iter().copied())
}

#[test]
fn the_formats_of_blkid_and_udev_are_parsed() {
    let gpt = |name| {
        entry(&[
            ("SCHEME", "gpt"),
            ("NAME", name),
            ("UUID", "436278E6-EC18-6147-B5FB-95B948393267"),
            ("TYPE", "0fc63daf-8483-4772-8e79-3d69d8477de4"),
            ("FLAGS", "0x1000000000000000"),
            ("NUMBER", "3"),
            ("OFFSET", "337920"),
            ("SIZE", "274432"),
            ("DISK", "7:0"),
        ])
        .unwrap()
    };
    for name in ["blank\\ part", "blank\\x20part", "blank part"] {
        let entry = gpt(name);
        assert_eq!(entry.label.as_deref(), Some("blank part"));
        assert_eq!(
            entry.uuid.as_deref(),
            Some("436278e6-ec18-6147-b5fb-95b948393267")
        );
        assert_eq!(entry.attributes, 1 << 60);
        assert_eq!(entry.differs(3, 337_920 * 512, 274_432 * 512), None);
        assert!(entry.differs(4, 337_920 * 512, 274_432 * 512).is_some());
        assert!(entry.differs(3, 337_921 * 512, 274_432 * 512).is_some());
        assert!(entry.differs(3, 337_920 * 512, 274_431 * 512).is_some());
    }
    let mbr = entry(&[
        ("SCHEME", "dos"),
        ("UUID", "fb705cfa-02"),
        ("TYPE", "0x83"),
        ("FLAGS", "0x80"),
        ("NUMBER", "2"),
    ]);
    let mbr = mbr.unwrap();
    assert_eq!((mbr.kind.as_str(), mbr.attributes), ("0x83", 0));
    assert!(
        mbr.differs(2, 512, 512).is_some(),
        "without a place no entry matches"
    );
    assert_eq!(entry(&[("SCHEME", "gpt")]), None);
    let malformed = [
        ("SCHEME", "gpt"),
        ("UUID", "a"),
        ("FLAGS", "odd"),
        ("SIZE", "18446744073709551615"),
    ];
    let malformed = entry(&malformed).unwrap();
    assert_eq!((malformed.attributes, malformed.size), (u64::MAX, None));
}

#[test]
fn escapes_are_resolved_and_never_panic() {
    for (text, plain) in [
        ("a\\x20b", "a b"),
        ("a\\ b", "a b"),
        ("a\\\\", "a\\"),
        ("a\\", "a"),
        ("a\\x2", "ax2"),
        ("a\\xzz", "axzz"),
        ("\\x", "x"),
        ("\\x\u{e4}", "x\u{e4}"),
    ] {
        assert_eq!(unescaped(text), plain, "{text}");
    }
}
