//! The two requests of enrolment, as an agent answers them.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use hyper::StatusCode;
use serde::Serialize;
use virtfleet_runtime::{digest::Sha256, tls::sign_node_proof};
use virtfleet_wire::{
    enrolment::{EnrolmentAnswer, EnrolmentClaim, EnrolmentEvidence, EnrolmentRequest, IssuedCertificate},
    ids::Uuid,
    node_proof::NodeProof,
};

use super::{disk::AgentDisk, fault::EnrolFault};

/// Pause between two checks whether the page is released.
const HOLD_POLL: Duration = Duration::from_millis(20);

/// State of one agent.
#[derive(Debug)]
pub(super) struct AgentState {
    disk: Mutex<AgentDisk>,
    evidence: EnrolmentEvidence,
    fault: Option<EnrolFault>,
    /// The CSR that [`EnrolFault::ReplayedCsr`] repeats.
    recorded: Mutex<Option<String>>,
    /// Accepted connections.
    pub(super) connections: AtomicU64,
    /// Requests for a CSR.
    pub(super) requests: AtomicU64,
    /// Accepted certificates.
    pub(super) accepted: AtomicU64,
    /// The join token that it shows.
    token: Option<String>,
    /// The file of the kubelet that vouches for its key, in PEM.
    kubelet: Option<String>,
    /// Requests for its claim.
    pub(super) claims: AtomicU64,
    /// Connections that the agent opened.
    pub(super) pushes: AtomicU64,
    /// Answered requests for a report.
    pub(super) reports: AtomicU64,
    /// Whether requests for the page wait.
    pub(super) holds_pages: AtomicBool,
    /// Requests for the page that wait.
    pub(super) held_pages: AtomicU64,
    /// Whether an agent that connects also accepts connections on its address.
    pub(super) reachable: AtomicBool,
    /// The last pull over a connection that the collector opened.
    dialled: Mutex<Option<Instant>>,
}

/// An answer: status and JSON.
pub(super) type ProtocolAnswer = (StatusCode, Vec<u8>);

impl AgentState {
    pub(super) fn new(disk: AgentDisk, mut evidence: EnrolmentEvidence, fault: Option<EnrolFault>) -> Self {
        match fault {
            Some(EnrolFault::OtherUuid) => evidence.smbios_uuid = Some(Uuid::from_u128(0xbad)),
            Some(EnrolFault::OtherMac) => {
                evidence.macs = "02:ba:d0:00:00:01".parse().into_iter().collect();
            }
            Some(EnrolFault::OtherHostname) => evidence.hostname = Some("another".to_owned()),
            _ => {}
        }
        Self {
            disk: Mutex::new(disk),
            evidence,
            fault,
            recorded: Mutex::new(None),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            token: None,
            kubelet: None,
            claims: AtomicU64::new(0),
            pushes: AtomicU64::new(0),
            reports: AtomicU64::new(0),
            holds_pages: AtomicBool::new(false),
            held_pages: AtomicU64::new(0),
            reachable: AtomicBool::new(false),
            dialled: Mutex::new(None),
        }
    }

    pub(super) fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    pub(super) fn with_kubelet(self, kubelet: Option<String>) -> Self {
        Self { kubelet, ..self }
    }

    fn node_proof(&self) -> Result<Option<NodeProof>> {
        let Some(kubelet) = &self.kubelet else {
            return Ok(None);
        };
        let mut digest = Sha256::default();
        digest.update(&self.disk().public_key()?);
        Ok(Some(sign_node_proof(kubelet.as_bytes(), &digest.bytes())?))
    }

    /// Waits while requests for the page wait.
    pub(super) async fn page_is_released(&self) {
        let holds = || self.holds_pages.load(Ordering::Relaxed);
        self.held_pages.fetch_add(u64::from(holds()), Ordering::Relaxed);
        while holds() {
            tokio::time::sleep(HOLD_POLL).await;
        }
    }

