//! The node proof that root has signed, as the agent shows it to collectors (decision 0035).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use virtfleet_agent_host::{Requester, Roots, read_text, request_reconcile};
use virtfleet_agent_state::NODE_PROOF;
use virtfleet_runtime::digest::Sha256;
use virtfleet_wire::node_proof::NodeProof;

/// Minimum time between two requests for a run that signs, in seconds.
const REQUEST_INTERVAL: u64 = 300;

/// Reads the proof. Clones share the time of the last request.
#[derive(Debug, Clone)]
pub(super) struct NodeProofFile {
    roots: Roots,
    /// Time of the last request for a run, in seconds since 1970; 0 before the first.
    requested_at: Arc<AtomicU64>,
}

impl NodeProofFile {
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            roots: roots.clone(),
            requested_at: Arc::default(),
        }
    }

    /// The proof for a key (SubjectPublicKeyInfo in DER). Without one, requests a run that signs,
    /// because root signs only in its runs, and the key may be newer than the last.
    pub(super) fn read(&self, public_key: &[u8], now: u64) -> Option<NodeProof> {
        let mut digest = Sha256::default();
        digest.update(public_key);
        let key = digest.hex();
        let boot_id = read_text(&self.roots.proc("sys/kernel/random/boot_id"), 256).ok()?;
        let record = NODE_PROOF.read(&self.roots, boot_id.trim());
        let proof = record.ok().filter(|record| record.key_sha256 == key);
        if proof.is_none() {
            self.request_run(now);
        }
        Some(proof?.proof)
    }

    fn request_run(&self, now: u64) {
        let last = self.requested_at.load(Ordering::Relaxed);
        if now.abs_diff(last) < REQUEST_INTERVAL {
            return;
        }
        self.requested_at.store(now, Ordering::Relaxed);
        if let Err(error) = request_reconcile(&self.roots, Requester::Agent) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "the node proof is not up to date, and root was not asked for one"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_core::enrolment::node_proof::{FORMAT, NodeProofRecord};
    use virtfleet_agent_host::REQUEST_DIRECTORY;
    use virtfleet_wire::node_proof::NodeProofScheme;

    use super::*;

    #[test]
    fn only_a_proof_of_the_present_key_is_shown_and_runs_are_requested_seldom() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().join("root"),
            procfs: dir.path().join("proc"),
            ..Roots::default()
        };
        let boot_id = roots.proc("sys/kernel/random/boot_id");
        fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
        fs::write(boot_id, "boot\n").unwrap();
        let requests = roots.root(REQUEST_DIRECTORY);
        fs::create_dir_all(&requests).unwrap();
        let requested = || {
            let files = fs::read_dir(&requests).unwrap();
            let names = files.map(|file| fs::remove_file(file.unwrap().path()).unwrap());
            names.count()
        };
        let file = NodeProofFile::new(&roots);
        assert_eq!((file.read(b"key", 1000), requested()), (None, 1));
        assert_eq!((file.read(b"key", 1299), requested()), (None, 0));
        assert_eq!((file.read(b"key", 1300), requested()), (None, 1));

        let proof = NodeProof {
            chain: vec![String::new()],
            scheme: NodeProofScheme::Ed25519,
            signature: String::new(),
        };
        let record = NodeProofRecord {
            v: FORMAT,
            boot_id: "boot".to_owned(),
            // SHA-256 of "key".
            key_sha256: "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683".to_owned(),
            proof: proof.clone(),
        };
        NODE_PROOF.write(&roots, &record).unwrap();
        assert_eq!((file.read(b"key", 2000), requested()), (Some(proof), 0));
        assert_eq!((file.read(b"another key", 2000), requested()), (None, 1));
    }
}
