//! Arguments of `disks`.

use clap::{ArgGroup, Args, Subcommand};

/// What is done with disks of VMs.
#[derive(Debug, Subcommand)]
pub(in crate::ctl) enum DisksCommand {
    /// Show which serials the disks of existing VMs get, and with --yes set them, by the rule of
    /// the admission policy for new VMs: the disk's name without the VM's name in front; serials
    /// that are set stay; guests see new ones after the next start of their VM; exit code 1 if a VM
    /// could not be changed
    SetSerials(SerialArgs),
}

/// Which VMs, and how.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("vms").required(true).multiple(true)
    .args(["names", "namespace", "all_namespaces", "cluster", "selector"]))]
pub(in crate::ctl) struct SerialArgs {
    /// VMs, whatever their labels: a name, or namespace/name if several VMs have that name
    #[arg(
        value_name = "[NAMESPACE/]NAME",
        conflicts_with_all = ["all_namespaces", "cluster", "selector"]
    )]
    pub(super) names: Vec<String>,
    /// Only VMs of these namespaces
    #[arg(short, long, value_delimiter = ',', value_name = "NAMESPACE")]
    pub(super) namespace: Vec<String>,
    /// VMs of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
    /// Only VMs whose labels name one of these user clusters
    #[arg(long, value_delimiter = ',', value_name = "CLUSTER")]
    pub(super) cluster: Vec<String>,
    /// Only VMs whose labels match this selector, as with kubectl
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(super) selector: Option<String>,
    /// Write the serials; without it, show what would be set, and write nothing
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", value_parser = ["table", "yaml", "json"], default_value = "table")]
    pub(super) output: String,
}
