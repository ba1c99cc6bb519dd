use proptest::prelude::*;

use super::*;

/// A network device of Firecracker on Linux 6.18.
const NET: &str = "11000101101110110000000000000100100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\n";
/// A disk on Linux 5.10.
const DISK: &str = "0010001001100100000000000000110010000000000000000000000000000000\n";

#[test]
fn sysfs_lines_of_old_and_new_kernels() {
    let net = Features::of_sysfs(NET).unwrap();
    assert_eq!(
        net.names(Kind::NET),
        [
            "CSUM",
            "GUEST_CSUM",
            "MAC",
            "GUEST_TSO4",
            "GUEST_TSO6",
            "GUEST_UFO",
            "HOST_TSO4",
            "HOST_TSO6",
            "HOST_UFO",
            "MRG_RXBUF",
            "EVENT_IDX",
            "VERSION_1"
        ]
    );
    assert!(net.has(net::CSUM) && net.has(net::MRG_RXBUF) && net.has(transport::EVENT_IDX));
    assert!(!net.has(transport::INDIRECT_DESC) && !net.has(net::MQ));
    assert_eq!(net.to_sysfs(128), NET.trim());
    let disk = Features::of_sysfs(DISK).unwrap();
    assert_eq!(
        disk.names(Kind::BLOCK),
        [
            "SEG_MAX",
            "BLK_SIZE",
            "FLUSH",
            "TOPOLOGY",
            "DISCARD",
            "INDIRECT_DESC",
            "EVENT_IDX",
            "VERSION_1"
        ]
    );
    assert_eq!(disk.to_sysfs(64), DISK.trim());
    assert_eq!(Features::of_sysfs(&"0".repeat(64)).unwrap(), Features::default());
    assert_eq!(Features::of_sysfs(&"1".repeat(128)).unwrap().0, u128::MAX);
}

#[test]
fn malformed_lines_report_the_found_text() {
    for text in [
        "",
        "0x1",
        &"0".repeat(63),
        &"1".repeat(129),
        &"2".repeat(64),
        &"é".repeat(32),
    ] {
        let error = Features::of_sysfs(text).unwrap_err();
        assert_eq!(error.found, text.chars().take(40).collect::<String>());
        assert!(
            error.to_string().starts_with("expected 64 or 128 characters"),
            "{error}"
        );
    }
}

#[test]
fn offered_bits_are_parsed() {
    let offered = Features::of_debugfs("0\n5\n22\n28\n32\n127\n").unwrap();
    assert_eq!(offered.bits().collect::<Vec<_>>(), [0, 5, 22, 28, 32, 127]);
    assert_eq!(offered, Features::of([0, 5, 22, 28, 32, 127]));
    assert_eq!(Features::of_debugfs("").unwrap(), Features(0));
    for text in ["128", "x", "1 2", "-1", "0\n\n1x"] {
        assert!(Features::of_debugfs(text).is_err(), "{text:?}");
    }
}

#[test]
fn bit_names_are_unique() {
    let kinds = (0..100).map(Kind);
    for kind in kinds {
        let all = Features(u128::MAX).names(kind);
        let mut once = all.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), all.len(), "{kind:?}");
    }
    assert_eq!(bit_name(Kind::NET, 22), Some("MQ"));
    assert_eq!(bit_name(Kind::BLOCK, 12), Some("MQ"));
    assert_eq!(bit_name(Kind(77), 29), Some("EVENT_IDX"));
    assert_eq!(Features::of([44]).names(Kind::NET), ["bit 44"]);
    assert_eq!(
        Features::of([44, 128, u32::MAX]).without(44).without(500),
        Features(0)
    );
}

#[test]
fn features_are_serialised_as_text() {
    let one = Features::of([0, 32, 100]);
    let json = serde_json::to_string(&one).unwrap();
    assert_eq!(json, "\"0x10000000000000000100000001\"");
    assert_eq!(serde_json::from_str::<Features>(&json).unwrap(), one);
    for json in ["5", "\"5\"", "\"0x\"", "\"0x+1\"", "\"0xg\"", "null"] {
        let error = serde_json::from_str::<Features>(json).unwrap_err();
        assert!(error.to_string().contains("hexadecimal"), "{error}");
    }
    let too_long = format!("\"0x{}\"", "f".repeat(33));
    assert!(serde_json::from_str::<Features>(&too_long).is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}|[01]{60,130}|[0-9\n]{0,40}", kind in any::<u32>()) {
        if let Ok(all) = Features::of_debugfs(&text) {
            prop_assert!(all.bits().count() <= text.lines().count());
        }
        if let Ok(all) = Features::of_sysfs(&text) {
            prop_assert_eq!(all.names(Kind(kind)).len(), all.bits().count());
        }
        prop_assert!(serde_json::from_str::<Features>(&text).is_err());
    }

    #[test]
    fn every_set_round_trips(number in any::<u128>()) {
        let all = Features(number);
        prop_assert_eq!(Features::of_sysfs(&all.to_sysfs(128)).unwrap(), all);
        let list: Vec<String> = all.bits().map(|bit| bit.to_string()).collect();
        prop_assert_eq!(Features::of_debugfs(&list.join("\n")).unwrap(), all);
        let json = serde_json::to_string(&all).unwrap();
        prop_assert_eq!(serde_json::from_str::<Features>(&json).unwrap(), all);
    }
}