    /// Answers a request for its claim.
    pub(super) fn claim(&self) -> Result<ProtocolAnswer> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        let claim = EnrolmentClaim {
            token: self.token.clone(),
            node_proof: self.node_proof()?,
            evidence: self.evidence.clone(),
        };
        json(StatusCode::OK, &claim)
    }

    /// Records a pull over a connection that the collector opened.
    pub(super) fn dialled_now(&self) {
        *self.dialled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether there was such a pull within this time.
    pub(super) fn is_dialled(&self, within: Duration) -> bool {
        let dialled = self.dialled.lock().unwrap_or_else(PoisonError::into_inner);
        dialled.is_some_and(|at| at.elapsed() < within)
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, AgentDisk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before a connection is accepted.
    pub(super) fn before_connection(&self) -> Result<()> {
        let has_second = self.fault == Some(EnrolFault::SecondKey) && self.disk().is_enrolled();
        if self.fault == Some(EnrolFault::NewKeys) || has_second {
            *self.disk() = AgentDisk::new()?;
        }
        Ok(())
    }

    /// Answers a request for a CSR.
    pub(super) fn request(&self, body: &[u8]) -> Result<ProtocolAnswer> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.fault == Some(EnrolFault::NotOffered) {
            return Ok((StatusCode::NOT_FOUND, Vec::new()));
        }
        let request: EnrolmentRequest = serde_json::from_slice(body)?;
        let mut disk = self.disk();
        let own = disk.identity();
        if own
            .as_deref()
            .is_some_and(|own| vm_of(own) != vm_of(&request.identity))
        {
            return Ok((StatusCode::MISDIRECTED_REQUEST, Vec::new()));
        }
        let is_other = own.is_some_and(|own| path_of(&own) != path_of(&request.identity));
        let replaces = (request.replace_key || is_other) && self.fault != Some(EnrolFault::KeepsKey);
        if replaces || self.fault == Some(EnrolFault::ReplacesForever) {
            *disk = AgentDisk::new()?;
            return Ok((StatusCode::CONFLICT, Vec::new()));
        }
        let csr = match self.fault {
            Some(EnrolFault::OtherName) => {
                let (trust_domain, _) = request
                    .identity
                    .rsplit_once("/vmi/")
                    .unwrap_or((&request.identity, ""));
                let other = format!("{trust_domain}/vmi/cluster-a/another/uid-of-another");
                disk.csr(&request.nonce, &[request.identity.clone(), other])?
            }
            Some(EnrolFault::OtherKey) => AgentDisk::new()?.csr(&request.nonce, &[])?,
            Some(EnrolFault::ReplayedCsr) => {
                let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
                match &*recorded {
                    Some(csr) => csr.clone(),
                    None => recorded.insert(disk.csr(&request.nonce, &[])?).clone(),
                }
            }
            _ => disk.csr(&request.nonce, &[])?,
        };
        let evidence = self.evidence.clone();
        json(StatusCode::OK, &EnrolmentAnswer { csr, evidence })
    }

    /// Answers a certificate.
    pub(super) fn certificate(&self, body: &[u8]) -> Result<ProtocolAnswer> {
        let issued: IssuedCertificate = serde_json::from_slice(body)?;
        let refuses = [
            EnrolFault::NewKeys,
            EnrolFault::NeverAccepts,
            EnrolFault::ReplayedCsr,
        ];
        if self.fault.is_some_and(|fault| refuses.contains(&fault)) {
            let body = br#"{"reason":"not today \u001b[31m"}"#.to_vec();
            return Ok((StatusCode::BAD_REQUEST, body));
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if self.fault != Some(EnrolFault::Forgets) {
            self.disk().accept(&issued.certificate)?;
        }
        Ok((StatusCode::NO_CONTENT, Vec::new()))
    }

    pub(super) fn fault(&self) -> Option<EnrolFault> {
        self.fault
    }
}

fn json(status: StatusCode, body: &impl Serialize) -> Result<ProtocolAnswer> {
    Ok((status, serde_json::to_vec(body)?))
}

/// The part of an identity after the trust domain, as the real agent compares it.
fn path_of(identity: &str) -> Option<&str> {
    let (_, path) = identity.strip_prefix("spiffe://")?.split_once('/')?;
    Some(path)
}

/// The part of an identity that names the VM.
fn vm_of(identity: &str) -> Option<&str> {
    path_of(identity)?.rsplit_once('/').map(|(vm, _)| vm)
}
