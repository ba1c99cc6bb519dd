//! Arguments of `render`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What is rendered.
#[derive(Debug, Subcommand)]
pub(super) enum Render {
    /// Print user-data for cloud-init, compressed by gzip
    CloudInit {
        #[command(flatten)]
        input: InputArgs,
        /// One cloud-config that starts with a boot command, or a MIME message with a boothook
        #[arg(long, value_enum, default_value = "cloud-config")]
        form: Form,
        /// Existing user-data to merge; may be repeated; `-` reads standard input
        #[arg(long, value_name = "USER-DATA")]
        with: Vec<PathBuf>,
        /// Print text in place of gzip, to read it or for a tool that accepts only text; cloud-init
        /// accepts both
        #[arg(long = "text")]
        as_text: bool,
    },
    /// Print an Ignition config, spec 3.3.0
    Ignition {
        #[command(flatten)]
        input: InputArgs,
        /// An existing config to merge; `-` reads standard input
        #[arg(long, value_name = "IGN")]
        with: Option<PathBuf>,
    },
    /// Print an OperatingSystemProfile of Kubermatic KKP that installs the agent
    Osp {
        #[command(flatten)]
        input: InputArgs,
        /// The existing profile to extend, as printed by `kubectl get osp NAME -o yaml`; `-` reads
        /// standard input
        #[arg(long, value_name = "OSP")]
        from: PathBuf,
        /// Name of the new profile [default: the old name with `-virtfleet`]
        #[arg(long)]
        name: Option<String>,
        /// Version of the new profile [default: the old version with a hash of the content]
        #[arg(long = "version", value_name = "VERSION")]
        profile_version: Option<String>,
        /// Print a CustomOperatingSystemProfile in the namespace kubermatic, which KKP copies to
        /// each user cluster of the seed
        #[arg(long)]
        custom: bool,
    },
}

/// The input, and what it may use.
#[derive(Debug, Args)]
pub(super) struct InputArgs {
    /// The input file; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Also include files outside of the input's folder; its author chooses which
    #[arg(long)]
    pub(super) files_from_anywhere: bool,
    /// Render without certificates: the guest's image must set server.tls, otherwise the
    /// collector cannot read the agent
    #[arg(long)]
    pub(super) without_tls: bool,
    /// PEM file with the fleet's authority of clients, for an input with tls.enrolment;
    /// otherwise it is read from the collector (--server)
    #[arg(long, value_name = "FILE")]
    pub(super) fleet_ca: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    CloudConfig,
    Mime,
}
