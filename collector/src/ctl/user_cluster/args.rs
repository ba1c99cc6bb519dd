//! Arguments of `cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use virtfleet_collector_core::node_conditions::NodeConditionKind;
use virtfleet_wire::duration::Span;

/// What is done with the collector's access to a user cluster.
#[derive(Debug, Subcommand)]
pub(in crate::ctl) enum ClusterCommand {
    /// Give the collector access to a user cluster: account, rights, admission policy and token
    /// there, Secret and UserCluster in the infra cluster; a second run changes only what differs
    Add {
        #[command(flatten)]
        clusters: BothClusters,
        #[command(flatten)]
        spec: SpecArgs,
        #[command(flatten)]
        token: TokenArgs,
        /// Print the objects, and write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Replace the collector's token without a gap: new token, Secret replaced, the collector uses
    /// it, old token revoked
    Rotate {
        #[command(flatten)]
        clusters: BothClusters,
        #[command(flatten)]
        token: TokenArgs,
        /// Maximum time until the collector uses the new token
        #[arg(long, value_name = "TIME", default_value = "2m")]
        wait_timeout: Span,
    },
    /// Remove the UserCluster, its Secret, and the collector's account and rights in the user
    /// cluster
    Remove {
        #[command(flatten)]
        clusters: BothClusters,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Remove nothing in the user cluster, for example because it is gone
        #[arg(long, conflicts_with = "kubeconfig")]
        infra_only: bool,
        /// Print what would be removed, and remove nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// The user cluster and the infra cluster.
#[derive(Debug, Clone, Args)]
pub(in crate::ctl) struct BothClusters {
    /// The user cluster's name: that of its UserCluster
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// A kubeconfig of an admin of the user cluster; nothing of it is stored but the server and the
    /// authority
    #[arg(long, value_name = "FILE", help_heading = "Clusters")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", help_heading = "Clusters")]
    pub(super) context: Option<String>,
    /// A kubeconfig of the infra cluster [default: KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", help_heading = "Clusters")]
    pub(super) infra_kubeconfig: Option<PathBuf>,
    /// The context of the infra cluster's kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", help_heading = "Clusters")]
    pub(super) infra_context: Option<String>,
    /// The namespace of kubeconfigs in the infra cluster, for a UserCluster that names none yet
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "virtfleet-kubeconfigs",
        help_heading = "Clusters"
    )]
    pub(super) secret_namespace: String,
}

/// Fields of the UserCluster; what is absent stays as it is.
#[derive(Debug, Clone, Args)]
pub(in crate::ctl) struct SpecArgs {
    /// The namespace of its VMs in the infra cluster; required for a new UserCluster
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
    /// Selects its VMs in that namespace by label, as with kubectl [default: all VMs]
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(super) selector: Option<String>,
    /// A label of the UserCluster, which LabelPropagations select by; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(super) labels: Vec<String>,
    /// A condition that the collector writes to Nodes, which needs a further right; may be repeated
    #[arg(
        long = "node-condition",
        value_name = "CONDITION",
        value_delimiter = ',',
        value_parser = node_condition
    )]
    pub(super) node_conditions: Vec<NodeConditionKind>,
    /// Grant no right to write labels of Nodes
    #[arg(long)]
    pub(super) read_only: bool,
    /// Grant the right to read pods and volumes, which FollowIfSafe needs [default: only if a
    /// LabelPropagation of the infra cluster needs it]
    #[arg(long, conflicts_with = "read_only")]
    pub(super) follow_if_safe: bool,
}

/// The token and how the collector reaches the API server.
#[derive(Debug, Clone, Args)]
pub(in crate::ctl) struct TokenArgs {
    /// Requested validity of a new token; the user cluster may shorten it
    #[arg(long, value_name = "TIME", default_value = "720h")]
    pub(super) duration: Span,
    /// The API server as the collector reaches it [default: that of the kubeconfig]
    #[arg(long, value_name = "URL")]
    pub(super) api_server: Option<String>,
    /// PEM file with the authority of the API server [default: that of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(super) certificate_authority: Option<PathBuf>,
}

/// A condition by its name in `spec.nodeConditions`.
fn node_condition(text: &str) -> Result<NodeConditionKind, String> {
    NodeConditionKind::of(text).ok_or_else(|| {
        let all = NodeConditionKind::ALL.map(NodeConditionKind::as_str);
        format!("not one of {}", all.join(", "))
    })
}
