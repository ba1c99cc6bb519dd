//! Encrypted disks whose key does not fit, with the real cryptsetup. The host needs no device
//! mapper: nothing is opened.

use std::fs;

use anyhow::Result;
use virtfleet_tests::{
    disks::{LoopDisk, Outcome, Stage, needs},
    skip,
};
use virtfleet_wire::settings::{DiskEncryption, DiskMatch, DiskSettings, Luks2Settings};

const TIER: u8 = 2;
const UUID: &str = "5a0c2c86-95d6-4e0b-8b43-7a0b5d5b0a01";

fn declared(key: &str, recovery: Option<&str>) -> Vec<DiskSettings> {
    vec![DiskSettings {
        matching: DiskMatch {
            serial: Some("secrets".to_owned()),
            ..DiskMatch::default()
        },
        mount_point: Some("/srv/secrets".to_owned()),
        required: true,
        encryption: Some(DiskEncryption {
            luks2: Luks2Settings {
                key: key.to_owned(),
                recovery_key: recovery.map(str::to_owned),
            },
        }),
        ..DiskSettings::named("secrets")
    }]
}

/// A disk with a header that the keys `right` and `recovery` open, and key files of these names and
/// `wrong`.
fn stage(test: &str) -> Result<Option<(Stage, LoopDisk)>> {
    if skip::need(TIER, test, needs(&["cryptsetup", "mkfs.ext4"]))?.is_none() {
        return Ok(None);
    }
    let stage = Stage::new()?;
    let disk = LoopDisk::new(stage.folder(), "secrets", 80 << 20)?;
    stage.serial(&disk, "secrets")?;
    let node = &disk.node;
    stage.sh(&format!(
        "umask 077; mkdir -p /etc/keys; cd /etc/keys
         for key in right recovery wrong; do printf $key-key-of-the-test > $key; done
         fast='--pbkdf pbkdf2 --pbkdf-force-iterations 1000'
         cryptsetup --batch-mode luksFormat --type luks2 $fast --uuid {UUID} --key-file right {node} &&
         cryptsetup --batch-mode luksAddKey $fast --key-file right {node} recovery"
    ))?;
    Ok(Some((stage, disk)))
}

fn bytes(disk: &LoopDisk) -> Result<Vec<u8>> {
    Ok(fs::read(&disk.file)?)
}

fn finding<'a>(outcome: &'a Outcome, id: &str) -> Option<&'a serde_json::Value> {
    let mut findings = outcome.state["findings"].as_array()?.iter();
    findings.find(|finding| finding["id"] == id)
}

#[test]
fn tier2_a_key_that_does_not_fit_is_no_key_and_changes_nothing() {
    let test = "tier2_a_key_that_does_not_fit_is_no_key_and_changes_nothing";
    let Some((stage, disk)) = stage(test).unwrap() else {
        return;
    };
    let before = bytes(&disk).unwrap();
    for (settings, opens) in [
        (declared("/etc/keys/wrong", None), false),
        (declared("/etc/keys/wrong", Some("/etc/keys/gone")), false),
        // No TPM here, as in a VM whose spec has lost it; and a recovery key that is another's.
        (declared("tpm2", Some("/etc/keys/wrong")), false),
        (declared("/etc/keys/right", None), true),
        (declared("/etc/keys/wrong", Some("/etc/keys/recovery")), true),
        (declared("tpm2", Some("/etc/keys/recovery")), true),
    ] {
        let plan = stage.plan(&settings).unwrap();
        let disk = &plan.plan["disks"][0];
        let steps = disk["steps"].as_array().unwrap();
        if opens {
            assert_eq!(steps[0]["step"], "open", "{disk}");
            assert!(plan.refusals("secrets").is_empty(), "{disk}");
        } else {
            assert!(steps.is_empty(), "{disk}");
            assert_eq!(plan.refusals("secrets"), ["no-key"], "{disk}");
        }
    }
    for settings in [
        declared("/etc/keys/wrong", None),
        declared("tpm2", Some("/etc/keys/wrong")),
    ] {
        let passed = stage.pass(&settings).unwrap();
        assert_eq!(passed.standing("secrets"), "refused", "{}", passed.state);
        assert_eq!(passed.refusals("secrets"), ["no-key"]);
        assert_eq!(passed.state["disks"][0]["error"], serde_json::Value::Null);
        let finding = finding(&passed, "disk-no-key").expect("a finding");
        assert_eq!(finding["severity"], "critical");
        let said = finding["message"].as_str().unwrap();
        assert!(
            said.contains(UUID) && said.contains(&disk.node) && said.contains("nothing was changed"),
            "{said}"
        );
        let remedy = finding["remedy"].as_str().unwrap();
        assert!(
            remedy.contains(&format!("cryptsetup open --key-file K {}", disk.node)),
            "{remedy}"
        );
        for id in ["disk-step-failed", "disk-pending"] {
            assert!(self::finding(&passed, id).is_none(), "{id}: {}", passed.state);
        }
    }
    assert!(bytes(&disk).unwrap() == before, "the disk was written to");
}
