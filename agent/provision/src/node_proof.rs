//! The step `node-proof`: signs the agent's key with the kubelet's key, if the settings ask for it.
//! The agent itself never reads the kubelet's key (decision 0035).

use virtfleet_agent_core::{
    enrolment::node_proof::{FORMAT, NodeProofRecord},
    pass::RunOutcome,
};
use virtfleet_agent_host::{ReadError, Roots, read_bounded, read_text, remove_durably};
use virtfleet_agent_state::{
    NODE_PROOF, WriteStateError,
    enrolment::{EnrolmentFiles, EnrolmentFilesError},
};
use virtfleet_runtime::{
    digest::hex,
    tls::{SignNodeProofError, public_key_sha256, sign_node_proof},
};
use zeroize::Zeroizing;

use super::guest::{Guest, Report};

/// Maximum size of the kubelet's file, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// Why no proof was written.
#[derive(Debug, thiserror::Error)]
enum NodeProofProblem {
    #[error("push.kubeletCertificate: cannot read {path}: {source}")]
    Kubelet { path: String, source: ReadError },
    #[error("push.kubeletCertificate: {path} cannot sign: {source}")]
    Sign {
        path: String,
        source: SignNodeProofError,
    },
    #[error("the agent's key cannot be read: {0}")]
    AgentFiles(#[from] EnrolmentFilesError),
    #[error("the agent's key cannot be used")]
    AgentKey,
    #[error("cannot read the boot id: {0}")]
    BootId(ReadError),
    #[error(transparent)]
    Write(#[from] WriteStateError),
    #[error("cannot remove {NODE_PROOF}: {0}")]
    Remove(std::io::Error),
}

/// Why there is nothing to sign yet, or at all. Neither missing key is a fault: the node joins
/// later, and the agent makes its key when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NothingToSign {
    NotAsked,
    NoKubelet,
    NoAgentKey,
}

/// A proof for the agent's present key, if it can be made.
enum PresentProof {
    Signed(NodeProofRecord),
    Nothing(NothingToSign),
}

#[derive(Debug, PartialEq, Eq)]
enum ProofFile {
    Written,
    Removed(NothingToSign),
}

pub(super) fn run(guest: &mut Guest<'_>) -> Report {
    let path = guest.settings.config.push.kubelet_certificate.as_deref();
    let (outcome, message) = match write_proof(guest.roots, path) {
        Ok(ProofFile::Written) => (RunOutcome::Ok, format!("wrote {NODE_PROOF}")),
        Ok(ProofFile::Removed(NothingToSign::NotAsked)) => {
            let message = "push.kubeletCertificate is not set".to_owned();
            (RunOutcome::Skipped, message)
        }
        Ok(ProofFile::Removed(NothingToSign::NoKubelet)) => {
            let message = format!("{} does not exist yet", path.unwrap_or_default());
            (RunOutcome::Ok, message)
        }
        Ok(ProofFile::Removed(NothingToSign::NoAgentKey)) => {
            (RunOutcome::Ok, "the agent has no key yet".to_owned())
        }
        Err(problem) => (RunOutcome::Failed, format!("{:#}", anyhow::Error::new(problem))),
    };
    Report::new(outcome, message)
}

/// Writes the proof for the agent's present key. If there is nothing to sign, removes an earlier
/// proof.
fn write_proof(roots: &Roots, kubelet: Option<&str>) -> Result<ProofFile, NodeProofProblem> {
    match present_proof(roots, kubelet)? {
        PresentProof::Signed(record) => {
            NODE_PROOF.write(roots, &record)?;
            Ok(ProofFile::Written)
        }
        PresentProof::Nothing(reason) => {
            remove_durably(&roots.root(NODE_PROOF.path)).map_err(NodeProofProblem::Remove)?;
            Ok(ProofFile::Removed(reason))
        }
    }
}

/// Signs the agent's present key with the kubelet's.
fn present_proof(roots: &Roots, kubelet: Option<&str>) -> Result<PresentProof, NodeProofProblem> {
    let Some(path) = kubelet else {
        return Ok(PresentProof::Nothing(NothingToSign::NotAsked));
    };
    let kubelet = match read_bounded(&roots.root(path), MAX_BYTES) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(ReadError::Missing) => return Ok(PresentProof::Nothing(NothingToSign::NoKubelet)),
        Err(source) => {
            let path = path.to_owned();
            return Err(NodeProofProblem::Kubelet { path, source });
        }
    };
    let Some(agent) = EnrolmentFiles::new(roots).read()? else {
        return Ok(PresentProof::Nothing(NothingToSign::NoAgentKey));
    };
    let key = public_key_sha256(&agent.key).ok_or(NodeProofProblem::AgentKey)?;
    let proof = sign_node_proof(&kubelet, &key).map_err(|source| NodeProofProblem::Sign {
        path: path.to_owned(),
        source,
    })?;
    let boot_id = read_text(&roots.proc("sys/kernel/random/boot_id"), 256);
    let boot_id = boot_id.map_err(NodeProofProblem::BootId)?;
    Ok(PresentProof::Signed(NodeProofRecord {
        v: FORMAT,
        boot_id: boot_id.trim().to_owned(),
        key_sha256: hex(&key),
        proof,
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use virtfleet_agent_core::enrolment::record::KeyRecord;
    use virtfleet_runtime::tls::verify_node_proof;

    use super::*;

    const KUBELET: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    /// 2026-06-01, in seconds since 1970.
    const NOW: u64 = 1_780_272_000;

    struct Machine {
        _dir: tempfile::TempDir,
        roots: Roots,
        authority: CertifiedIssuer<'static, KeyPair>,
    }

    impl Machine {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let roots = Roots {
                rootfs: dir.path().join("root"),
                procfs: dir.path().join("proc"),
                ..Roots::default()
            };
            let boot_id = roots.proc("sys/kernel/random/boot_id");
            fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
            fs::write(boot_id, "boot\n").unwrap();
            fs::create_dir_all(roots.root("/run/virtfleet/state")).unwrap();
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            Self {
                _dir: dir,
                roots,
                authority,
            }
        }

        fn kubelet_joins(&self) {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::default().signed_by(&key, &self.authority);
            let file = self.roots.root(KUBELET);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, certificate.unwrap().pem() + &key.serialize_pem()).unwrap();
        }

        /// The agent makes a key; returns its SHA-256.
        fn agent_key(&self) -> [u8; 32] {
            let files = EnrolmentFiles::new(&self.roots);
            files.prepare().unwrap();
            let key = KeyPair::generate().unwrap().serialize_der();
            let record = KeyRecord::of_new_key(None, 1, None);
            files.write_key(&key, &record).unwrap();
            public_key_sha256(&key).unwrap()
        }

        /// Verifies the proof that was written, for a key.
        fn proves(&self, key: &[u8; 32]) -> bool {
            let record = NODE_PROOF.read(&self.roots, "boot").unwrap();
            let authority = self.authority.pem();
            verify_node_proof(&record.proof, authority.as_bytes(), key, NOW).is_ok()
        }
    }

    #[test]
    fn a_proof_is_written_once_both_keys_exist() {
        let machine = Machine::new();
        let sign = || write_proof(&machine.roots, Some(KUBELET)).unwrap();
        assert_eq!(sign(), ProofFile::Removed(NothingToSign::NoKubelet));
        machine.kubelet_joins();
        assert_eq!(sign(), ProofFile::Removed(NothingToSign::NoAgentKey));
        assert!(NODE_PROOF.read(&machine.roots, "boot").unwrap_err().is_absent());
        let first = machine.agent_key();
        assert_eq!(sign(), ProofFile::Written);
        assert!(machine.proves(&first));

        let second = machine.agent_key();
        assert!(!machine.proves(&second), "the proof is for the previous key");
        assert_eq!(sign(), ProofFile::Written);
        assert!(machine.proves(&second));
    }

    #[test]
    fn a_proof_goes_with_its_setting() {
        let machine = Machine::new();
        machine.kubelet_joins();
        machine.agent_key();
        write_proof(&machine.roots, Some(KUBELET)).unwrap();
        let removed = write_proof(&machine.roots, None).unwrap();
        assert_eq!(removed, ProofFile::Removed(NothingToSign::NotAsked));
        assert!(NODE_PROOF.read(&machine.roots, "boot").unwrap_err().is_absent());
    }

    #[test]
    fn a_problem_names_the_setting_and_the_file() {
        let machine = Machine::new();
        machine.kubelet_joins();
        machine.agent_key();
        fs::write(machine.roots.root(KUBELET), "nothing").unwrap();
        let problem = write_proof(&machine.roots, Some(KUBELET))
            .unwrap_err()
            .to_string();
        assert_eq!(
            problem,
            format!("push.kubeletCertificate: {KUBELET} cannot sign: it holds no certificate")
        );
    }
}
