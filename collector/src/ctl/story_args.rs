//! Arguments of `events`, `migrations` and `status`, and their requests.

use clap::Args;
use virtfleet_collector_core::{
    health::HealthVerdict,
    story::{MigrationPhase, TimelineKind},
};
use virtfleet_wire::duration::Span;

use super::filters::{HostSelection, QueryPairs, VmSelection, query, words_of};

/// Selects by VM and time.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct StoryScope {
    /// Only what concerns this VM
    #[arg(value_name = "[NAMESPACE/]NAME")]
    vm: Option<String>,
    /// Only what began in this time until now, e.g. 1h
    #[arg(long, value_name = "TIME")]
    since: Option<Span>,
}

/// Selects events.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct EventFilters {
    #[command(flatten)]
    pub(super) scope: StoryScope,
    #[command(flatten)]
    pub(super) vms: VmSelection,
    #[command(flatten)]
    pub(super) host: HostSelection,
    /// Only events of these kinds
    #[arg(long, value_delimiter = ',', value_parser = words_of(TimelineKind::ALL))]
    pub(super) kind: Vec<String>,
}

/// Selects migrations.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct MigrationFilters {
    #[command(flatten)]
    pub(super) scope: StoryScope,
    #[command(flatten)]
    pub(super) vms: VmSelection,
    /// Only migrations from or to these infra nodes
    #[arg(
        long,
        visible_alias = "node",
        value_delimiter = ',',
        value_name = "INFRA NODE"
    )]
    pub(super) host: Vec<String>,
    /// Only migrations in these phases
    #[arg(long, value_delimiter = ',', value_parser = MigrationPhase::ALL.map(MigrationPhase::as_str))]
    pub(super) phase: Vec<String>,
}

/// Waiting of `status`.
#[derive(Debug, Args)]
pub(super) struct StatusWait {
    /// Wait until the fleet has this verdict or a better one
    #[arg(
        long,
        value_name = "VERDICT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "healthy",
        value_parser = HealthVerdict::ALL.map(HealthVerdict::label)
    )]
    pub(super) wait: Option<String>,
    /// Maximum time of --wait
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub(super) wait_timeout: Span,
}

impl StatusWait {
    pub(super) fn verdict(&self) -> Option<HealthVerdict> {
        let wanted = self.wait.as_deref()?;
        HealthVerdict::ALL.into_iter().find(|one| one.label() == wanted)
    }
}

impl StoryScope {
    /// The parameters of the request; `now_ms` is milliseconds since 1970.
    fn query(&self, now_ms: u64) -> QueryPairs {
        let mut pairs = match self.vm.as_deref().map(|vm| (vm, vm.split_once('/'))) {
            Some((_, Some((namespace, name)))) => {
                vec![("namespace", namespace.to_owned()), ("name", name.to_owned())]
            }
            Some((name, None)) => vec![("name", name.to_owned())],
            None => Vec::new(),
        };
        if let Some(span) = &self.since {
            let span_ms = u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
            pairs.push(("sinceMs", now_ms.saturating_sub(span_ms).to_string()));
        }
        pairs
    }
}

impl EventFilters {
    /// The parameters of the request.
    pub(super) fn query(&self, now_ms: u64) -> QueryPairs {
        let more = query(&[("node", &self.host.host), ("kind", &self.kind)]);
        [self.scope.query(now_ms), self.vms.query(), more].concat()
    }
}

impl MigrationFilters {
    /// The parameters of the request.
    pub(super) fn query(&self, now_ms: u64) -> QueryPairs {
        let more = query(&[("host", &self.host), ("phase", &self.phase)]);
        [self.scope.query(now_ms), self.vms.query(), more].concat()
    }
}
