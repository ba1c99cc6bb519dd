//! Messages and remedies if a container's key is missing or does not open it. Neither ever leads to
//! a format.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    device::DeviceId,
    plan::{Refusal, RefusalKind},
    wanted::{Encryption, KeySource},
};

/// PCRs to which the key is bound in the TPM: the state of secure boot, which updates of kernel and
/// firmware do not change.
pub const PCRS: &str = "7";

/// Name of a disk's container in `/dev/mapper`.
pub fn mapping(name: &str) -> String {
    format!("virtfleet-{name}")
}

/// Container that could not be opened.
#[derive(Debug, Clone, Copy)]
pub struct Shut<'a> {
    /// Name of the disk in the settings.
    pub name: &'a str,
    pub device: &'a DeviceId,
    pub luks_uuid: &'a str,
    /// Declared keys.
    pub encryption: &'a Encryption,
}

impl Shut<'_> {
    /// Returns the refusal. `said` is the output of the attempts, e.g. of cryptsetup; `recovery`
    /// says whether the recovery key was available and was tried, too.
    pub fn refusal(&self, said: &str, recovery: bool) -> Refusal {
        let key = match &self.encryption.key {
            KeySource::File(path) => format!("the key in {path}"),
            KeySource::Tpm2 => "the guest's TPM".to_owned(),
        };
        let also = match &self.encryption.recovery {
            Some(path) if recovery => format!(", and neither does the recovery key in {path}"),
            _ => String::new(),
        };
        let (device, uuid) = (&self.device.name, self.luks_uuid);
        Refusal::new(
            RefusalKind::NoKey,
            Some(self.device),
            format!(
                "{key} does not open the LUKS header {uuid} on /dev/{device}{also}; nothing was changed, and the agent never formats a disk because its key is lost"
            ),
            self.remedy(),
            vec![
                ("luksUuid", uuid.to_owned()),
                ("key", key_word(self.encryption).to_owned()),
                ("said", said.to_owned()),
            ],
        )
    }

    /// Remedy for the admin: manual steps with the recovery key, or with any other key of the
    /// header.
    pub fn remedy(&self) -> String {
        let node = format!("/dev/{}", self.device.name);
        let open = format!(
            "with the recovery key in a file K, `cryptsetup open --key-file K {node} {}` gives access to the data",
            mapping(self.name)
        );
        match &self.encryption.key {
            KeySource::File(path) => format!(
                "restore the key file {path}, readable only by root. If the key is lost, {open}, and `cryptsetup luksAddKey --key-file K {node} \
                 {path}` adds the key in {path} to the header; then `virtfleet-agent apply disks`"
            ),
            KeySource::Tpm2 => format!(
                "{open}, and `systemd-cryptenroll --unlock-key-file=K --wipe-slot=tpm2 --tpm2-device=auto --tpm2-pcrs={PCRS} {node}` binds the \
                 header to the current TPM; then `virtfleet-agent apply disks`. KubeVirt keeps a TPM's state over a stop only with \
                 spec.template.spec.domain.devices.tpm.persistent: true"
            ),
        }
    }
}

/// The boot key, as in `bad_keys` and in facts.
pub fn key_word(encryption: &Encryption) -> &str {
    match &encryption.key {
        KeySource::File(path) => path,
        KeySource::Tpm2 => "tpm2",
    }
}

/// Finding: only the recovery key opened the container. If it is missing at the next boot, the disk
/// stays closed.
pub fn opened_by_recovery(name: &str, encryption: &Encryption, remedy: String) -> Finding {
    let message = format!(
        "its container was opened with the recovery key, because its own key ({}) does not open it; if the recovery key is missing on this guest, \
         it stays closed at the next boot",
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

/// Finding: the recovery key is stored on the guest. Whoever copies the root disk can open the
/// container.
pub fn recovery_here(name: &str, path: &str) -> Finding {
    let message = format!(
        "its recovery key is stored on this guest, at {path}: a copy of the root disk opens the container without the TPM"
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
        "move {path} to another machine once the TPM opens the disk; keep its path in the settings"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::fixtures::device;

    #[test]
    fn refusal_names_key_header_device_and_remedy() {
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
