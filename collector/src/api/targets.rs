//! `GET /api/v1/targets`: the last metrics page of each VM, as the collector pulled it. Without a
//! stream of samples it has what the pull itself shows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::{
    access::redact::Redactor,
    mla::status::{TargetError, TargetErrorReason, TargetStatus},
    pull_result::UnixMs,
    view::{AgentStatus, VmView},
};
use virtfleet_wire::ids::{ClusterName, Namespace, VmName};

use super::{error::ApiError, paging, reply::Reply, route::ApiRequest, vm_filter};

/// The last metrics page of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetView {
    /// The VM's namespace.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: VmName,
    /// The user cluster that the VM serves.
    pub cluster: Option<ClusterName>,
    /// Status of its agent.
    pub agent: AgentStatus,
    /// Whether its samples are put into a stream.
    pub in_stream: bool,
    /// Start of the last pull for a stream, otherwise the end of the last pull.
    pub last_scrape_ms: Option<UnixMs>,
    /// Duration of the pull, in milliseconds.
    pub took_ms: Option<u64>,
    /// Samples on the page, before relabelling.
    pub samples: Option<u64>,
    /// Series that the page before did not have; none without a stream.
    pub series_added: Option<u64>,
    /// Size of the page, in bytes; none without a stream.
    pub page_bytes: Option<u64>,
    /// Samples that relabelling dropped; none without a stream.
    pub dropped_by_relabel: Option<u64>,
    /// Why the page was not used; none if it was.
    pub error: Option<TargetError>,
}

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let mut statuses = request.api.mla.targets();
    let redactor = request.tenant.as_ref().and_then(|tenant| tenant.redactor());
    let vms = vm_filter::selected(request)?;
    let views = vms.iter().map(|(key, vm)| match statuses.remove(key) {
        Some(status) => of_stream(vm, status, redactor.as_ref()),
        None => of_pull(vm),
    });
    let selected = views.filter(|view| {
        let error = view.error.as_ref().map_or("none", |error| error.reason.as_str());
        request.query.admits("error", Some(error))
    });
    Reply::json(&paging::page(
        selected,
        |view| [view.namespace.as_str(), view.name.as_str()],
        &request.query,
        &request.snapshot,
    )?)
}

/// The error of a pull as the view of the VM has it: it hides from a tenant what it must.
fn pull_error(vm: &VmView) -> Option<TargetError> {
    let failure = vm.agent.failure.as_ref()?;
    Some(TargetError {
        reason: TargetErrorReason::PullFailed,
        message: format!("{}: {}", failure.class.as_str(), failure.message()),
    })
}

fn of_pull(vm: &VmView) -> TargetView {
    TargetView {
        namespace: vm.namespace.clone(),
        name: vm.name.clone(),
        cluster: vm.cluster.clone(),
        agent: vm.agent.status,
        in_stream: false,
        last_scrape_ms: vm.agent.last_try_ms,
        took_ms: vm.agent.took_ms,
        samples: vm.guest.as_ref().map(|guest| guest.metrics.samples),
        series_added: None,
        page_bytes: None,
        dropped_by_relabel: None,
        error: pull_error(vm),
    }
}

fn of_stream(vm: &VmView, status: TargetStatus, redactor: Option<&Redactor>) -> TargetView {
    let error = status.error.map(|error| match error.reason {
        // Its own text may name what a tenant must not see.
        TargetErrorReason::PullFailed => pull_error(vm).unwrap_or_else(|| TargetError {
            reason: TargetErrorReason::PullFailed,
            message: "the agent did not answer with a complete page".to_owned(),
        }),
        TargetErrorReason::Malformed | TargetErrorReason::OverLimit => TargetError {
            message: redactor.map_or_else(|| error.message.clone(), |redactor| redactor.text(&error.message)),
            ..error
        },
    });
    TargetView {
        in_stream: true,
        last_scrape_ms: Some(status.last_scrape_ms),
        took_ms: Some(status.took_ms),
        samples: Some(status.samples),
        series_added: Some(status.series_added),
        page_bytes: Some(status.page_bytes),
        dropped_by_relabel: Some(status.dropped_by_relabel),
        error,
        ..of_pull(vm)
    }
}
