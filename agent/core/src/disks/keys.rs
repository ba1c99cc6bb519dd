//! What is said, and what is to be done, when a container's key is missing or does not fit. None of it ever leads to a format.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    device::DeviceId,
    plan::{Refusal, RefusalKind},
    wanted::{Encryption, KeySource},
};

/// What the TPM binds the key to: the state of secure boot, which updates of kernel and firmware leave as it is.
pub const PCRS: &str = "7";

/// The name of a disk's container in `/dev/mapper`.
pub fn mapping(name: &str) -> String {
    format!("virtfleet-{name}")
}

/// A container that is not opened.
#[derive(Debug, Clone, Copy)]
pub struct Shut<'a> {
    /// The disk's name in the settings.
    pub name: &'a str,
    /// The disk.
    pub device: &'a DeviceId,
    /// The header's UUID.
    pub luks_uuid: &'a str,
    /// The keys that are declared.
    pub encryption: &'a Encryption,
}

impl Shut<'_> {
    /// The refusal when no key that can be had opens it. `said` is what came of each, e.g. what cryptsetup said; with `recovery` the recovery key was
    /// on the guest and was tried, too.
    pub fn refusal(&self, said: &str, recovery: bool) -> Refusal {
        let key = match &self.encryption.key {
            KeySource::File(path) => format!("the key in {path}"),
            KeySource::Tpm2 => "the guest's TPM".to_owned(),
        };
        let also = match &self.encryption.recovery {
            Some(path) if recovery => format!(", nor does the recovery key in {path}"),
            _ => String::new(),
        };
        let (device, uuid) = (&self.device.name, self.luks_uuid);
        Refusal::new(
            RefusalKind::NoKey,
            Some(self.device),
            format!(
                "{key} does not open the LUKS header {uuid} on /dev/{device}{also}; nothing was changed, and a lost key never leads to a format"
            ),
            self.remedy(),
            vec![
                ("luksUuid", uuid.to_owned()),
                ("key", key_word(self.encryption).to_owned()),
                ("said", said.to_owned()),
            ],
        )
    }

    /// What a person does: by hand with the recovery key, or any other key that the header has.
    pub fn remedy(&self) -> String {
        let node = format!("/dev/{}", self.device.name);
        let open = format!(
            "with the recovery key, in a file K: `cryptsetup open --key-file K {node} {}` gives the data",
            mapping(self.name)
        );
        match &self.encryption.key {
            KeySource::File(path) => format!(
                "put the right key back at {path}, readable for root alone. When it is lost, {open}, and `cryptsetup luksAddKey --key-file K {node} \
                 {path}` makes the key at {path} fit; then `virtfleet-agent apply disks`"
            ),
            KeySource::Tpm2 => format!(
                "{open}, and `systemd-cryptenroll --unlock-key-file=K --wipe-slot=tpm2 --tpm2-device=auto --tpm2-pcrs={PCRS} {node}` binds the \
                 header to the TPM that is there now; then `virtfleet-agent apply disks`. KubeVirt keeps a TPM over a stop only with \
                 spec.template.spec.domain.devices.tpm.persistent: true"
            ),
        }
    }
}

/// The boot key as `bad_keys` and the facts have it.
pub fn key_word(encryption: &Encryption) -> &str {
    match &encryption.key {
        KeySource::File(path) => path,
        KeySource::Tpm2 => "tpm2",
    }
}

/// It is open, and the recovery key did it: the next time that key may be gone.
pub fn opened_by_recovery(name: &str, encryption: &Encryption, remedy: String) -> Finding {
    let message = format!(
        "its container was opened with the recovery key, because its own key ({}) does not open it; without the recovery key on this guest it stays \
         closed at the next boot",
        key_word(encryption)
    );
    Finding::new(
        "disk-opened-by-recovery-key",
        Severity::Warning,
        ("Disk", name),
        "KeyDoesNotFit",
        message,
    )
    .remedy(remedy)
}

/// A recovery key that lies on the guest is worth as much as the TPM's: whoever copies the root disk has both.
pub fn recovery_here(name: &str, path: &str) -> Finding {
    let message = format!(
        "its recovery key lies on this guest, at {path}: a copy of the root disk opens it without the TPM"
    );
    Finding::new(
        "disk-recovery-key-here",
        Severity::Info,
        ("Disk", name),
        "RecoveryKeyOnGuest",
        message,
    )
    .with("file", path)
    .remedy(format!(
        "keep {path} somewhere else, and remove it here once the TPM opens the disk; it stays in the settings"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::fixtures::device;

    #[test]
    fn it_names_key_header_device_and_the_way_back() {
        let device = device(1, None).id;
        let said = |key: KeySource, recovery: Option<&str>, tried| {
            let encryption = Encryption {
                key,
                recovery: recovery.map(str::to_owned),
            };
            let shut = Shut {
                name: "data",
                device: &device,
                luks_uuid: "1111",
                encryption: &encryption,
            };
            let refusal = shut.refusal("No key available", tried);
            assert_eq!(
                (refusal.kind, refusal.evidence.as_str()),
                (RefusalKind::NoKey, "")
            );
            assert!(
                refusal.message.contains("LUKS header 1111 on /dev/vdb"),
                "{refusal:?}"
            );
            assert!(refusal.message.contains("nothing was changed"), "{refusal:?}");
            assert!(
                refusal
                    .remedy
                    .contains("cryptsetup open --key-file K /dev/vdb virtfleet-data"),
                "{refusal:?}"
            );
            refusal
        };
        let file = said(KeySource::File("/k".into()), Some("/r"), false);
        assert!(
            file.message.starts_with("the key in /k does not open"),
            "{file:?}"
        );
        assert!(!file.message.contains("/r"), "{file:?}");
        assert!(
            file.remedy.contains("luksAddKey --key-file K /dev/vdb /k"),
            "{file:?}"
        );
        let tpm = said(KeySource::Tpm2, Some("/r"), true);
        assert!(
            tpm.message.contains("TPM") && tpm.message.contains("recovery key in /r"),
            "{tpm:?}"
        );
        assert!(
            tpm.remedy.contains("--wipe-slot=tpm2 --tpm2-device=auto")
                && tpm.remedy.contains("persistent: true"),
            "{tpm:?}"
        );
    }
}
