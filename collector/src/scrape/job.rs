//! One pull of a VM, with the enrolment of its agent.

use std::{sync::Arc, time::Duration};

use virtfleet_collector_core::dial::DialTarget;

use super::{
    Puller,
    concurrency::PendingPermits,
    pull::{KeptConnection, PullEnd},
};
use crate::enrolment::Enroller;

/// One pull of a VM, with its enrolment or the renewal of its certificate.
pub(super) struct PullJob {
    pub(super) target: DialTarget,
    pub(super) connect_timeout: Duration,
    pub(super) first: PendingPermits,
    /// For the pull after an enrolment.
    pub(super) second: PendingPermits,
    pub(super) puller: Puller,
    pub(super) enroller: Option<Arc<Enroller>>,
}

impl PullJob {
    /// Returns the end of the pull, and the pause until the next one, if it is not to wait for the
    /// next interval. `started` is called when the pull has its permits.
    pub(super) async fn run(
        self,
        kept: KeptConnection,
        started: impl FnOnce(),
    ) -> (PullEnd, Option<Duration>, DialTarget) {
        let Self {
            target,
            connect_timeout,
            first,
            second,
            puller,
            enroller,
        } = self;
        let permits = first.acquire().await;
        started();
        let mut ended = puller.pull(&target, kept, connect_timeout).await;
        drop(permits);
        let Some(enroller) = enroller else {
            return (ended, None, target);
        };
        let mut retry_in = None;
        if let Err(rejected) = &ended.outcome
            && ended.rejected_certificate
        {
            let attempt = enroller.enrol(&target, rejected.clone()).await;
            retry_in = attempt.retry_in;
            if let Some(failure) = attempt.failure {
                ended.outcome = Err(failure);
            } else {
                let permits = second.acquire().await;
                ended = puller.pull(&target, None, connect_timeout).await;
                drop(permits);
            }
        }
        if let (Ok(answer), Some(connection)) = (&mut ended.outcome, &mut ended.connection)
            && enroller.is_renewal_due(&target, connection.peer())
        {
            match enroller.renew(&target, connection).await {
                // The next pull verifies the new certificate.
                Ok(()) => ended.connection = None,
                Err(reason) => {
                    if let Some(certificate) = &mut answer.certificate {
                        certificate.renewal = Some(reason);
                    }
                }
            }
        }
        (ended, retry_in, target)
    }
}
