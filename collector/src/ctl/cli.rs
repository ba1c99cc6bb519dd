//! The command line: its words, and nothing of what they do. Completions and man pages are made from [`command`].

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use virtfleet_collector_core::view::VmState;
use virtfleet_wire::duration::Span;

/// The whole command, for completions and man pages.
pub fn command() -> clap::Command {
    Program::command()
}

/// Shows KubeVirt VMs that serve as Kubernetes nodes: where each stands, whom it serves, how its agent is.
#[derive(Debug, Parser)]
#[command(name = "virtfleetctl", version, max_term_width = 110)]
pub(super) struct Program {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) word: Word,
}

/// Verbs that ask the collector, and those that need none.
#[derive(Debug, Subcommand)]
pub(super) enum Word {
    #[command(flatten)]
    Ask(Verb),
    /// Print what brings the agent into a guest, made from one small file (kind: Delivery); asks no collector
    #[command(subcommand)]
    Render(Render),
    /// Say what a finding means and what to do; asks no collector
    Explain {
        /// The finding's id, as `virtfleetctl findings` prints it
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Render {
    /// Print user-data for cloud-init
    CloudInit {
        /// The input; `-` reads standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Send files that do not lie beside the input, too: whoever wrote it chooses which
        #[arg(long)]
        files_from_anywhere: bool,
        /// Render although no certificate is named: the guest's image has to set server.tls, or nothing reads the agent
        #[arg(long)]
        without_tls: bool,
        /// One cloud-config with a boot command in front, or a MIME message with a boothook
        #[arg(long, value_enum, default_value = "cloud-config")]
        form: Form,
        /// User-data that the guest has already; may be given again; `-` reads standard input
        #[arg(long, value_name = "USER-DATA")]
        with: Vec<PathBuf>,
    },
    /// Print a configuration for Ignition, spec 3.3.0
    Ignition {
        /// The input; `-` reads standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Send files that do not lie beside the input, too: whoever wrote it chooses which
        #[arg(long)]
        files_from_anywhere: bool,
        /// Render although no certificate is named: the guest's image has to set server.tls, or nothing reads the agent
        #[arg(long)]
        without_tls: bool,
        /// A configuration that the guest has already; `-` reads standard input
        #[arg(long, value_name = "IGN")]
        with: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    CloudConfig,
    Mime,
}

/// A verb that asks the collector, with how it is reached.
#[derive(Debug, Parser)]
#[command(name = "virtfleetctl")]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// How the collector is reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct Connection {
    /// The collector's address
    #[arg(
        long,
        global = true,
        env = "VIRTFLEET_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:10912"
    )]
    pub(super) server: String,
    /// PEM file with the CA that signed the collector's certificate (https only)
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) cacert: Option<PathBuf>,
    /// PEM file with the client certificate, when the collector asks for one
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// PEM file with the client certificate's key
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// How long one answer may take, e.g. 10s
    #[arg(long, global = true, value_name = "TIME", default_value = "10s")]
    pub(super) timeout: Span,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List VMs
    Vms {
        #[command(flatten)]
        filters: VmFilters,
        #[command(flatten)]
        show: Show,
    },
    /// Show one VM in full
    Vm {
        /// The VM: its name, or namespace/name when several have that name
        #[arg(value_name = "[NAMESPACE/]NAME")]
        name: String,
        #[command(flatten)]
        show: Show,
    },
    /// List infra nodes with the VMs on each
    Hosts {
        /// Only hosts of these zones
        #[arg(long, value_delimiter = ',', value_name = "ZONE")]
        zone: Vec<String>,
        /// Only hosts of these regions
        #[arg(long, value_delimiter = ',', value_name = "REGION")]
        region: Vec<String>,
        /// Only hosts that are ready, or not, or do not say
        #[arg(long, value_delimiter = ',', value_parser = ["true", "false", "unknown"])]
        ready: Vec<String>,
        #[command(flatten)]
        show: Show,
    },
    /// List user clusters
    Clusters {
        #[command(flatten)]
        show: Show,
    },
    /// List what somebody should know, with what to do about it
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
        show: Show,
    },
    /// Labels of user-cluster Nodes: what would change, where a value came from, what another policy would do
    #[command(subcommand)]
    Labels(Labels),
}

#[derive(Debug, Subcommand)]
pub(super) enum Labels {
    /// List labels that differ from what they should be, with what is done about each
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
        /// Labels that are as they should be, too
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        show: Show,
    },
    /// Say where a label of a Node comes from, and why it is as it is
    Why {
        /// The user cluster's Node; with its cluster when several have that Node
        #[arg(value_name = "[CLUSTER/]NODE")]
        node: String,
        /// The label's key
        #[arg(value_name = "KEY")]
        label: String,
        #[command(flatten)]
        show: Show,
    },
    /// Try a LabelPropagation without applying it
    #[command(subcommand)]
    Policy(Policy),
}

#[derive(Debug, Subcommand)]
pub(super) enum Policy {
    /// List what LabelPropagation objects in a file would change in the live fleet; one of the same name is replaced
    #[command(group(clap::ArgGroup::new("what").args(["file", "delete", "delete_all"]).multiple(true).required(true)))]
    Test {
        /// YAML with one or more LabelPropagation objects; `-` reads standard input
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// As if this LabelPropagation was deleted; may be given again
        #[arg(long, value_name = "NAME")]
        delete: Vec<String>,
        /// As if every LabelPropagation was deleted
        #[arg(long, conflicts_with = "delete")]
        delete_all: bool,
        /// Decisions that differ without a write, too
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        show: Show,
    },
}

/// Which VMs. Several values of one filter mean "one of these".
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
    /// Only VMs in these states
    #[arg(long, value_delimiter = ',', value_parser = VmState::ALL.map(VmState::as_str))]
    pub(super) state: Vec<String>,
    /// Only VMs whose agent is so
    #[arg(long, value_delimiter = ',', value_parser = ["up", "silent", "waiting", "off", "disabled"])]
    pub(super) agent: Vec<String>,
    /// Only VMs whose name holds this text
    #[arg(short, value_name = "TEXT")]
    pub(super) q: Option<String>,
}

/// How it is shown.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct Show {
    /// More columns, or the API's answer as it is
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Output>,
    /// Leave the line of column names out
    #[arg(long)]
    pub(super) no_headers: bool,
    /// Show it again whenever it changes, until Ctrl-C
    #[arg(short, long)]
    pub(super) watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Wide,
    Json,
    Yaml,
}
