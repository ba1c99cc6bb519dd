//! Arguments of `labels`.

use std::path::PathBuf;

use clap::Subcommand;

use super::filters::OutputOptions;

/// What is shown of the labels.
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
