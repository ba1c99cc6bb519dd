//! Construction of refusals, and the hash over their evidence that an approval refers to.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::{
    device::DeviceId,
    plan::{Refusal, RefusalKind},
};

impl Refusal {
    /// Returns a refusal. The evidence is hashed if the kind can be approved.
    pub fn new(
        kind: RefusalKind,
        device: Option<&DeviceId>,
        message: impl Into<String>,
        remedy: impl Into<String>,
        facts: Vec<(&str, String)>,
    ) -> Self {
        let facts: Vec<(String, String)> = facts
            .into_iter()
            .map(|(name, fact)| (name.to_owned(), fact))
            .collect();
        let evidence = match device {
            Some(device) if kind.may_be_approved() => evidence_hash(kind, device, &facts),
            _ => String::new(),
        };
        Self {
            kind,
            device: device.cloned(),
            message: message.into(),
            remedy: remedy.into(),
            facts,
            evidence,
        }
    }

    /// Adds the boot and the sequence number of the device: the evidence is void after a reboot,
    /// and for a device that replaces this one.
    #[must_use]
    pub fn in_boot(mut self, boot_id: &str) -> Self {
        let diskseq = self.device.as_ref().and_then(|device| device.diskseq);
        let facts = [
            ("bootId", boot_id.to_owned()),
            (
                "diskseq",
                diskseq.map_or("unknown".to_owned(), |number| number.to_string()),
            ),
        ];
        self.facts
            .extend(facts.map(|(name, fact)| (name.to_owned(), fact)));
        if let Some(device) = self.device.as_ref().filter(|_| self.kind.may_be_approved()) {
            self.evidence = evidence_hash(self.kind, device, &self.facts);
        }
        self
    }

    /// Removes the hash: content that a tool recognises can never be approved.
    #[must_use]
    pub fn beyond_approval(mut self) -> Self {
        self.evidence.clear();
        self
    }
}

impl RefusalKind {
    /// Name of the kind in the plan and in findings, e.g. `foreign-data`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// SHA-256, in hex, over the refused device and the facts. Of the device only size and serial are
/// hashed, since they survive a reboot. Each part is hashed with its length, so that different
/// lists of facts never yield the same bytes.
pub fn evidence_hash(kind: RefusalKind, device: &DeviceId, facts: &[(String, String)]) -> String {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    part("virtfleet evidence 2");
    part(kind.word());
    part(&device.size.to_string());
    part(if device.serial.is_some() {
        "serial"
    } else {
        "no serial"
    });
    part(device.serial.as_deref().unwrap_or_default());
    // Two partitions of a disk may have the same size. Whole disks keep the hash of earlier
    // versions.
    if let Some(uuid) = device
        .partition
        .as_ref()
        .and_then(|partition| partition.uuid.as_deref())
    {
        part("partition");
        part(uuid);
    }
    for (name, fact) in facts {
        part(name);
        part(fact);
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        write!(text, "{byte:02x}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::device::DevNumber;

    fn device() -> DeviceId {
        DeviceId {
            name: "vdb".into(),
            number: DevNumber {
                major: 253,
                minor: 16,
            },
            diskseq: Some(4),
            size: 1 << 30,
            serial: Some("data1".into()),
            partition: None,
        }
    }

    fn facts(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(name, fact)| ((*name).into(), (*fact).into()))
            .collect()
    }

    #[test]
    fn evidence_hash_survives_only_a_reboot() {
        let hash = |device: &DeviceId, list: &[(&str, &str)]| {
            evidence_hash(RefusalKind::UnknownData, device, &facts(list))
        };
        let same = hash(&device(), &[("digest", "aa")]);
        assert_eq!(same.len(), 64);
        let mut renamed = device();
        renamed.name = "vdc".into();
        renamed.number.minor = 32;
        renamed.diskseq = None;
        assert_eq!(hash(&renamed, &[("digest", "aa")]), same);
        let mut larger = device();
        larger.size += 512;
        let mut nameless = device();
        nameless.serial = None;
        for other in [
            hash(&larger, &[("digest", "aa")]),
            hash(&nameless, &[("digest", "aa")]),
            hash(&device(), &[("digest", "ab")]),
            hash(&device(), &[("digest", "a"), ("a", "")]),
            hash(&device(), &[("diges", "taa")]),
            evidence_hash(RefusalKind::BlankAgain, &device(), &facts(&[("digest", "aa")])),
        ] {
            assert_ne!(other, same);
        }
    }

    #[test]
    fn only_approvable_refusals_have_a_hash() {
        for (kind, hashed) in [
            (RefusalKind::CameLater, true),
            (RefusalKind::UnknownData, true),
            (RefusalKind::BlankAgain, true),
            (RefusalKind::Unfinished, true),
            (RefusalKind::PartlyProven, true),
            (RefusalKind::ForeignData, false),
            (RefusalKind::Unreadable, false),
            (RefusalKind::MaybeShared, false),
        ] {
            let refusal = Refusal::new(kind, Some(&device()), "", "", vec![]);
            assert_eq!(!refusal.evidence.is_empty(), hashed, "{kind:?}");
            assert_eq!(refusal.beyond_approval().evidence, "");
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
        }
    }
}
