//! The step `guest-health`: what only root may read of the node's health goes to `/run/virtfleet/state/guest-health.json`.

use std::path::Path;

use virtfleet_agent_core::{
    guest::{
        certificate::validity,
        health::{Certificate, FORMAT, GuestHealth},
    },
    pass::Outcome,
};

use super::steps::{Guest, Report};
use crate::host::{ReadError, Roots, clock, read_text, write_for_agent};

/// The file, by its path in the guest.
pub const HEALTH_FILE: &str = "/run/virtfleet/state/guest-health.json";
/// Kubelet's certificates, where kubeadm and kubelet itself have them.
const CERTIFICATES: [&str; 3] = [
    "/var/lib/kubelet/pki/kubelet-client-current.pem",
    "/var/lib/kubelet/pki/kubelet-server-current.pem",
    "/var/lib/kubelet/pki/kubelet.crt",
];
const MAX_BYTES: usize = 256 * 1024;

pub(super) fn run(guest: &mut Guest<'_>) -> Report {
    let path = guest.roots.proc("sys/kernel/random/boot_id");
    let boot_id = match read_text(&path, 256) {
        Ok(boot_id) => boot_id,
        Err(error) => return Report::new(Outcome::Failed, format!("{:#}", anyhow::Error::new(error))),
    };
    let (certificates, problems) = certificates(guest.roots);
    let count = certificates.len();
    let health = GuestHealth {
        v: FORMAT,
        boot_id: boot_id.trim().to_owned(),
        at_ns: clock().realtime_ns,
        certificates,
    };
    let mut json = match serde_json::to_vec(&health) {
        Ok(json) => json,
        Err(error) => return Report::new(Outcome::Failed, format!("cannot encode {HEALTH_FILE}: {error}")),
    };
    json.push(b'\n');
    if let Err(error) = write_for_agent(guest.roots, HEALTH_FILE, &json) {
        return Report::new(Outcome::Failed, format!("{:#}", anyhow::Error::new(error)));
    }
    let mut message = format!("wrote {HEALTH_FILE}; certificates of kubelet: {count}");
    for problem in problems {
        message.push_str("; ");
        message.push_str(&problem);
    }
    // A certificate that cannot be read is kubelet's trouble, and no fault of the pass.
    Report::new(Outcome::Ok, message)
}

/// The dates of kubelet's certificates, and what is wrong with those that are there and have none.
fn certificates(roots: &Roots) -> (Vec<Certificate>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for path in CERTIFICATES {
        let text = match read_text(&roots.root(Path::new(path)), MAX_BYTES) {
            Ok(text) => text,
            Err(ReadError::Missing) => continue,
            Err(error) => {
                problems.push(format!("{path}: {error}"));
                continue;
            }
        };
        match validity(&text) {
            Ok(validity) => found.push(Certificate {
                path: path.to_owned(),
                not_before: validity.not_before,
                not_after: validity.not_after,
            }),
            Err(error) => problems.push(format!("{path}: {error}")),
        }
    }
    (found, problems)
}

/// Why there is nothing to read. Displays as the reason; [`HEALTH_FILE`] is the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadHealthError {
    /// Its content.
    #[error("not a state of the node's health: {0}")]
    Malformed(serde_json::Error),
    /// Written by an agent of another time.
    #[error("format {0}, expected {FORMAT}")]
    Format(u32),
    /// Of another boot.
    #[error("written in another boot")]
    OtherBoot,
}

/// The health in the boot `boot_id`, from the file's content.
pub(crate) fn parse_health(json: &[u8], boot_id: &str) -> Result<GuestHealth, ReadHealthError> {
    let health: GuestHealth = serde_json::from_slice(json).map_err(ReadHealthError::Malformed)?;
    if health.v != FORMAT {
        return Err(ReadHealthError::Format(health.v));
    }
    if health.boot_id != boot_id {
        return Err(ReadHealthError::OtherBoot);
    }
    Ok(health)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn certificates_that_are_there_and_those_that_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        assert_eq!(certificates(&roots), (Vec::new(), Vec::new()));
        let pki = dir.path().join("var/lib/kubelet/pki");
        fs::create_dir_all(&pki).unwrap();
        fs::write(pki.join("kubelet.crt"), "nothing").unwrap();
        let pem = include_str!("../../core/src/guest/certificate_sample.pem");
        fs::write(pki.join("kubelet-client-current.pem"), pem).unwrap();
        let (found, problems) = certificates(&roots);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, CERTIFICATES[0]);
        assert_eq!(found[0].not_after - found[0].not_before, 365 * 86_400);
        assert_eq!(
            problems,
            [format!("{}: it holds no certificate", CERTIFICATES[2])]
        );
    }

    #[test]
    fn only_files_of_this_boot_and_format_are_taken() {
        let health = GuestHealth {
            v: FORMAT,
            boot_id: "b".into(),
            ..GuestHealth::default()
        };
        let json = serde_json::to_vec(&health).unwrap();
        assert_eq!(parse_health(&json, "b").unwrap(), health);
        assert!(matches!(
            parse_health(&json, "c"),
            Err(ReadHealthError::OtherBoot)
        ));
        assert!(matches!(
            parse_health(b"{", "b"),
            Err(ReadHealthError::Malformed(_))
        ));
        let other = serde_json::to_vec(&GuestHealth { v: 9, ..health }).unwrap();
        assert!(matches!(
            parse_health(&other, "b"),
            Err(ReadHealthError::Format(9))
        ));
    }
}
