//! What the heartbeats of a kubelet say about its Node beyond the condition `Ready`, for infra
//! nodes and for Nodes of user clusters.

use super::{evaluation::Evaluation, verdict::HealthCause};
use crate::heartbeats::Hearing;

/// What differs between the two kinds of Nodes.
pub(super) struct KubeletSilence<'a> {
    /// As a message calls the cluster.
    pub(super) cluster: &'static str,
    /// As a message calls the Node, with its name.
    pub(super) node: &'a str,
    /// Who is to blame for a kubelet that has become silent.
    pub(super) cause: HealthCause,
    /// Reason while another heartbeat is awaited.
    pub(super) awaited: &'static str,
    /// Reason once the kubelet is silent.
    pub(super) old: &'static str,
}

impl KubeletSilence<'_> {
    /// None while the kubelet lives. What is found counts at once, because the limits of the
    /// heartbeats are long enough.
    pub(super) fn evaluate(&self, hearing: Hearing) -> Option<Evaluation> {
        let Self { cluster, node, .. } = self;
        match hearing {
            Hearing::Heard => None,
            Hearing::Awaited => {
                let message = format!(
                    "the last sign of life of the kubelet of the {node} is old, and it has had no time for another one since the \
                     collector has reached the API server"
                );
                let awaited = Evaluation::unknown(HealthCause::Network, self.awaited, message);
                Some(awaited.immediate().undecided())
            }
            Hearing::Silent => {
                let message = format!(
                    "the {cluster} calls the {node} ready, and its kubelet has given no sign of life for minutes: the \
                     controller manager of the {cluster} may be down; if this holds for most of its Nodes, its API \
                     server may accept no writes, e.g. because etcd has no space"
                );
                Some(Evaluation::unknown(self.cause, self.old, message).immediate())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_whose_writes_are_refused_are_not_called_dead() {
        let silence = KubeletSilence {
            cluster: "user cluster",
            node: "Node n",
            cause: HealthCause::Guest,
            awaited: "HeartbeatAwaited",
            old: "HeartbeatOld",
        };
        let found = silence.evaluate(Hearing::Silent).unwrap();
        assert_eq!(found.reason, "HeartbeatOld");
        assert!(
            found.message.contains("API server may accept no writes"),
            "{found:?}"
        );
    }
}
