//! What an agent is to be: its VM, its disk, and what it does wrong.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use super::{AgentDisk, EnrolFault, PushPace, PushTo};
use crate::sim::Guest;

/// An agent to run.
#[derive(Debug, Clone)]
pub struct AgentSpec {
    /// The VM in which it runs.
    pub guest: Guest,
    /// Address on which it listens; the guest's, unless it attacks.
    pub address: SocketAddr,
    /// Its disk.
    pub disk: AgentDisk,
    /// What it does wrong.
    pub fault: Option<EnrolFault>,
    /// The VM whose identity its reports have, if it is another one.
    pub reports_as: Option<Guest>,
    /// Where it connects to while no collector dials it; then its own address refuses connections,
    /// see [`RunningAgent::set_reachable`].
    pub push: Option<PushTo>,
    /// The join token that it shows.
    pub token: Option<String>,
    /// The file of the kubelet that vouches for its key, in PEM.
    pub kubelet: Option<String>,
}

impl AgentSpec {
    /// An honest agent of `guest` with a new disk.
    pub fn honest(guest: &Guest) -> Result<Self> {
        Ok(Self {
            guest: guest.clone(),
            address: guest.address,
            disk: AgentDisk::new()?,
            fault: None,
            reports_as: None,
            push: None,
            token: None,
            kubelet: None,
        })
    }

    /// The same, which cannot be dialled and connects to `collector` from its own address.
    #[must_use]
    pub fn pushing(self, collector: SocketAddr) -> Self {
        let source = self.address.ip();
        self.pushing_from(collector, source)
    }

    /// The same with a join token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// The same with a kubelet's file: certificate and private key in PEM.
    #[must_use]
    pub fn with_kubelet(mut self, pem: &str) -> Self {
        self.kubelet = Some(pem.to_owned());
        self
    }

    /// The same from another source address.
    #[must_use]
    pub fn pushing_from(mut self, collector: SocketAddr, source: IpAddr) -> Self {
        let pace = PushPace::Quick;
        self.push = Some(PushTo {
            collector,
            source,
            pace,
        });
        self
    }

    /// The same, which connects when the real agent would.
    #[must_use]
    pub fn at_real_pace(mut self, seed: u64) -> Self {
        if let Some(push) = &mut self.push {
            push.pace = PushPace::Real(seed);
        }
        self
    }

    /// The same with another disk, i.e. with its key and certificate.
    #[must_use]
    pub fn with_disk(mut self, disk: AgentDisk) -> Self {
        self.disk = disk;
        self
    }

    /// The same with a fault.
    #[must_use]
    pub fn with_fault(mut self, fault: EnrolFault) -> Self {
        self.fault = Some(fault);
        self
    }
}
