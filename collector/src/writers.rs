//! Everything that writes to Kubernetes, put together: the election, the label sender, Events, GuestHealth. With the manifest
//! folder nobody writes, and labels are planned all the same.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::labels::plan::plan;
use virtfleet_wire::ids::{ClusterName, VmKey};

use crate::{
    config::CollectorConfig,
    events::{self, EventRecorder},
    fleet::Fleet,
    health::{self, KubeHealth},
    labels::{
        self, Clients, ConfirmationDelays, KubeNodes, LabelMetrics, LabelReconciler, LabelStatusStore,
        SenderSettings,
    },
    leader::{self, Candidate, KubeLease, Timing, Writing},
    objects::publish::{Sources, publish},
    tenants::Tenants,
};

/// How long the end waits until the Lease was given up.
const LAST_WORD: Duration = Duration::from_secs(5);

impl Clients for Tenants {
    fn client(&self, cluster: &ClusterName) -> Option<kube::Client> {
        Self::client(self, cluster)
    }
}

/// See the module.
pub struct Writers {
    /// What became of each VM's labels.
    pub book: Arc<LabelStatusStore>,
    /// Whether this process may write.
    pub writing: Writing,
    leader: Option<JoinHandle<()>>,
}

impl Writers {
    /// Starts all of them among `parts`, until `stop`. `changes` names the VMs whose labels may have to change.
    pub fn start(
        config: &CollectorConfig,
        fleet: &Arc<Fleet>,
        tenants: &Arc<Tenants>,
        changes: mpsc::Receiver<Vec<VmKey>>,
        registry: &mut Registry,
        parts: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let identity = leader::identity();
        let infra = tenants.infra();
        let gauge = leader::register(registry);
        let election = &config.leader_election;
        let (writing, leader) = match &infra {
            Some(client) if election.enabled => {
                let namespace = leader::namespace(election.namespace.as_deref(), client);
                let lease = KubeLease::new(client.clone(), &namespace, &election.name);
                let seconds = |count: u32| Duration::from_secs(count.into());
                let timing = Timing {
                    lease: seconds(election.lease_seconds),
                    renew: seconds(election.renew_seconds),
                    retry: seconds(election.retry_seconds),
                };
                let name = format!("{namespace}/{}", election.name);
                let (candidate, writing) = Candidate::new(lease, name, identity.clone(), timing, gauge);
                (writing, Some(tokio::spawn(candidate.run(stop.clone()))))
            }
            alone => {
                gauge.set(i64::from(alone.is_some()));
                (Writing::fixed(alone.is_some()), None)
            }
        };

        let (events, told) = EventRecorder::channel(Some(&mut *registry));
        let book = Arc::<LabelStatusStore>::default();
        let settings = SenderSettings {
            write: config.labels.write,
            per_second: config.labels.requests_per_second,
            parallel: config.labels.parallel as usize,
            recheck: config.labels.recheck.0,
            confirm: ConfirmationDelays {
                removal: config.labels.confirm_removal.0,
                change: config.labels.confirm_change.0,
            },
        };
        let shared = LabelReconciler::new(
            Arc::clone(fleet),
            KubeNodes::new(Arc::clone(tenants)),
            writing.clone(),
            Arc::clone(&book),
            events.clone(),
            LabelMetrics::register(registry),
            settings,
            plan,
        );
        parts.spawn(forever(labels::run(shared, changes, stop.clone())));
        if let Some(client) = infra {
            let namespaces = config
                .inventory
                .cluster
                .iter()
                .flat_map(|cluster| &cluster.namespaces);
            let namespaces = namespaces.map(|name| name.parse().context("inventory.cluster.namespaces"));
            let store = KubeHealth::new(client, namespaces.collect::<anyhow::Result<_>>()?);
            parts.spawn(forever(health::run(
                Arc::clone(fleet),
                Arc::clone(&book),
                store,
                writing.clone(),
                stop.clone(),
            )));
            let sources = Sources {
                tenants: Arc::clone(tenants),
                fleet: Arc::clone(fleet),
                book: Arc::clone(&book),
                events: events.clone(),
            };
            parts.spawn(forever(publish(sources, writing.clone(), stop.clone())));
            let follow = events::follow_tenants(events.clone(), Arc::clone(tenants), stop.clone());
            parts.spawn(forever(follow));
        }
        let tell = events::run(
            events,
            told,
            Arc::clone(tenants),
            writing.clone(),
            identity,
            stop.clone(),
        );
        parts.spawn(forever(tell));
        Ok(Self {
            book,
            writing,
            leader,
        })
    }

    /// After `stop`: returns when the Lease was given up, so that the next one need not wait for it to expire.
    pub async fn end(self) {
        if let Some(leader) = self.leader
            && tokio::time::timeout(LAST_WORD, leader).await.is_err()
        {
            tracing::warn!("the Lease was not given up in time; it expires");
        }
    }
}

async fn forever(part: impl Future<Output = ()>) -> anyhow::Result<()> {
    part.await;
    Ok(())
}
