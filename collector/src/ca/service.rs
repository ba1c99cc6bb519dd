//! The authority while the collector runs: followed, described, and rotated by the leader.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use virtfleet_runtime::tls::{ClientTls, HeldIdentity};

use super::{
    Authorities, CaMetrics, CaStatus, CaStore, CaStoreError, RootKind, Rotation, SecretClients, UnixSeconds,
    api_certificate::ApiCertificate, metrics::OwnKind, own_certificate::OwnCertificate,
};
use crate::{
    config::{CollectorConfig, EnrolmentSettings},
    leader::{self, LeaseView, WriteAccess},
};

/// Maximum time at the start until the API server answers.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval between two attempts at the start.
const START_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two searches for roots that are no longer needed.
const PRUNE_INTERVAL: Duration = Duration::from_mins(10);
const API_SERVICE: &str = "virtfleet-collector";
/// A change of the authority takes at most this long: a read and a write, with retries.
const UPDATE_MARGIN: Duration = Duration::from_secs(3);

/// The authority, loaded at the start and not followed yet.
#[derive(Debug)]
pub struct LoadedCa {
    store: CaStore,
    authorities: Authorities,
    /// Lifetime of certificates, in seconds.
    lifetime: u64,
    /// None if the settings have a certificate of the API, or it needs none.
    api: Option<ApiCertificate>,
}

/// The authority while the collector runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CaService {
    store: CaStore,
    authorities: watch::Receiver<Arc<Authorities>>,
    lifetime: u64,
    write_access: WriteAccess,
}

/// Why the authority was not changed.
#[derive(Debug, thiserror::Error)]
pub enum CaChangeError {
    #[error("only the leader changes the authority")]
    NotLeading(LeaseView),
    /// This process lost the Lease while it changed the authority.
    #[error("this collector stopped leading before the change was complete")]
    LostLead,
    /// It cannot be read or written, or the change is refused.
    #[error(transparent)]
    Store(#[from] CaStoreError),
}

impl LoadedCa {
    /// Loads the authority that the settings name, and creates it if it is absent; none without
    /// `enrolment`. `clients` are those of the infra cluster, with `inventory.cluster`. An API
    /// server that does not answer is retried for a minute.
    ///
    /// # Errors
    /// The authority cannot be loaded.
    pub async fn load(
        config: &CollectorConfig,
        clients: Option<&SecretClients>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(settings) = &config.enrolment else {
            return Ok(None);
        };
        let store = store(config, settings, clients);
        let until = Instant::now() + START_TIMEOUT;
        loop {
            match store.load_or_create(now()).await {
                Ok(authorities) => {
                    let api = api_certificate(config, settings, clients, &authorities);
                    return Ok(Some(Self {
                        store,
                        authorities,
                        lifetime: settings.lifetime.0.as_secs(),
                        api: api.context("enrolment: no certificate of the API can be issued")?,
                    }));
                }
                Err(error) if error.is_transient() && Instant::now() < until => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "the authority cannot be loaded yet; it will be retried");
                    tokio::time::sleep(START_RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error).context("enrolment: the authority cannot be loaded"),
            }
        }
    }

    /// What the API's server presents, if the collector issues its certificate.
    pub(crate) fn api_identity(&self) -> Option<Arc<HeldIdentity>> {
        self.api.as_ref().map(ApiCertificate::identity)
    }

    /// Starts all tasks in `parts`, until `stop`. `tls` gets the collector's certificate before
    /// this returns.
    ///
    /// # Errors
    /// No certificate can be issued.
    pub fn start(
        self,
        tls: Arc<ClientTls>,
        write_access: WriteAccess,
        registry: &mut Registry,
        parts: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<CaService> {
        let (publish, authorities) = watch::channel(Arc::new(self.authorities));
        let metrics = CaMetrics::register(registry);
        // That of the API was issued when the authority was loaded, just before.
        if let Some(api) = &self.api {
            metrics.own_certificate(OwnKind::Api, api.first());
        }
        let mut own = OwnCertificate {
            tls,
            authorities: authorities.clone(),
            trust_domain: self.store.trust_domain().to_owned(),
            lifetime: self.lifetime,
            clock: now,
            metrics,
            api: self.api,
        };
        let renew_at = own
            .renew_own()
            .context("enrolment: no certificate of this collector can be issued")?;
        parts.spawn(forever(own.run(renew_at, stop.clone())));
        parts.spawn(forever(self.store.clone().follow(publish, now, stop.clone())));
        let service = CaService {
            store: self.store,
            authorities,
            lifetime: self.lifetime,
            write_access,
        };
        parts.spawn(forever(service.clone().prune_repeatedly(stop.clone())));
        Ok(service)
    }
}

impl CaService {
    /// A new authority that cannot be stored.
    #[cfg(test)]
    pub(crate) fn in_memory() -> Self {
        let authorities = Authorities::create("example.org", now()).expect("a new authority");
        let store = CaStore::folder("/nowhere/virtfleet-ca".into(), "example.org");
        Self::of(store, authorities, WriteAccess::fixed(false))
    }

