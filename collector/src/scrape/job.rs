//! One pull of a VM, with the enrolment of its agent.

use std::{sync::Arc, time::Duration};

use virtfleet_collector_core::{
    dial::DialTarget,
    pull_result::{Failure, FailureClass},
};

use super::{
    Puller,
    concurrency::PendingPermits,
    connection::AgentConnection,
    pull::{KeptConnection, PullEnd},
    pushed::{PushedAgent, PushedAgents},
};
use crate::enrolment::Enroller;

/// Timeout of connecting to a VM whose agent has connected itself.
const DIRECT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// One pull of a VM, with its enrolment or the renewal of its certificate.
pub(super) struct PullJob {
    /// Where the VM is dialled, or why it is not.
    pub(super) dial: Result<DialTarget, Failure>,
    /// The connection that its agent opened.
    pub(super) pushed: Option<PushedPull>,
    /// The VM is dialled first, because that worked last; otherwise the agent's connection is used
    /// first, if there is one. The other way is tried at once if the first one does not answer.
    pub(super) dials_first: bool,
    pub(super) connect_timeout: Duration,
    pub(super) first: PendingPermits,
    /// For the pull after an enrolment.
    pub(super) second: PendingPermits,
    pub(super) puller: Puller,
    pub(super) enroller: Option<Arc<Enroller>>,
}

/// A connection that an agent opened, for one pull.
pub(super) struct PushedPull {
    pub(super) agent: Arc<PushedAgent>,
    pub(super) agents: Arc<PushedAgents>,
    /// It will be too old for the next pull. So it is closed after this one, and the agent has the
    /// whole interval to connect again.
    pub(super) is_last: bool,
}

pub(super) struct JobEnd {
    pub(super) ended: PullEnd,
    /// The pause until the next pull, if it is not to wait for the next interval.
    pub(super) retry_in: Option<Duration>,
    /// What was pulled; none if the VM could not be dialled.
    pub(super) target: Option<DialTarget>,
}

impl JobEnd {
    fn new(ended: PullEnd, target: &DialTarget) -> Self {
        Self {
            ended,
            retry_in: None,
            target: Some(target.clone()),
        }
    }

    /// Whether another way to the VM may work.
    fn is_unreachable(&self) -> bool {
        self.ended.closed_before || self.ended.outcome.as_ref().is_err_and(Failure::is_unreachable)
    }
}

impl PullJob {
    /// Pulls the VM. `started` is called when the pull has its permits.
    pub(super) async fn run(self, kept: KeptConnection, started: impl FnOnce()) -> JobEnd {
        let Self {
            dial,
            pushed,
            dials_first,
            connect_timeout,
            first,
            second,
            puller,
            enroller,
        } = self;
        let permits = first.acquire().await;
        started();
        let mut of_push = None;
        if let Some(pushed) = pushed.as_ref().filter(|_| !dials_first) {
            let ended = pushed
                .pull(&puller, enroller.as_deref(), dial.as_ref().ok())
                .await;
            if dial.is_err() || !ended.is_unreachable() {
                return ended;
            }
            of_push = Some(ended);
        }
        let target = match dial {
            Ok(target) => target,
            Err(failure) => {
                return JobEnd {
                    ended: PullEnd::failed(failure),
                    retry_in: None,
                    target: None,
                };
            }
        };
        let connect_timeout = match &of_push {
            // An agent that connects can seldom be dialled.
            Some(ended) if !ended.ended.closed_before => connect_timeout.min(DIRECT_CONNECT_TIMEOUT),
            _ => connect_timeout,
        };
        let mut ended = puller.pull(&target, kept, connect_timeout).await;
        if ended.outcome.as_ref().is_err_and(Failure::is_unreachable) {
            // Its failure says more, unless the agent has closed the connection, as at a restart.
            if let Some(of_push) = of_push.filter(|ended| !ended.ended.closed_before) {
                return of_push;
            }
            if let Some(pushed) = pushed.filter(|_| dials_first) {
                return pushed.pull(&puller, enroller.as_deref(), None).await;
            }
        }
        drop(permits);
        let Some(enroller) = enroller else {
            return JobEnd::new(ended, &target);
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
        if let Some(mut connection) = ended.connection.take() {
            // After a renewal the next pull verifies the new certificate.
            if !renew(&enroller, &target, &mut connection, &mut ended).await {
                ended.connection = Some(connection);
            }
        }
        JobEnd {
            ended,
            retry_in,
            target: Some(target),
        }
    }
}

impl PushedPull {
    /// Pulls over the connection, or over the one that replaces it meanwhile. `direct` is where the
    /// VM would be dialled.
    async fn pull(
        &self,
        puller: &Puller,
        enroller: Option<&Enroller>,
        direct: Option<&DialTarget>,
    ) -> JobEnd {
        // Otherwise a VM that can be dialled again would never be: its agent connects again at
        // once.
        if self.is_last
            && let Some(direct) = direct
        {
            let ended = puller.pull(direct, None, DIRECT_CONNECT_TIMEOUT).await;
            if ended.outcome.is_ok() {
                self.agents.remove(&self.agent);
                return JobEnd::new(ended, direct);
            }
        }
        let ended = self.pull_one(&self.agent, puller, enroller).await;
        match self.agents.successor(&self.agent) {
            Some(newer) if ended.ended.outcome.is_err() => self.pull_one(&newer, puller, enroller).await,
            _ => ended,
        }
    }

    async fn pull_one(
        &self,
        agent: &Arc<PushedAgent>,
        puller: &Puller,
        enroller: Option<&Enroller>,
    ) -> JobEnd {
        let target = agent.target();
        let timeout = puller.limits.timeout;
        let Ok(mut connection) = tokio::time::timeout(timeout, agent.lock()).await else {
            let message = format_args!(
                "the connection of the agent was in use for {timeout:?}: a client of the collector reads the page of {} slowly",
                target.key
            );
            let failure = target.way.explain(Failure::new(FailureClass::Timeout, message));
            return JobEnd::new(PullEnd::failed(failure), target);
        };
        let mut ended = puller.pull_over(&mut connection).await;
        let is_renewed = match enroller {
            Some(enroller) => renew(enroller, target, &mut connection, &mut ended).await,
            None => false,
        };
        drop(connection);
        if ended.outcome.is_err() || is_renewed || self.is_last {
            self.agents.remove(agent);
        }
        JobEnd::new(ended, target)
    }
}

/// Renews the certificate of an agent that has answered, if it is due. Returns whether the agent
/// has a new one.
async fn renew(
    enroller: &Enroller,
    target: &DialTarget,
    connection: &mut AgentConnection,
    ended: &mut PullEnd,
) -> bool {
    let Ok(answer) = &mut ended.outcome else {
        return false;
    };
    if !enroller.is_renewal_due(target, connection.peer()) {
        return false;
    }
    match enroller.renew(target, connection).await {
        Ok(()) => true,
        Err(reason) => {
            if let Some(certificate) = &mut answer.certificate {
                certificate.renewal = Some(reason);
            }
            false
        }
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
