//! Evaluation of one condition from the present facts, before it is held.

use std::borrow::Cow;

use strum::{IntoStaticStr, VariantArray};

use super::verdict::{HealthCause, HealthConditionStatus, HealthVerdict};

/// Conditions of a VM's health, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
pub enum HealthCondition {
    /// The VM has a known infra node.
    Placed,
    Running,
    /// Its infra node is ready.
    HostReady,
    AgentReporting,
    /// Its Node in the user cluster is ready.
    NodeReady,
    /// Its volumes and declared disks can be used.
    DisksReady,
    /// The guest resolves names.
    #[strum(serialize = "DNSReady")]
    DnsReady,
    /// Its virtio devices work and are set up for its vCPUs.
    VirtioTuned,
    /// The guest's clock is right.
    TimeSynced,
    /// The guest gets the CPU and memory that it needs.
    ComputeReady,
    /// It can leave its infra node.
    Migratable,
    /// Its specification is in effect.
    SpecInEffect,
    /// The receiver of a stream accepts its metrics.
    MetricsDelivered,
    /// The labels of its Node have their desired values.
    // Published under this name since decision 0022.
    LabelsInSync,
}

impl HealthCondition {
    /// Number of conditions that the index evaluates.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Conditions that follow from the facts of the index. [`HealthCondition::LabelsInSync`] needs
    /// the plan of the leader.
    pub const ALL: [Self; 13] = [
        Self::Placed,
        Self::Running,
        Self::HostReady,
        Self::AgentReporting,
        Self::NodeReady,
        Self::DisksReady,
        Self::DnsReady,
        Self::VirtioTuned,
        Self::TimeSynced,
        Self::ComputeReady,
        Self::Migratable,
        Self::SpecInEffect,
        Self::MetricsDelivered,
    ];

    /// When it holds, for documentation.
    pub fn about(self) -> &'static str {
        match self {
            Self::Placed => "`status.nodeName` names an infra node of the inventory",
            Self::Running => {
                "the VM is `Running`, not paused, and its agent answers or KubeVirt's condition `Ready` is `True`; a VM that waits for a volume has the cause `storage`"
            }
            Self::HostReady => {
                "the infra node is `Ready`, without pressure, its kubelet has renewed its Lease, and virt-handler reports there; a cordon is only named"
            }
            Self::AgentReporting => {
                "the agent answered the last pull, not longer than 5 minutes ago, and reports no other critical problem"
            }
            Self::NodeReady => {
                "the Node in the user cluster is `Ready`, without pressure, not cordoned, without a taint that says that it is not ready, its kubelet gives signs of life, and its cluster can be read"
            }
            Self::DisksReady => {
                "all declared disks are ready and without findings, all DataVolumes are ready, and the VM waits for no volume"
            }
            Self::DnsReady => "the nameservers in use answer, without findings",
            Self::VirtioTuned => {
                "no virtio device has failed, and none is set up for fewer vCPUs; only a failed device lowers the verdict"
            }
            Self::TimeSynced => {
                "the guest's clock agrees with the collector's within 5 s, and its kernel does not say that it is unsynchronised"
            }
            Self::ComputeReady => {
                "less than 10 % of the guest's CPU time is stolen, and its tasks wait for memory less than 10 % of the time; pressure of CPU or I/O in the guest alone is only named"
            }
            Self::Migratable => {
                "KubeVirt says `LiveMigratable`; it lowers the verdict while the VM must leave its infra node, if a migration takes more than 10 minutes, and if three in a row have failed within an hour and the infra node is cordoned"
            }
            Self::SpecInEffect => {
                "vCPUs and memory are what the VMI asks for, and nothing else differs; `False` also if KubeVirt asks for a restart or cannot apply the specification; only what the VM lacks lowers the verdict"
            }
            Self::MetricsDelivered => {
                "the receiver of a stream accepts the metrics of the VM; only where MLA is on and a stream takes them, and no part of the verdict"
            }
            Self::LabelsInSync => {
                "the labels of the Node have their desired values; of GuestHealth only, and no part of the verdict"
            }
        }
    }

    /// The type in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Text of an evaluation: most are fixed.
pub(super) type Text = Cow<'static, str>;

/// Whether a change must last before it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It must last.
    Held,
    /// The fact is final: waiting cannot change it.
    Immediate,
}

/// What a message contains that may change while the reason stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageContent {
    /// Nothing that matters.
    Words,
    /// Numbers that change with each report.
    Numbers,
    /// The name of an object and its phase: another message for tenants is a change.
    Object,
}

/// One condition as the present facts show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evaluation {
    pub(crate) status: HealthConditionStatus,
    /// The verdict of a VM with this condition alone.
    pub(crate) severity: HealthVerdict,
    /// None if the condition holds.
    pub(crate) cause: Option<HealthCause>,
    pub(crate) reason: &'static str,
    pub(crate) message: Text,
    /// The message for tenants, if it differs: without VMs of others. Empty: they do not see the
    /// condition.
    pub(crate) tenant_message: Option<Box<str>>,
    /// Next command to run.
    pub(crate) next: Text,
    /// Whether a change to this evaluation is held.
    pub(crate) urgency: Urgency,
    /// The collector has not had the time to find out.
    pub(crate) is_undecided: bool,
    /// What another message with the same reason means.
    pub(crate) content: MessageContent,
    /// It says only that there is no report.
    pub(crate) is_placeholder: bool,
}

