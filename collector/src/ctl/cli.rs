//! Definition of the command line. Completions and man pages are generated from [`command`].

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use virtfleet_collector_core::{health::HealthVerdict, view::VmState};
use virtfleet_wire::duration::Span;

pub(super) use super::connection_args::{ConnectionArgs, Via};
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
    /// Explain a finding and its remedy; does not connect to the collector
    Explain {
        /// The finding's id, as shown by `virtfleetctl findings`
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Render {
    /// Print user-data for cloud-init
    CloudInit {
        /// The input file; `-` reads standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also include files outside of the input's folder; its author chooses which
        #[arg(long)]
        files_from_anywhere: bool,
        /// Render without certificates: the guest's image must set server.tls, otherwise the
        /// collector cannot read the agent
        #[arg(long)]
        without_tls: bool,
        /// PEM file with the fleet's authority of clients, for an input with tls.enrolment;
        /// otherwise it is read from the collector (--server)
        #[arg(long, value_name = "FILE")]
        fleet_ca: Option<PathBuf>,
        /// One cloud-config that starts with a boot command, or a MIME message with a boothook
        #[arg(long, value_enum, default_value = "cloud-config")]
        form: Form,
        /// Existing user-data to merge; may be repeated; `-` reads standard input
        #[arg(long, value_name = "USER-DATA")]
        with: Vec<PathBuf>,
    },
    /// Print an Ignition config, spec 3.3.0
    Ignition {
        /// The input file; `-` reads standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also include files outside of the input's folder; its author chooses which
        #[arg(long)]
        files_from_anywhere: bool,
        /// Render without certificates: the guest's image must set server.tls, otherwise the
        /// collector cannot read the agent
        #[arg(long)]
        without_tls: bool,
        /// PEM file with the fleet's authority of clients, for an input with tls.enrolment;
        /// otherwise it is read from the collector (--server)
        #[arg(long, value_name = "FILE")]
        fleet_ca: Option<PathBuf>,
        /// An existing config to merge; `-` reads standard input
        #[arg(long, value_name = "IGN")]
        with: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    CloudConfig,
    Mime,
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
        #[command(flatten)]
        show: OutputOptions,
        #[command(subcommand)]
        change: Option<EnrolmentChangeCommand>,
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
        /// Only findings about VMs of these namespaces
        #[arg(short, long, value_delimiter = ',')]
        namespace: Vec<String>,
        /// Only findings about VMs that serve these user clusters
        #[arg(long, value_delimiter = ',')]
        cluster: Vec<String>,
        #[command(flatten)]
        show: OutputOptions,
    },
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

#[derive(Debug, Subcommand)]
pub(super) enum LabelsCommand {
    /// List labels that differ from their desired values, and the actions
    Diff {
        /// Only Nodes of these user clusters
        #[arg(long, value_delimiter = ',')]
        cluster: Vec<String>,
        /// Only Nodes of VMs of these namespaces
        #[arg(short, long, value_delimiter = ',')]
        namespace: Vec<String>,
        /// Only labels of these keys
        #[arg(long, value_delimiter = ',', value_name = "KEY")]
        label: Vec<String>,
        /// Also labels that have their desired values
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Show the source of a Node's label, and the reason for its state
    Why {
        /// The user cluster's Node; with its cluster if several clusters have a Node of that name
        #[arg(value_name = "[CLUSTER/]NODE")]
        node: String,
        /// The label's key
        #[arg(value_name = "KEY")]
        label: String,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// Test a LabelPropagation without applying it
    #[command(subcommand)]
    Policy(PolicyCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// List the changes that LabelPropagation objects in a file would cause in the live fleet; an
    /// object of the same name is replaced
    #[command(group(clap::ArgGroup::new("what").args(["file", "delete", "delete_all"]).multiple(true).required(true)))]
    Test {
        /// YAML with one or more LabelPropagation objects; `-` reads standard input
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Assume that this LabelPropagation is deleted; may be repeated
        #[arg(long, value_name = "NAME")]
        delete: Vec<String>,
        /// Assume that all LabelPropagations are deleted
        #[arg(long, conflicts_with = "delete")]
        delete_all: bool,
        /// Also changed decisions that write no label
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        show: OutputOptions,
    },
}

/// Selects VMs. Several values of one filter mean "one of these".
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct VmFilters {
    /// Only VMs of these namespaces
    #[arg(short, long, value_delimiter = ',')]
    pub(super) namespace: Vec<String>,
    /// Only VMs that serve these user clusters
    #[arg(long, value_delimiter = ',')]
    pub(super) cluster: Vec<String>,
    /// Only VMs on these infra nodes
    #[arg(long, value_delimiter = ',', value_name = "INFRA NODE")]
    pub(super) node: Vec<String>,
    /// Only VMs on infra nodes of these zones
    #[arg(long, value_delimiter = ',')]
    pub(super) zone: Vec<String>,
    /// Only VMs on infra nodes of these regions
    #[arg(long, value_delimiter = ',')]
    pub(super) region: Vec<String>,
    /// Only VMs with these verdicts
    #[arg(long, value_delimiter = ',', value_parser = HealthVerdict::ALL.map(HealthVerdict::label))]
    pub(super) health: Vec<String>,
    /// Only VMs in these states
    #[arg(long, value_delimiter = ',', value_parser = VmState::ALL.map(VmState::as_str))]
    pub(super) state: Vec<String>,
    /// Only VMs whose agents have these states
    #[arg(long, value_delimiter = ',', value_parser = ["up", "silent", "waiting", "off", "disabled"])]
    pub(super) agent: Vec<String>,
    /// Only VMs whose names contain this text
    #[arg(short, value_name = "TEXT")]
    pub(super) q: Option<String>,
}

/// Output options.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputOptions {
    /// More columns, or the response of the API
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Output>,
    /// Omit the header line
    #[arg(long)]
    pub(super) no_headers: bool,
    /// Show changes continuously, until Ctrl-C
    #[arg(short, long)]
    pub(super) watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Wide,
    Json,
    Yaml,
}
