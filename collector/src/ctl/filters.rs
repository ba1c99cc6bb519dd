//! Filters and output options that several commands share.

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use virtfleet_collector_core::{health::HealthVerdict, view::VmState};

/// Selects VMs. Several values of one filter mean "one of these".
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct VmFilters {
    #[command(flatten)]
    pub(super) vms: VmSelection,
    #[command(flatten)]
    pub(super) host: HostSelection,
    /// Only VMs on infra nodes of these regions
    #[arg(long, value_delimiter = ',')]
    pub(super) region: Vec<String>,
    /// Only VMs whose agents have these states
    #[arg(long, value_delimiter = ',', value_parser = ["up", "silent", "waiting", "off", "disabled", "unmanaged"])]
    pub(super) agent: Vec<String>,
    /// Also VMs whose agents are not pulled (`unmanaged`)
    #[arg(long)]
    pub(super) all: bool,
    /// Only VMs whose names contain this text
    #[arg(short, value_name = "TEXT")]
    pub(super) q: Option<String>,
}

/// Filters that every list about VMs has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct VmSelection {
    /// Only VMs of these namespaces
    #[arg(short, long, value_delimiter = ',')]
    pub(super) namespace: Vec<String>,
    /// Only VMs that serve these user clusters
    #[arg(long, value_delimiter = ',')]
    pub(super) cluster: Vec<String>,
    /// Only VMs on infra nodes of these zones
    #[arg(long, value_delimiter = ',')]
    pub(super) zone: Vec<String>,
    /// Only VMs with these verdicts
    #[arg(long, value_delimiter = ',', value_parser = HealthVerdict::ALL.map(HealthVerdict::label))]
    pub(super) health: Vec<String>,
    /// Only VMs in these states
    #[arg(long, value_delimiter = ',', value_parser = words_of(VmState::ALL))]
    pub(super) state: Vec<String>,
    /// Only VMs whose labels match this selector, e.g. `app=web,tier!=db,zone in (a,b)`
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(super) selector: Option<String>,
}

/// Selects VMs by the infra node on which they are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct HostSelection {
    /// Only VMs on these infra nodes
    #[arg(
        long,
        visible_alias = "node",
        value_delimiter = ',',
        value_name = "INFRA NODE"
    )]
    pub(super) host: Vec<String>,
}

/// States of agents that are pulled, or would be if the VM ran.
const PULLED: [&str; 5] = ["up", "silent", "waiting", "off", "disabled"];

/// Accepts the words of these values.
pub(super) fn words_of<T: Copy + Into<&'static str>>(values: &[T]) -> PossibleValuesParser {
    let words = values.iter().map(|&value| -> &'static str { value.into() });
    PossibleValuesParser::new(words)
}

/// Parameters of a request.
pub(super) type QueryPairs = Vec<(&'static str, String)>;

/// One parameter for each value.
pub(super) fn query(filters: &[(&'static str, &Vec<String>)]) -> QueryPairs {
    filters
        .iter()
        .flat_map(|(name, values)| values.iter().map(|value| (*name, value.clone())))
        .collect()
}

impl VmSelection {
    /// The parameters of the request.
    pub(super) fn query(&self) -> QueryPairs {
        let mut pairs = query(&[
            ("namespace", &self.namespace),
            ("cluster", &self.cluster),
            ("zone", &self.zone),
            ("health", &self.health),
            ("state", &self.state),
        ]);
        pairs.extend(self.selector.clone().map(|text| ("selector", text)));
        pairs
    }
}

impl VmFilters {
    /// The parameters of the request.
    pub(super) fn query(&self) -> QueryPairs {
        let mut pairs = self.vms.query();
        let pulled = PULLED.map(str::to_owned).to_vec();
        let agent = if self.agent.is_empty() && !self.all {
            &pulled
        } else {
            &self.agent
        };
        pairs.extend(query(&[
            ("node", &self.host.host),
            ("region", &self.region),
            ("agent", agent),
        ]));
        pairs.extend(self.q.clone().map(|text| ("q", text)));
        pairs
    }
}

/// Output options.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputOptions {
    /// More columns, the response of the API, or names only
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Output>,
    /// Sort a list by a column, or by a field of the response such as `health.sinceMs`
    #[arg(long, value_name = "COLUMN")]
    pub(super) sort_by: Option<String>,
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
    Name,
}
