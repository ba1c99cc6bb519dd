//! Arguments of `mla`, and their requests.

use clap::{Args, Subcommand};
use virtfleet_collector_core::mla::status::StreamState;

use super::filters::{OutputOptions, QueryPairs, VmFilters, query, words_of};

/// Arguments of `mla`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct MlaArgs {
    #[command(subcommand)]
    pub(super) command: Option<MlaCommand>,
    #[command(flatten)]
    pub(super) show: OutputOptions,
}

impl MlaArgs {
    pub(super) fn show(&self) -> &OutputOptions {
        match &self.command {
            None => &self.show,
            Some(MlaCommand::Targets { show, .. } | MlaCommand::Queues { show, .. }) => show,
        }
    }
}

/// What to list.
#[derive(Debug, Subcommand)]
pub(super) enum MlaCommand {
    /// List the last metrics page of each VM: time, duration, samples, series added, error
    Targets {
        #[command(flatten)]
        filters: Box<TargetFilters>,
        #[command(flatten)]
        show: OutputOptions,
    },
    /// List the streams with their queues and endpoints; exit code 7 if one is stopped or refused
    Queues {
        #[command(flatten)]
        filters: QueueFilters,
        #[command(flatten)]
        show: OutputOptions,
    },
}

/// Selects metrics pages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct TargetFilters {
    #[command(flatten)]
    pub(super) vms: VmFilters,
    /// Only VMs whose last page had these errors; `none`: no error
    #[arg(long, value_delimiter = ',', value_parser = ["none", "pullFailed", "malformed", "overLimit"])]
    pub(super) error: Vec<String>,
}

/// Selects streams.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct QueueFilters {
    /// Only the streams of these user clusters
    #[arg(long, value_delimiter = ',')]
    pub(super) cluster: Vec<String>,
    /// Only streams in these states
    #[arg(long, value_delimiter = ',', value_parser = words_of(StreamState::ALL))]
    pub(super) state: Vec<String>,
}

impl TargetFilters {
    /// The parameters of the request.
    pub(super) fn query(&self) -> QueryPairs {
        let mut pairs = self.vms.query();
        pairs.extend(query(&[("error", &self.error)]));
        pairs
    }
}

impl QueueFilters {
    /// The parameters of the request.
    pub(super) fn query(&self) -> QueryPairs {
        query(&[("cluster", &self.cluster), ("state", &self.state)])
    }
}
