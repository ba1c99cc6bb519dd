//! `MetricsDelivered`: the receiver of a stream accepts the VM's metrics.
//!
//! It never lowers the verdict: a receiver that is down is no problem of the VM. Only the leader
//! knows about it.

use virtfleet_wire::ids::ClusterName;

use super::{evaluation::Evaluation, facts::HealthFacts, verdict::HealthCause};
use crate::{
    mla::delivery::{PageDelivery, StreamDelivery, VmDelivery},
    view::AgentStatus,
};

/// Reason where no stream takes the metrics: the condition is not shown.
pub(super) const NO_STREAM: &str = "NoStream";

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let Some(delivery) = facts.delivery else {
        return Evaluation::not_required(NO_STREAM, "no stream takes the metrics of the VM");
    };
    let evaluation = of_vm(facts, delivery);
    if delivery.cluster.is_some() {
        evaluation
    } else {
        evaluation.for_operators()
    }
}

fn of_vm(facts: &HealthFacts<'_>, delivery: VmDelivery<'_>) -> Evaluation {
    if delivery.stream == StreamDelivery::Suspended {
        return Evaluation::not_required("Suspended", "spec.mla.suspend is set, so nothing is sent");
    }
    if facts.agent.status == AgentStatus::Off {
        let message = format!("the VM is {}, so it has no metrics", facts.state.as_str());
        return Evaluation::not_required("NotRunning", message);
    }
    match delivery.page {
        PageDelivery::Read => of_stream(delivery),
        PageDelivery::OverLimit(why) => {
            let message =
                format!("the metrics page of the VM exceeds a limit, so no sample of it is sent: {why}");
            Evaluation::notice(HealthCause::Guest, "PageOverLimit", message)
                .measured()
                .next("virtfleetctl mla targets --error overLimit -o wide")
        }
        PageDelivery::NotRead if facts.is_first_pull_pending() => {
            Evaluation::not_required("Waiting", "the agent has not been pulled yet").undecided()
        }
        PageDelivery::NotRead => Evaluation::not_required(
            "NotScraped",
            "this collector has read no metrics page of the VM in the last 5 minutes",
        ),
    }
}

fn of_stream(delivery: VmDelivery<'_>) -> Evaluation {
    let stream = stream_name(delivery.cluster);
    let (reason, message) = match delivery.stream {
        StreamDelivery::Delivered | StreamDelivery::Suspended => {
            let message = format!("the receiver of {stream} accepts samples");
            return Evaluation::holds("Delivered", message);
        }
        StreamDelivery::Late => {
            let message = format!("the receiver of {stream} accepts samples, and gets older ones first");
            return Evaluation::holds("Late", message);
        }
        StreamDelivery::Untried => {
            let message = format!("the receiver of {stream} has not accepted samples of this collector yet");
            return Evaluation::not_required("Waiting", message);
        }
        StreamDelivery::NoReceiver => (
            "NoReceiver",
            format!("{stream} has no receiver that can be used: samples wait in its queue"),
        ),
        StreamDelivery::Stopped => (
            "StreamStopped",
            format!("{stream} cannot be used: its queue is not writable, or its certificate has expired"),
        ),
        StreamDelivery::Refused => (
            "ReceiverRefuses",
            format!("the receiver of {stream} refuses samples for good"),
        ),
        StreamDelivery::QueueFull => (
            "QueueFull",
            format!("the queue of {stream} drops its oldest samples: its receiver accepts fewer than arrive"),
        ),
        StreamDelivery::Unreachable => (
            "ReceiverUnreachable",
            format!("requests to the receiver of {stream} fail: samples wait in its queue"),
        ),
    };
    Evaluation::notice(HealthCause::Receiver, reason, message).next("virtfleetctl mla queues -o wide")
}

fn stream_name(cluster: Option<&ClusterName>) -> String {
    cluster.map_or_else(
        || "the operator's stream".to_owned(),
        |cluster| format!("the stream of the user cluster {cluster}"),
    )
}
