//! Facts about one VM from which its health follows, borrowed from the index.

use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, NodeName, VmKey},
};

use super::{evaluation::HealthCondition, hold::HoldTimes, seen::SeenSince};
use crate::{
    abandoned::DeadMigration,
    contention::HostContention,
    facts::{InfraNode, RunStrategy, UserNode, Vm, Vmi},
    heartbeats::{Hearing, HeartbeatLimits},
    keys::NodeMatch,
    managed::ExcludedBy,
    pull_result::{Answer, Failure, UnixMs},
    reported::{ReportedCondition, ReportedStatus},
    story::FailedMigrations,
    tenant::Tenant,
    usage::GuestUsage,
    view::{AgentStatus, ClusterState, VmState},
    volumes::{PluggingVolume, ReadVolume, ReadVolumes, SeenPlugging, VolumeWait, wait_of},
};

/// Age of the last answer of an agent, in milliseconds, after which it is no evidence any more.
pub(super) const MAX_REPORT_AGE_MS: u64 = 300_000;
/// Time for which a VM that runs may boot, in milliseconds.
pub(super) const MAX_BOOT_MS: u64 = 300_000;
/// Time in a transitional state, in milliseconds, after which it counts as a problem.
pub(super) const MAX_TRANSITION_MS: u64 = 600_000;

/// Age of what was read of a VM's volumes, in milliseconds, after which it is no evidence any more.
pub(super) const MAX_VOLUMES_AGE_MS: u64 = 300_000;

/// Time for the first read of the volumes of a VM that waits for them, in milliseconds.
/// Hundreds may wait at once, and the requests per second are limited.
const MAX_FIRST_READ_MS: u64 = 300_000;

/// Time for the first read of the Nodes of a user cluster, in milliseconds; what was known of the
/// Node before is no evidence any more then.
const MAX_FIRST_NODES_MS: u64 = 300_000;

/// Time, in milliseconds, after which a Node that is not known does not exist.
const MAX_NODES_DELAY_MS: u64 = 60_000;

/// What is known of a VM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthFacts<'a> {
    pub(crate) key: &'a VmKey,
    pub(crate) now_ms: UnixMs,
    pub(crate) vmi: Option<&'a Vmi>,
    pub(crate) vm: Option<&'a Vm>,
    pub(crate) state: VmState,
    /// Since when it is so, as far as the collector has seen it; see
    /// [`HealthFacts::state_since_ms`].
    pub(crate) seen: SeenSince,
    /// When the VMI began to run, by KubeVirt; the collector may have started later.
    pub(crate) started_ms: Option<UnixMs>,
    /// The virt-launcher pod of its VMI.
    pub(crate) launcher: LauncherState,
    /// The name of its infra node: `status.nodeName`.
    pub(crate) host: Option<&'a NodeName>,
    /// That node; none if the inventory does not have it.
    pub(crate) infra_node: Option<&'a InfraNode>,
    pub(crate) tenant: &'a Tenant,
    /// Its labels name a user cluster that does not select it.
    pub(crate) is_tenant_pending: bool,
    pub(crate) cluster_state: Option<ClusterState>,
    /// How its Node was found, or why none is joined with it.
    pub(crate) node_match: &'a NodeMatch,
    /// When the Node was created that has its name and is another machine.
    pub(crate) other_node_created_ms: Option<UnixMs>,
    pub(crate) user_node: Option<&'a UserNode>,
    /// Until when the last heartbeat of the infra node counts; none if none is known.
    pub(crate) host_heartbeat: Option<HeartbeatLimits>,
    /// The same of the Node.
    pub(crate) node_heartbeat: Option<HeartbeatLimits>,
    pub(crate) agent: AgentFacts<'a>,
    /// Delivery of its metrics; none if no stream takes them.
    pub(crate) delivery: Option<crate::mla::delivery::VmDelivery<'a>>,
    /// Use of CPU and memory between the last two answers.
    pub(crate) usage: Option<GuestUsage>,
    /// The agent has answered once since the collector knows the VMI.
    pub(crate) is_usage_pending: bool,
    /// Comparison with the other VMs of its infra node, if that is needed.
    pub(crate) contention: Option<&'a HostContention>,
    pub(crate) failed_migrations: &'a FailedMigrations,
    /// Whether its VMI names a migration that KubeVirt has forgotten.
    pub(crate) dead_migration: &'a DeadMigration,
    /// The collector's findings about it.
    pub(crate) findings: &'a [Finding],
    /// The inventory does not follow the infra cluster at present.
    pub(crate) is_inventory_stale: bool,
    /// Its claims and DataVolumes as they were read last; none unless it waits for them, or one of
    /// its claims is lost.
    pub(crate) volumes: Option<&'a ReadVolumes>,
    /// Its hot-plugged volumes that are not ready, and since when.
    pub(crate) plugging: &'a [SeenPlugging],
}

