//! Facts about one VM from which its health follows, borrowed from the index.

use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, NodeName, VmKey},
};

use crate::{
    contention::HostContention,
    facts::{InfraNode, UserNode, Vm, Vmi},
    keys::NodeMatch,
    pull_result::{Answer, Failure, UnixMs},
    reported::{ReportedCondition, ReportedStatus},
    tenant::Tenant,
    usage::GuestUsage,
    view::{AgentStatus, ClusterState, VmState},
    volumes::{ReadVolumes, VolumeWait, wait_of},
};

/// Age of the last answer of an agent, in milliseconds, after which it is no evidence any more.
pub(super) const MAX_REPORT_AGE_MS: u64 = 300_000;
/// Time for which a VM that runs may boot, in milliseconds.
pub(super) const MAX_BOOT_MS: u64 = 300_000;
/// Time in a transitional state, in milliseconds, after which it counts as a problem.
pub(super) const MAX_TRANSITION_MS: u64 = 600_000;

/// Age of what was read of a VM's volumes, in milliseconds, after which it is no evidence any more.
pub(super) const MAX_VOLUMES_AGE_MS: u64 = 300_000;

/// What is known of a VM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthFacts<'a> {
    pub(crate) key: &'a VmKey,
    pub(crate) now_ms: UnixMs,
    pub(crate) vmi: Option<&'a Vmi>,
    pub(crate) vm: Option<&'a Vm>,
    pub(crate) state: VmState,
    /// Since when it has this state, as far as the collector has seen it.
    pub(crate) state_since_ms: UnixMs,
    /// When the VMI began to run, by KubeVirt; the collector may have started later.
    pub(crate) started_ms: Option<UnixMs>,
    /// The name of its infra node: `status.nodeName`.
    pub(crate) host: Option<&'a NodeName>,
    /// That node; none if the inventory does not have it.
    pub(crate) infra_node: Option<&'a InfraNode>,
    pub(crate) tenant: &'a Tenant,
    /// Its labels name a user cluster that does not select it.
    pub(crate) is_tenant_pending: bool,
    /// State of its user cluster.
    pub(crate) cluster_state: Option<ClusterState>,
    /// How its Node was found, or why none is joined with it.
    pub(crate) node_match: &'a NodeMatch,
    pub(crate) user_node: Option<&'a UserNode>,
    pub(crate) agent: AgentFacts<'a>,
    /// Use of CPU and memory between the last two answers.
    pub(crate) usage: Option<GuestUsage>,
    /// Comparison with the other VMs of its infra node, if that is needed.
    pub(crate) contention: Option<&'a HostContention>,
    /// The collector's findings about it.
    pub(crate) findings: &'a [Finding],
    /// The inventory does not follow the infra cluster at present.
    pub(crate) is_inventory_stale: bool,
    /// Its claims and DataVolumes as they were read last; none unless it waits for them.
    pub(crate) volumes: Option<&'a ReadVolumes>,
}

/// What is known of a VM's agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentFacts<'a> {
    pub(crate) status: AgentStatus,
    /// Whether the VM should have an agent.
    pub(crate) is_expected: bool,
    /// Failure of the last pull.
    pub(crate) failure: Option<&'a Failure>,
    /// Time of the last pull.
    pub(crate) last_try_ms: Option<UnixMs>,
    /// The last answer and its time.
    pub(crate) answer: Option<(UnixMs, &'a Answer)>,
}