    /// An authority that nothing follows.
    #[cfg(test)]
    pub(crate) fn of(store: CaStore, authorities: Authorities, write_access: WriteAccess) -> Self {
        Self {
            store,
            authorities: watch::channel(Arc::new(authorities)).1,
            lifetime: 86_400,
            write_access,
        }
    }

    /// The authority, and its changes.
    pub fn authorities(&self) -> watch::Receiver<Arc<Authorities>> {
        self.authorities.clone()
    }

    /// Public description.
    pub fn status(&self) -> CaStatus {
        self.status_of(&self.authorities.borrow())
    }

    /// Roots of clients in PEM: the text for user-data.
    pub fn client_roots_pem(&self) -> String {
        self.authorities.borrow().client_roots_pem()
    }

    /// Adds a new root that signs from now on.
    ///
    /// # Errors
    /// This process does not lead, or the change is refused or cannot be written.
    pub async fn rotate(&self, rotation: Rotation) -> Result<CaStatus, CaChangeError> {
        let rotated = self
            .update(move |authorities| rotation.apply(authorities, now()))
            .await?;
        tracing::info!(?rotation, "rotated a root of the authority");
        Ok(self.status_of(&rotated))
    }

    /// Changes the authority as the leader.
    ///
    /// # Errors
    /// This process does not lead, or the change is refused or cannot be written.
    pub async fn update(
        &self,
        change: impl FnMut(&Authorities) -> Result<Authorities, super::CaError> + Send,
    ) -> Result<Authorities, CaChangeError> {
        if let Some(lease) = self.write_access.standby() {
            return Err(CaChangeError::NotLeading(lease));
        }
        let update = self.store.update(now(), change);
        if !self.write_access.leads() {
            // Without a cluster no process leads: the folder belongs to this process.
            return Ok(update.await?);
        }
        match self.write_access.within(UPDATE_MARGIN, update).await {
            Some(updated) => Ok(updated?),
            None => Err(CaChangeError::LostLead),
        }
    }

    fn status_of(&self, authorities: &Authorities) -> CaStatus {
        CaStatus::of(
            authorities,
            &self.store.name(),
            self.store.trust_domain(),
            self.lifetime,
            now(),
        )
    }

    async fn prune_repeatedly(self, stop: CancellationToken) {
        loop {
            if self.write_access.standby().is_none() {
                self.prune().await;
            }
            let pause = tokio::time::sleep(PRUNE_INTERVAL);
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Removes roots that are no longer needed.
    async fn prune(&self) {
        let pruned = |authorities: &Authorities| authorities.pruned(self.lifetime, now());
        if pruned(&self.authorities.borrow()).is_none() {
            return;
        }
        let update = self.update(|known| Ok(pruned(known).unwrap_or_else(|| known.clone())));
        match update.await {
            Ok(_) => tracing::info!("removed roots of the authority that are no longer needed"),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "roots that are no longer needed cannot be removed");
            }
        }
    }
}

/// Where the settings keep the authority.
pub fn store(
    config: &CollectorConfig,
    settings: &EnrolmentSettings,
    clients: Option<&SecretClients>,
) -> CaStore {
    let Some(clients) = clients else {
        return CaStore::folder(settings.folder.clone().into(), &settings.trust_domain);
    };
    let namespace = leader::namespace(config.leader_election.namespace.as_deref(), &clients.requests);
    let external: Vec<_> = [
        (RootKind::Agents, &settings.agents_secret),
        (RootKind::Clients, &settings.clients_secret),
    ]
    .into_iter()
    .filter_map(|(kind, name)| Some((kind, name.clone()?)))
    .collect();
    CaStore::secret(
        clients,
        &namespace,
        &settings.secret,
        &external,
        &settings.trust_domain,
    )
}

/// A certificate of the API for the packaged Services in the collector's namespace; none if the
/// settings do not ask for it.
fn api_certificate(
    config: &CollectorConfig,
    settings: &EnrolmentSettings,
    clients: Option<&SecretClients>,
    authorities: &Authorities,
) -> anyhow::Result<Option<ApiCertificate>> {
    let Some(clients) = clients.filter(|_| config.issues_api_certificate()) else {
        return Ok(None);
    };
    let election = &config.leader_election;
    let namespace = leader::namespace(election.namespace.as_deref(), &clients.requests);
    let services = [Some(API_SERVICE), election.service.as_deref()];
    let names = services.into_iter().flatten();
    let names = names
        .map(|service| format!("{service}.{namespace}.svc"))
        .collect();
    let lifetime = settings.lifetime.0.as_secs();
    ApiCertificate::new(names, authorities, &settings.trust_domain, lifetime, now()).map(Some)
}

async fn forever(part: impl Future<Output = ()>) -> anyhow::Result<()> {
    part.await;
    Ok(())
}

/// The time by this machine's clock.
pub(crate) fn now() -> UnixSeconds {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}