/// Kubernetes' reason for `Ready` of a pod whose probe fails; KubeVirt copies it to the VMI, and
/// has other reasons of its own.
const PROBE_FAILS: &str = "ContainersNotReady";

/// Whether a virt-launcher pod carries the VMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LauncherState {
    /// It runs on the VMI's node.
    Carries,
    /// Pods are known, and none of them carries it.
    Gone,
    /// No pod is known, or the pods that are may be outdated.
    NotWatched,
}

/// What is known of a VM's agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentFacts<'a> {
    pub(crate) status: AgentStatus,
    /// What excludes the VM, so that its agent is not dialled; none if nothing does.
    pub(crate) excluded_by: Option<ExcludedBy>,
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

    /// Whether no pod carries the VMI, and it is not too early to say so: the pod of a VM that has
    /// just begun to run comes by another watch than its VMI.
    pub(super) fn is_launcher_gone(&self) -> bool {
        self.launcher == LauncherState::Gone && self.now_ms >= self.begun_until_ms()
    }

    fn begun_until_ms(&self) -> UnixMs {
        let hold_ms = HoldTimes::of(HealthCondition::Running).worse_ms;
        // A time far ahead is of a wrong clock.
        let began = self
            .started_ms
            .filter(|at| *at <= self.now_ms.saturating_add(hold_ms));
        began.map_or(0, |at| at.saturating_add(hold_ms))
    }

    /// Since when it has its state: as the collector has seen it, or longer, as the objects say. So
    /// the age of a problem does not begin anew with the collector.
    fn state_since_ms(&self) -> UnixMs {
        let said = self.said_since_ms().unwrap_or(UnixMs::MAX);
        self.seen.state_ms().min(said)
    }

    fn said_since_ms(&self) -> Option<UnixMs> {
        match self.state {
            VmState::Starting => match self.vmi {
                Some(vmi) => vmi.created_ms,
                // When its owner has started it is not known: a VM that is started anew counts from
                // its last end.
                None => (self.vm.filter(|_| self.seen.is_first()))
                    .and_then(|vm| vm.not_ready_since_ms.or(vm.created_ms)),
            },
            VmState::Migrating => self.vmi?.migration.as_ref()?.start_ms,
            VmState::Stopping => self.vmi?.deleted_ms,
            VmState::Stopped
            | VmState::Running
            | VmState::Paused
            | VmState::Succeeded
            | VmState::Failed
            | VmState::Unknown => None,
        }
    }

    /// Whether it has been stopped for less time than a problem must last.
    pub(super) fn is_just_stopped(&self) -> bool {
        self.state == VmState::Stopped && self.now_ms < self.just_stopped_until_ms()
    }

    fn just_stopped_until_ms(&self) -> UnixMs {
        let stopped_ms = if self.seen.is_first() {
            self.said_stopped_ms()
        } else {
            Some(self.seen.state_ms())
        };
        let hold_ms = HoldTimes::of(HealthCondition::Running).worse_ms;
        stopped_ms.map_or(0, |at| at.saturating_add(hold_ms))
    }

    /// When a VM stopped that the collector has not seen running, as KubeVirt says. One that is no
    /// Node may never have run.
    fn said_stopped_ms(&self) -> Option<UnixMs> {
        let vm = self.vm.filter(|_| self.user_node.is_some())?;
        // A time ahead is of a wrong clock.
        vm.not_ready_since_ms.filter(|at| *at <= self.now_ms)
    }

    /// Since when the VM runs, whatever has paused or migrated it since.
    fn runs_since_ms(&self) -> UnixMs {
        let said = self.started_ms.filter(|_| self.seen.is_run());
        self.seen.runs_ms().min(said.unwrap_or(UnixMs::MAX))
    }

    fn is_over(&self, since_ms: UnixMs) -> bool {
        self.now_ms.saturating_sub(since_ms) >= MAX_TRANSITION_MS
    }

    /// Whether it has been in its state for so long that this is a problem.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_over(self.state_since_ms())
    }

    /// Whether it has run for so long that it should have a Node.
    pub(super) fn has_run_long(&self) -> bool {
        self.is_over(self.runs_since_ms())
    }

    /// Whether the Nodes of its user cluster may not have been taken yet: they come by another way
    /// than the state of the cluster.
    pub(super) fn are_nodes_new(&self) -> bool {
        self.now_ms < self.nodes_known_ms()
    }

    fn nodes_known_ms(&self) -> UnixMs {
        self.seen.runs_ms().saturating_add(MAX_NODES_DELAY_MS)
    }

    /// Whether it is too early to say that the Nodes of its user cluster are not read: an API
    /// server may delay its list for any time.
    pub(super) fn are_nodes_awaited(&self) -> bool {
        self.now_ms < self.nodes_awaited_until_ms()
    }

    fn nodes_awaited_until_ms(&self) -> UnixMs {
        self.seen.runs_ms().saturating_add(MAX_FIRST_NODES_MS)
    }

    /// Since when the Node that has its name and is another machine has contradicted it.
    fn contradicted_since_ms(&self) -> UnixMs {
        self.runs_since_ms().max(self.other_node_created_ms.unwrap_or(0))
    }

    /// Whether a Node that is another machine has had its name for so long that this is a problem.
    pub(super) fn is_long_contradicted(&self) -> bool {
        self.is_over(self.contradicted_since_ms())
    }

    /// Whether the agent has not been pulled yet, and it is too early to say that it never will:
    /// what the collector has done counts, and not how old the VM is.
    pub(super) fn is_first_pull_pending(&self) -> bool {
        self.agent.status == AgentStatus::Waiting && self.now_ms < self.first_pull_ends_ms()
    }

    fn first_pull_ends_ms(&self) -> UnixMs {
        self.seen.state_ms().saturating_add(MAX_REPORT_AGE_MS)
    }

    /// Whether the VM may still boot: it has run for a short time, and its agent never answered.
    pub(super) fn may_boot(&self) -> bool {
        self.agent.answer.is_none() && self.now_ms < self.boot_ends_ms()
    }

    /// Until when the VM may boot.
    fn boot_ends_ms(&self) -> UnixMs {
        self.runs_since_ms().saturating_add(MAX_BOOT_MS)
    }

    /// The VMI's condition of this type, if it has this status.
    pub(super) fn vmi_condition(&self, kind: &str, status: ReportedStatus) -> Option<&'a ReportedCondition> {
        self.vmi?.conditions.with_status(kind, status)
    }

    /// Whether a readiness probe of the VM fails.
    fn is_probe_failing(&self) -> bool {
        let ready = self.vmi_condition("Ready", ReportedStatus::False);
        ready.is_some_and(|one| one.reason.as_deref() == Some(PROBE_FAILS))
    }

    /// Whether a readiness probe of the VM fails, and its guest may still boot.
    pub(super) fn is_probe_too_early(&self) -> bool {
        self.is_probe_failing() && self.may_boot()
    }

    /// Whether the QEMU guest agent answers the readiness probe of the VMI; none without such a
    /// probe, while the guest may boot, and while the VM is not ready for another reason.
    pub(super) fn guest_ping(&self) -> Option<bool> {
        let vmi = self.vmi?;
        vmi.spec.as_deref().filter(|spec| spec.pings_guest)?;
        match vmi.conditions.status("Ready")? {
            ReportedStatus::True => Some(true),
            ReportedStatus::False if self.is_probe_failing() && !self.may_boot() => Some(false),
            ReportedStatus::False | ReportedStatus::Unknown => None,
        }
    }

    /// The user cluster that selects the VM.
    pub(super) fn cluster(&self) -> Option<&'a ClusterName> {
        self.tenant.cluster()
    }

    /// `spec.runStrategy` of its VirtualMachine.
    pub(super) fn run_strategy(&self) -> Option<RunStrategy> {
        self.vm?.run_strategy
    }

    /// `status.printableStatus` of its VirtualMachine.
    pub(super) fn printable_status(&self) -> Option<&'a str> {
        self.vm?.printable_status.as_deref()
    }

    /// Whether the infra node is known not to run its VMs normally: not ready, or unreachable, or
    /// its kubelet is silent and no controller manager says so.
    pub(super) fn is_host_down(&self) -> bool {
        let is_not_ready = self.infra_node.is_some_and(|node| {
            let ready = node.conditions.status("Ready");
            ready.is_some_and(|status| status != ReportedStatus::True) || node.ready == Some(false)
        });
        is_not_ready || self.host_hearing() == Hearing::Silent
    }

    fn hearing(&self, heartbeat: Option<HeartbeatLimits>) -> Hearing {
        heartbeat.map_or(Hearing::Heard, |limits| limits.hearing(self.now_ms))
    }

    /// The kubelet of the infra node. An inventory that is not followed says nothing against it.
    pub(super) fn host_hearing(&self) -> Hearing {
        self.hearing(self.host_heartbeat.filter(|_| !self.is_inventory_stale))
    }

    pub(super) fn node_hearing(&self) -> Hearing {
        self.hearing(self.node_heartbeat)
    }

    /// Whether the user cluster can be read.
    pub(super) fn is_cluster_read(&self) -> bool {
        matches!(
            self.cluster_state,
            Some(ClusterState::Ready | ClusterState::Suspended)
        )
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

    /// Whether it has waited for a volume for so long that this is a problem. Not before the
    /// volumes could be read for the first time: an import that takes an hour is none.
    pub(super) fn waits_too_long(&self) -> bool {
        self.is_stuck() && !self.is_first_read_pending()
    }

    /// Whether the volumes have not been read yet, and it is too early to say that they never will.
    pub(super) fn is_first_read_pending(&self) -> bool {
        self.volumes.is_none() && self.now_ms < self.first_read_ends_ms()
    }

    fn first_read_ends_ms(&self) -> UnixMs {
        self.seen.state_ms().saturating_add(MAX_FIRST_READ_MS)
    }

    /// Whether it has waited for this volume for so long, and the volume has not moved.
    pub(super) fn waits_too_long_for(&self, volume: &ReadVolume) -> bool {
        self.waits_too_long() && self.is_over(volume.since_ms)
    }

    /// A hot-plugged volume that has not become ready for so long that this is a problem.
    pub(super) fn stuck_plugging(&self) -> Option<&'a PluggingVolume> {
        let stuck = self.plugging.iter().find(|one| self.is_over(one.since_ms))?;
        self.vmi?.plugging.iter().find(|one| one.name == stuck.name)
    }

    /// Whether a hot-plugged volume was not ready when the collector saw the VM first, and may have
    /// been so for long: it is found out soon. Claims that were not read yet leave nothing open.
    pub(super) fn may_have_older_problem(&self) -> bool {
        self.plugging.iter().any(|one| one.is_older)
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
        let over = |since: UnixMs| since.saturating_add(MAX_TRANSITION_MS);
        let stuck = Some(over(self.state_since_ms())).filter(|_| self.state.is_transitional());
        let is_waiting = self.agent.status == AgentStatus::Waiting;
        let first_pull = Some(self.first_pull_ends_ms()).filter(|_| is_waiting);
        let node = [self.runs_since_ms(), self.contradicted_since_ms()].map(over);
        let node = node.into_iter().filter(|_| self.user_node.is_none());
        let stale = |at: UnixMs| at.saturating_add(MAX_REPORT_AGE_MS + 1);
        let answer = self.agent.answer.map(|(at, _)| stale(at));
        let last_try = self.agent.last_try_ms.map(stale);
        let boot = Some(self.boot_ends_ms()).filter(|_| self.agent.answer.is_none());
        let volumes = self
            .volumes
            .map(|read| read.at_ms.saturating_add(MAX_VOLUMES_AGE_MS + 1));
        let is_unread = self.volumes.is_none() && self.volume_wait().is_some();
        let first_read = Some(self.first_read_ends_ms()).filter(|_| is_unread);
        let unmoved = self.volumes.into_iter().flat_map(|read| &read.volumes);
        let unmoved = unmoved.map(|one| over(one.since_ms));
        let plugging = self.plugging.iter().map(|one| over(one.since_ms));
        let kept = self.volumes.into_iter().flat_map(|read| &read.volumes);
        let kept = kept.filter_map(|one| one.claim.found()?.kept_ms);
        let kept = kept.map(|at| at.saturating_add(MAX_VOLUMES_AGE_MS + 1));
        let times = [stuck, first_pull, boot, answer, last_try, volumes, first_read];
        let stopped = Some(self.just_stopped_until_ms()).filter(|_| self.state == VmState::Stopped);
        let heard = [self.host_heartbeat, self.node_heartbeat].into_iter().flatten();
        let heard = heard.flat_map(|one| [one.ends_ms, one.awaited_ms]);
        let heard = heard.map(|until| until.saturating_add(1));
        let times = times
            .into_iter()
            .flatten()
            .chain(node)
            .chain(unmoved)
            .chain(plugging)
            .chain(kept)
            .chain(heard)
            .chain(stopped)
            .chain([
                self.begun_until_ms(),
                self.nodes_known_ms(),
                self.nodes_awaited_until_ms(),
            ]);
        times.filter(|due| *due > self.now_ms).min()
    }
}