impl<'a> HealthFacts<'a> {
    /// The answer of the agent, while it is fresh enough to be evidence.
    pub(super) fn fresh_answer(&self) -> Option<&'a Answer> {
        let (at, answer) = self.agent.answer?;
        (self.now_ms.saturating_sub(at) <= MAX_REPORT_AGE_MS).then_some(answer)
    }

    /// Whether the agent answers now, which proves that the guest runs.
    pub(super) fn is_answering(&self) -> bool {
        self.agent.status == AgentStatus::Up && self.fresh_answer().is_some()
    }

    /// Whether it has been in its state for so long that this is a problem.
    pub(super) fn is_stuck(&self) -> bool {
        self.now_ms.saturating_sub(self.state_since_ms) >= MAX_TRANSITION_MS
    }

    /// Whether the agent has not been pulled yet, and it is too early to say that it never will.
    pub(super) fn is_first_pull_pending(&self) -> bool {
        self.agent.status == AgentStatus::Waiting && !self.is_stuck()
    }

    /// Whether the VM may still boot: it has run for a short time, and its agent never answered.
    pub(super) fn may_boot(&self) -> bool {
        self.agent.answer.is_none() && self.now_ms < self.boot_ends_ms()
    }

    /// Until when the VM may boot. A VM that starts anew has run for no longer than its state.
    fn boot_ends_ms(&self) -> UnixMs {
        let since = self.started_ms.filter(|started| *started < self.state_since_ms);
        let since = since.filter(|_| self.state == VmState::Running);
        since.unwrap_or(self.state_since_ms).saturating_add(MAX_BOOT_MS)
    }

    /// The VMI's condition of this type, if it has this status.
    pub(super) fn vmi_condition(&self, kind: &str, status: ReportedStatus) -> Option<&'a ReportedCondition> {
        self.vmi?.conditions.with_status(kind, status)
    }

    /// Whether the QEMU guest agent answers the readiness probe of the VMI; none without such a
    /// probe, and while the VM is not ready for another reason.
    pub(super) fn guest_ping(&self) -> Option<bool> {
        let vmi = self.vmi?;
        vmi.spec.as_deref().filter(|spec| spec.pings_guest)?;
        match vmi.conditions.status("Ready")? {
            ReportedStatus::True => Some(true),
            ReportedStatus::False => Some(false),
            ReportedStatus::Unknown => None,
        }
    }

    /// The user cluster that selects the VM.
    pub(super) fn cluster(&self) -> Option<&'a ClusterName> {
        self.tenant.cluster()
    }

    /// `status.printableStatus` of its VirtualMachine.
    pub(super) fn printable_status(&self) -> Option<&'a str> {
        self.vm?.printable_status.as_deref()
    }

    /// Whether the infra node is known not to run its VMs normally: not ready, or unreachable.
    pub(super) fn is_host_down(&self) -> bool {
        self.infra_node.is_some_and(|node| {
            let ready = node.conditions.status("Ready");
            ready.is_some_and(|status| status != ReportedStatus::True) || node.ready == Some(false)
        })
    }

    /// The volume for which the VM waits, as KubeVirt says.
    pub(super) fn volume_wait(&self) -> Option<VolumeWait<'a>> {
        wait_of(self.vm, self.vmi, self.state)
    }

    /// What was read of its volumes, while it is fresh enough to be evidence.
    pub(super) fn fresh_volumes(&self) -> Option<&'a ReadVolumes> {
        let is_fresh = |read: &&ReadVolumes| self.now_ms.saturating_sub(read.at_ms) <= MAX_VOLUMES_AGE_MS;
        self.volumes.filter(is_fresh)
    }

    /// Whether it has waited for a volume for so long that this is a problem. A VM that was stopped
    /// before has waited for less time than its state says.
    pub(super) fn waits_too_long(&self) -> bool {
        let since = self.fresh_volumes().map_or(0, |read| read.since_ms);
        self.is_stuck() && self.now_ms.saturating_sub(since) >= MAX_TRANSITION_MS
    }

    /// A command that shows the VMI, or its VirtualMachine if there is no VMI.
    pub(super) fn describe(&self) -> String {
        let kind = if self.vmi.is_some() { "vmi" } else { "vm" };
        format!(
            "kubectl -n {} describe {kind} {}",
            self.key.namespace, self.key.name
        )
    }

    /// A command that shows what the guest itself shows.
    pub(super) fn open_console(&self) -> String {
        format!("virtctl -n {} console {}", self.key.namespace, self.key.name)
    }

    /// A command that lists the findings about the VMs of its namespace, with their remedies.
    pub(super) fn list_findings(&self) -> String {
        format!("virtfleetctl findings -n {}", self.key.namespace)
    }

    /// The next time at which the facts alone change their meaning.
    pub(super) fn due_ms(&self) -> Option<UnixMs> {
        let stuck = self.state_since_ms.saturating_add(MAX_TRANSITION_MS);
        let is_waiting = self.state.is_transitional()
            || self.user_node.is_none()
            || self.agent.status == AgentStatus::Waiting;
        let stuck = Some(stuck).filter(|_| is_waiting);
        let stale = |at: UnixMs| at.saturating_add(MAX_REPORT_AGE_MS + 1);
        let answer = self.agent.answer.map(|(at, _)| stale(at));
        let last_try = self.agent.last_try_ms.map(stale);
        let boot = Some(self.boot_ends_ms()).filter(|_| self.agent.answer.is_none());
        let volumes = self
            .volumes
            .map(|read| read.at_ms.saturating_add(MAX_VOLUMES_AGE_MS + 1));
        let unmoved = self.volumes.into_iter().flat_map(|read| {
            let each = read.volumes.iter().map(|one| one.since_ms);
            each.chain([read.since_ms])
        });
        let unmoved = unmoved.map(|since| since.saturating_add(MAX_TRANSITION_MS));
        let times = [stuck, boot, answer, last_try, volumes].into_iter().flatten();
        let times = times.chain(unmoved);
        times.filter(|due| *due > self.now_ms).min()
    }
}
