//! Definition of the command line. Completions and man pages are generated from [`command`].

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use ipnet::IpNet;
use virtfleet_collector_core::longer_history::HistoryRange;
use virtfleet_wire::duration::Span;

pub(super) use super::{
    bundle::BundleArgs,
    connection_args::{ConnectionArgs, Via},
    disks::DisksCommand,
    filters::{HostSelection, Output, OutputOptions, VmFilters, VmSelection},
    install::InstallArgs,
    labels_args::{LabelsCommand, PolicyCommand},
    mla_args::MlaArgs,
    render_args::{Form, InputArgs, Render},
    story_args::{EventFilters, MigrationFilters, StatusWait},
    user_cluster::args::ClusterCommand,
};
use crate::enrolment::EnrolmentAction;

/// The clap command, for completions and man pages.
pub fn command() -> clap::Command {
    Program::command()
}

/// Shows KubeVirt VMs that serve as Kubernetes nodes: placement, user cluster and state of the
/// agent.
#[derive(Debug, Parser)]
#[command(name = "virtfleetctl", version, max_term_width = 110)]
pub(super) struct Program {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    #[command(subcommand)]
    pub(super) command: TopLevelCommand,
}

/// Commands that query the collector, and local ones.
#[derive(Debug, Subcommand)]
pub(super) enum TopLevelCommand {
    #[command(flatten)]
    Query(QueryCommand),
    /// Generate user-data or an Ignition config that installs the agent in a guest, from one input
    /// file (kind: Delivery); connects to the collector only for the authority of tls.enrolment
    #[command(subcommand)]
    Render(Render),
    /// Give the collector access to a user cluster, renew its token, or remove it; needs
    /// kubeconfigs of both clusters, and does not connect to the collector
    #[command(subcommand)]
    Cluster(Box<ClusterCommand>),
    /// Disks in the specs of VMs: give those of existing VMs serials; needs a kubeconfig of the
    /// infra cluster, and does not connect to the collector
    #[command(subcommand)]
    Disks(DisksCommand),
    /// Write an archive for a person who helps: status, VMs, hosts, clusters, findings, events,
    /// metrics, logs, versions; without secrets
    SupportBundle {
        #[command(flatten)]
        args: BundleArgs,
    },
    /// Check the installation on the infra cluster, or show what it consists of; writes nothing
    Install {
        #[command(flatten)]
        args: InstallArgs,
    },
    /// Explain a finding and its remedy; does not connect to the collector
    Explain {
        /// The finding's id, as shown by `virtfleetctl findings`
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Print the completion script for a shell; does not connect to the collector
    Completion {
        /// The shell
        #[arg(value_enum, value_name = "SHELL")]
        shell: Shell,
    },
    /// Print the man page of a command, in roff; does not connect to the collector
    Man {
        /// The command, e.g. `vm revoke` [default: virtfleetctl itself]
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// A command that queries the collector, and the connection to it.
#[derive(Debug, Parser)]
#[command(name = "virtfleetctl")]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    #[command(subcommand)]
    pub(super) command: QueryCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum QueryCommand {
    /// Show the fleet in ten lines: VMs by verdict and cause, the worst ones, hosts and clusters
    /// that are not ready; exit code 0 if all VMs are healthy, 5 unknown, 6 degraded, 7 critical
    Status {
        #[command(flatten)]
        wait: StatusWait,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Explain the verdict on a VM: cause, evidence, what happened before, and the next command
    Why {
        /// The VM: its name, or namespace/name if several VMs have that name
        #[arg(value_name = "[NAMESPACE/]NAME")]
        name: String,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List what happened to the VMs, the newest last: verdicts, migrations, pauses, restarts,
    /// addresses, findings
    Events {
        #[command(flatten)]
        filters: EventFilters,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List live migrations, with what the guests felt
    Migrations {
        #[command(flatten)]
        filters: MigrationFilters,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List VMs
    Vms {
        #[command(flatten)]
        filters: VmFilters,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Show all details of one VM, or change the enrolment of its agent
    #[command(
        subcommand_negates_reqs = true,
        args_conflicts_with_subcommands = true,
        disable_help_subcommand = true
    )]
    Vm {
        /// The VM: its name, or namespace/name if several VMs have that name, or it is called
        /// `revoke` or `reset`
        #[arg(value_name = "[NAMESPACE/]NAME", required = true)]
        name: Option<String>,
        /// Show only the specification against what the guest sees, every field
        #[arg(long)]
        spec: bool,
        #[command(flatten)]
        show: OutputOptions,
        #[command(subcommand)]
        change: Option<EnrolmentChangeCommand>,
    },
    /// Show CPU use and pressure of one VM over hours or days, from the Prometheus in the
    /// collector's settings
    History {
        /// The VM: its name, or namespace/name if several VMs have that name
        #[arg(value_name = "[NAMESPACE/]NAME")]
        name: String,
        /// How far back
        #[arg(long, value_parser = HistoryRange::ALL.map(HistoryRange::as_str), default_value = "24h")]
        range: String,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List infra nodes with the VMs on each
    Hosts {
        /// Only hosts of these zones
        #[arg(long, value_delimiter = ',', value_name = "ZONE")]
        zone: Vec<String>,
        /// Only hosts of these regions
        #[arg(long, value_delimiter = ',', value_name = "REGION")]
        region: Vec<String>,
        /// Only hosts with this status of the condition Ready
        #[arg(long, value_delimiter = ',', value_parser = ["true", "false", "unknown"])]
        ready: Vec<String>,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Show one infra node: conditions, requests against capacity, and its VMs with verdict, use
    /// and steal
    Host {
        /// The infra node
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Show what would happen if an infra node were drained: which VMs migrate, stop or block, and
    /// whether the others have room; an estimate, nothing is written; exit code 0 if all VMs
    /// migrate, 6 if some stop, 7 if some block or lack room
    Drain {
        /// The infra node
        #[arg(value_name = "HOST")]
        name: String,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Show scheduling rules of VMs that are not obeyed, and how worker pools are spread; exit code
    /// 6 if a required rule is violated; `-o wide` adds preferences
    Placement {
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List VMs or infra nodes by use of CPU, steal or pressure, as guests report it
    Top {
        /// What to list
        #[arg(value_enum, default_value = "vms")]
        what: TopArg,
        /// The order
        #[arg(long, value_name = "ORDER", value_parser = ["cpu", "steal", "memory", "io"], default_value = "cpu")]
        by: String,
        /// Maximum number of lines
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List user clusters
    Clusters {
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List findings and their remedies
    Findings {
        /// Only findings of these severities
        #[arg(long, value_delimiter = ',', value_parser = ["info", "warning", "critical"])]
        severity: Vec<String>,
        /// Only findings about the inventory itself, or only those about VMs
        #[arg(long, value_parser = ["inventory", "vm"])]
        scope: Vec<String>,
        #[command(flatten)]
        vms: VmSelection,
        #[command(flatten)]
        host: HostSelection,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Show the streams of samples, one line each: state, backlog, rate, last error; exit code 7 if
    /// one is stopped or refused
    Mla(Box<MlaArgs>),
    /// Labels of user-cluster Nodes: pending changes, the source of a value, the effect of another
    /// policy
    #[command(subcommand)]
    Labels(LabelsCommand),
    /// The fleet's certificate authority
    #[command(subcommand)]
    Ca(CaCommand),
    /// Certificates of agents: recorded keys, revocation
    #[command(subcommand, visible_alias = "enrollment")]
    Enrolment(EnrolmentCommand),
    /// Join tokens, for agents that connect to the collector and whose address does not identify
    /// their VM
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TopArg {
    Vms,
    Hosts,
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create a token for the VMs of a user cluster, and print it once
    Create {
        #[command(flatten)]
        args: TokenCreateArgs,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List tokens, without their secrets
    List {
        /// Only tokens of these user clusters
        #[arg(long, value_delimiter = ',')]
        cluster: Vec<String>,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// End a token; certificates that were issued before stay valid
    Revoke {
        /// The token's id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        show: OutputOptions,
    },
}

#[derive(Debug, Clone, Args)]
pub(super) struct TokenCreateArgs {
    /// The user cluster
    #[arg(value_name = "CLUSTER")]
    pub(super) cluster: String,
    /// Time until the token ends, e.g. 12h
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub(super) ttl: Span,
    /// Accept the token from addresses of this network: that of a relay or a NAT; may be repeated
    /// [default: only from addresses of the VM's own virt-launcher pod]
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub(super) from: Vec<IpNet>,
}

#[derive(Debug, Subcommand)]
pub(super) enum EnrolmentCommand {
    /// List the recorded keys of agents
    List {
        /// Only VMs of these namespaces
        #[arg(short, long, value_delimiter = ',')]
        namespace: Vec<String>,
        /// Only VMs in these states
        #[arg(long, value_delimiter = ',', value_parser = ["enrolled", "revoked", "reset"])]
        state: Vec<String>,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// `vm revoke` and `vm reset`
    #[command(flatten)]
    Change(EnrolmentChangeCommand),
}

/// As `vm`, and as `enrolment`.
#[derive(Debug, Subcommand)]
pub(super) enum EnrolmentChangeCommand {
    /// Stop using the certificates of a VM's agent, and issue none until a reset
    Revoke {
        /// The VM: its name, or namespace/name if several VMs have that name
        #[arg(value_name = "[NAMESPACE/]NAME")]
        name: String,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Accept another key of a VM's agent: after its disk was restored or rewritten, or to end a
    /// revocation
    Reset {
        /// The VM: its name, or namespace/name if several VMs have that name
        #[arg(value_name = "[NAMESPACE/]NAME")]
        name: String,
        #[command(flatten)]
        show: OutputOptions,
    },
}

impl EnrolmentChangeCommand {
    /// What it does with the enrolment of which VM.
    pub(super) fn change(&self) -> (EnrolmentAction, &str) {
        match self {
            Self::Revoke { name, .. } => (EnrolmentAction::Revoke, name),
            Self::Reset { name, .. } => (EnrolmentAction::Reset, name),
        }
    }

    pub(super) fn show(&self) -> &OutputOptions {
        match self {
            Self::Revoke { show, .. } | Self::Reset { show, .. } => show,
        }
    }
}

impl QueryCommand {
    /// The change of a VM's enrolment, by either of its two commands.
    pub(super) fn enrolment_change(&self) -> Option<&EnrolmentChangeCommand> {
        match self {
            Self::Vm { change, .. } => change.as_ref(),
            Self::Enrolment(EnrolmentCommand::Change(change)) => Some(change),
            _ => None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// Show the roots: what each signs, how long it is valid, and the next step of a rotation
    Status {
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Replace a root; the previous one stays trusted until its certificates have expired
    Rotate {
        #[command(flatten)]
        args: RotateArgs,
        #[command(flatten)]
        show: OutputOptions,
    },
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct RotateArgs {
    /// The root: that of agents, or that of clients (collectors and readers)
    #[arg(value_enum, value_name = "ROOT")]
    pub(super) root: RootArg,
    /// Stop trusting the previous roots at once, e.g. because a key may have leaked; agents with
    /// certificates of a previous root must enrol again
    #[arg(long)]
    pub(super) distrust_previous: bool,
    /// First remove the oldest cross-signed certificate of clients: VMs whose user-data has only
    /// the oldest root of clients no longer accept collectors
    #[arg(long)]
    pub(super) drop_oldest: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RootArg {
    Agents,
    Clients,
}
