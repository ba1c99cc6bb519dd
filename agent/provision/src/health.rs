//! The step `guest-health`: writes the part of the node's health that only root may read to
//! `/run/virtfleet/state/guest-health.json`.

use std::path::Path;

use virtfleet_agent_core::{
    guest::health::{Certificate, FORMAT, GuestHealth},
    pass::RunOutcome,
};
use virtfleet_agent_host::{ReadError, Roots, clock, read_text};
use virtfleet_agent_state::GUEST_HEALTH;
use virtfleet_runtime::tls::Validity;

use super::guest::{Guest, Report};

/// Paths at which kubeadm and kubelet store kubelet's certificates.
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
        Err(error) => return Report::new(RunOutcome::Failed, format!("{:#}", anyhow::Error::new(error))),
    };
    let (certificates, problems) = certificates(guest.roots);
    let count = certificates.len();
    let health = GuestHealth {
        v: FORMAT,
        boot_id: boot_id.trim().to_owned(),
        at_ns: clock().realtime_ns,
        certificates,
    };
    if let Err(error) = GUEST_HEALTH.write(guest.roots, &health) {
        return Report::new(RunOutcome::Failed, format!("{:#}", anyhow::Error::new(error)));
    }
    let mut message = format!("wrote {GUEST_HEALTH}; certificates of kubelet: {count}");
    for problem in problems {
        message.push_str("; ");
        message.push_str(&problem);
    }
    // A certificate that cannot be read is a fault of kubelet, not of the run.
    Report::new(RunOutcome::Ok, message)
}

/// The validity of kubelet's certificates, and why files that exist have none.
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
        let seconds = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        match Validity::of_first(text.as_bytes()) {
            Ok(validity) => found.push(Certificate {
                path: path.to_owned(),
                not_before: seconds(validity.not_before),
                not_after: seconds(validity.not_after),
            }),
            Err(error) => problems.push(format!("{path} {error}")),
        }
    }
    (found, problems)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn certificates_and_files_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().into(),
            ..Roots::default()
        };
        assert_eq!(certificates(&roots), (Vec::new(), Vec::new()));
        let pki = dir.path().join("var/lib/kubelet/pki");
        fs::create_dir_all(&pki).unwrap();
        fs::write(pki.join("kubelet.crt"), "nothing").unwrap();
        let pem = include_str!("kubelet_sample.pem");
        fs::write(pki.join("kubelet-client-current.pem"), pem).unwrap();
        let keyed = format!("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{pem}");
        fs::write(pki.join("kubelet-server-current.pem"), keyed).unwrap();
        let (found, problems) = certificates(&roots);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].not_before, found[0].not_after),
            (1_795_317_066, 1_826_853_066)
        );
        assert_eq!(found[1].path, CERTIFICATES[1]);
        assert_eq!(found[1].not_after, found[0].not_after);
        assert_eq!(found[0].path, CERTIFICATES[0]);
        assert_eq!(problems, [format!("{} holds no certificate", CERTIFICATES[2])]);
    }
}
