//! The Lease on the simulated infra cluster.

use std::time::Duration;

use tokio::{sync::oneshot, time::sleep};

use super::world::SharedWorld;
use crate::leader::{ElectionTiming, LeaseRecord, LeaseStore};

/// The timing of an election as packaged.
pub(super) const TIMING: ElectionTiming = ElectionTiming {
    lease: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// One collector's access to the Lease.
#[derive(Clone)]
pub(super) struct SimLease {
    pub(super) world: SharedWorld,
    pub(super) collector: usize,
}

impl SimLease {
    /// Travels to the API server; never arrives while the collector is cut off.
    async fn travel(&self) {
        let (cut, delay) = {
            let world = &mut *self.world.lock();
            let cut = world.faults.cut_from_lease.contains(&self.collector);
            (cut, world.faults.lag(&mut world.rng))
        };
        if cut {
            std::future::pending::<()>().await;
        }
        sleep(Duration::from_millis(delay)).await;
    }

    fn replace(&self, record: LeaseRecord, over: Option<u64>) -> Result<u64, String> {
        let world = &mut *self.world.lock();
        let version = world.lease.as_ref().map(|lease| lease.1);
        if version != over {
            return Err("conflict".to_owned());
        }
        let next = version.unwrap_or_default() + 1;
        let before = world.lease.as_ref().and_then(|lease| lease.0.holder.clone());
        if before != record.holder {
            world.note(&format!("Lease: {:?}", record.holder));
        }
        world.lease = Some((record, next));
        Ok(next)
    }
}

impl LeaseStore for SimLease {
    type Version = u64;

    async fn read(&self) -> Result<Option<(LeaseRecord, u64)>, String> {
        self.travel().await;
        let found = self.world.lock().lease.clone();
        Ok(found)
    }

    async fn write(&self, record: &LeaseRecord, over: Option<&u64>) -> Result<u64, String> {
        // It arrives also if the candidate does not wait for the answer.
        let (sender, answer) = oneshot::channel();
        let (lease, record, over) = (self.clone(), record.clone(), over.copied());
        tokio::spawn(async move {
            lease.travel().await;
            sender.send(lease.replace(record, over)).ok();
        });
        let answer = answer.await.map_err(|error| error.to_string())?;
        self.travel().await;
        answer
    }
}