impl Evaluation {
    fn new(
        status: HealthConditionStatus,
        severity: HealthVerdict,
        cause: Option<HealthCause>,
        reason: &'static str,
        message: impl Into<Text>,
    ) -> Self {
        Self {
            status,
            severity,
            cause,
            reason,
            message: message.into(),
            tenant_message: None,
            next: Text::Borrowed(""),
            urgency: Urgency::Held,
            is_undecided: false,
            content: MessageContent::Words,
            is_placeholder: false,
        }
    }

    pub(super) fn holds(reason: &'static str, message: impl Into<Text>) -> Self {
        Self::new(
            HealthConditionStatus::True,
            HealthVerdict::Healthy,
            None,
            reason,
            message,
        )
    }

    /// There is no evidence for a required condition.
    pub(super) fn unknown(cause: HealthCause, reason: &'static str, message: impl Into<Text>) -> Self {
        Self::new(
            HealthConditionStatus::Unknown,
            HealthVerdict::Unknown,
            Some(cause),
            reason,
            message,
        )
    }

    /// There is no evidence, and none is required.
    pub(super) fn not_required(reason: &'static str, message: impl Into<Text>) -> Self {
        Self::new(
            HealthConditionStatus::Unknown,
            HealthVerdict::Healthy,
            None,
            reason,
            message,
        )
    }

    /// The condition does not hold, and the VM still serves.
    pub(super) fn degraded(cause: HealthCause, reason: &'static str, message: impl Into<Text>) -> Self {
        Self::new(
            HealthConditionStatus::False,
            HealthVerdict::Degraded,
            Some(cause),
            reason,
            message,
        )
    }

    /// The condition does not hold, and the VM does not serve.
    pub(super) fn critical(cause: HealthCause, reason: &'static str, message: impl Into<Text>) -> Self {
        Self::new(
            HealthConditionStatus::False,
            HealthVerdict::Critical,
            Some(cause),
            reason,
            message,
        )
    }

    /// The condition does not hold, which is worth knowing and no illness of the VM.
    pub(super) fn notice(cause: HealthCause, reason: &'static str, message: impl Into<Text>) -> Self {
        Self::new(
            HealthConditionStatus::False,
            HealthVerdict::Healthy,
            Some(cause),
            reason,
            message,
        )
    }

    /// Sets the message for tenants, who must not see the names of others' VMs.
    pub(super) fn for_tenants(self, message: String) -> Self {
        Self {
            tenant_message: Some(message.into()),
            ..self
        }
    }

    /// Hides the condition from tenants: it is about the operator's own systems.
    pub(super) fn for_operators(self) -> Self {
        self.for_tenants(String::new())
    }

    /// Raises the severity: the condition does not hold, whatever its own evidence is worth.
    pub(super) fn at_least(self, severity: HealthVerdict) -> Self {
        if self.severity >= severity {
            return self;
        }
        Self {
            status: HealthConditionStatus::False,
            severity,
            ..self
        }
    }

    /// Sets the next command.
    pub(super) fn next(self, next: impl Into<Text>) -> Self {
        Self {
            next: next.into(),
            ..self
        }
    }

    /// Marks it as immediate: the fact is final, and waiting cannot change it.
    pub(super) fn immediate(self) -> Self {
        Self {
            urgency: Urgency::Immediate,
            ..self
        }
    }

    /// Marks it as one that says only that there is no report.
    pub(super) fn placeholder(self) -> Self {
        Self {
            is_placeholder: true,
            ..self
        }
    }

    /// The first report has arrived, and what it says must last before it is shown.
    pub(super) fn settling() -> Self {
        Self::unknown(
            HealthCause::Agent,
            "Settling",
            "the first report has arrived; a problem in it is shown once it has lasted",
        )
        .undecided()
        .placeholder()
    }

    /// Marks its message as one with numbers that change.
    pub(super) fn measured(self) -> Self {
        Self {
            content: MessageContent::Numbers,
            ..self
        }
    }

    /// Marks its message for tenants as one that names an object and its phase.
    pub(super) fn naming_object(self) -> Self {
        Self {
            content: MessageContent::Object,
            ..self
        }
    }

    pub(super) fn undecided(self) -> Self {
        self.undecided_if(true)
    }

    /// Marks it as undecided if the collector has not had the time to find out.
    pub(super) fn undecided_if(self, is_early: bool) -> Self {
        Self {
            is_undecided: self.is_undecided || is_early,
            ..self
        }
    }

    /// Whether both differ in their texts only.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.status, self.severity, self.cause, self.reason)
            == (other.status, other.severity, other.cause, other.reason)
    }
}
