//! The collector trait, the context that collectors are built from, and collector errors.

use std::{
    borrow::Cow,
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
};

use virtfleet_agent_core::{procfs::ParseError, settings::chain};
use virtfleet_agent_host::{
    ClockCalls, Kernel, MachineCalls, NetworkCalls, NicCalls, RereadError, Roots, ServiceCalls, Statfs,
    nic_calls,
};
use virtfleet_agent_state::{CachedStateError, DnsHistory};
use virtfleet_wire::{
    exposition::Page,
    settings::{MetricsProfile, MetricsSettings, NicSettings},
};

use crate::RegistryError;

/// Reads one area of the guest and writes its metric families.
pub trait Collector: Send {
    /// Appends this collector's families to `page`, each family in one piece. On an error the
    /// caller removes what was written, except for [`CollectError::Partly`].
    ///
    /// # Errors
    /// There is no data, or reading or parsing failed ([`CollectError`]).
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError>;

    /// Called before each collection with the page of the preceding collectors. Implementations
    /// only read it.
    fn before_collect(&mut self, _page: &Page) {}
}

/// Why a collector wrote nothing, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// This guest has no such data, which is not a fault. The scrape reports success 0, as
    /// node_exporter does.
    #[error("no data: {0}")]
    NoData(Cow<'static, str>),
    /// Something that should work has failed.
    #[error("{what}")]
    Failed {
        /// What failed, with the file or the call.
        what: String,
        /// The underlying error, if any.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Part of it failed. What was written is valid and stays on the page.
    #[error("{0}")]
    Partly(String),
}

impl CollectError {
    /// This guest has no such data.
    pub fn no_data(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::NoData(reason.into())
    }
    /// A failure without an underlying error.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed {
            what: what.into(),
            source: None,
        }
    }
    /// A failure caused by `source`.
    pub fn because(what: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed {
            what: what.into(),
            source: Some(Box::new(source)),
        }
    }
    /// The content of a file is malformed.
    pub fn parse(path: &Path) -> impl FnOnce(ParseError) -> Self {
        let path: PathBuf = path.to_owned();
        move |error| Self::because(format!("cannot parse {}", path.display()), error)
    }
}

/// Malformed entries that a collector leaves out, so that their neighbours are exported.
#[derive(Debug, Default)]
pub(crate) struct Skipped {
    count: usize,
    /// Error of the first one.
    first: Option<String>,
}

impl Skipped {
    /// Returns a value, or counts it as left out.
    pub(crate) fn take<T>(&mut self, entry: Result<T, impl Into<CollectError>>) -> Option<T> {
        entry.map_err(|error| self.add(|| error.into())).ok()
    }
    /// Returns a function that counts malformed entries of a file.
    pub(crate) fn of(&mut self, path: &Path) -> impl FnMut(ParseError) {
        move |error| self.add(|| CollectError::parse(path)(error))
    }
    /// Returns the entries of a file that are not malformed.
    pub(crate) fn valid<T>(
        &mut self,
        path: &Path,
        entries: impl Iterator<Item = Result<T, ParseError>>,
    ) -> impl Iterator<Item = T> {
        let mut bad = self.of(path);
        entries.filter_map(move |entry| entry.map_err(&mut bad).ok())
    }
    /// Ends a collection.
    ///
    /// # Errors
    /// An entry was left out ([`CollectError::Partly`]).
    pub(crate) fn end(&self) -> Result<(), CollectError> {
        let Some(first) = &self.first else { return Ok(()) };
        let entries = if self.count == 1 {
            "entry was"
        } else {
            "entries were"
        };
        let count = self.count;
        Err(CollectError::Partly(format!(
            "{count} {entries} left out; the first: {first}"
        )))
    }
    fn add(&mut self, error: impl FnOnce() -> CollectError) {
        self.count += 1;
        self.first.get_or_insert_with(|| chain(&error()));
    }
}

impl From<RereadError> for CollectError {
    fn from(error: RereadError) -> Self {
        let what = error.to_string();
        let source = match error {
            RereadError::Io { source, .. } => Some(source.into()),
            RereadError::TooLarge { .. } => None,
        };
        Self::Failed { what, source }
    }
}

impl From<CachedStateError> for CollectError {
    fn from(error: CachedStateError) -> Self {
        match error {
            CachedStateError::Read(error) => error.into(),
            unusable @ CachedStateError::Unusable { .. } => Self::failed(unusable.to_string()),
        }
    }
}

/// The parameters of collectors.
#[derive(Clone)]
pub struct Context {
    /// Roots of the guest's file trees.
    pub roots: Roots,
    /// The settings' `metrics` section.
    pub settings: MetricsSettings,
    /// Filesystem usage (statfs) provider.
    pub statfs: Arc<dyn Statfs>,
    /// Machine queries (uname, wall clock).
    pub machine: Arc<dyn MachineCalls>,
    /// Network queries over netlink and ioctl.
    pub network: Arc<dyn NetworkCalls>,
    /// Queries of the queues of network interfaces.
    pub nics: Arc<dyn NicCalls>,
    pub clock: Arc<dyn ClockCalls>,
    pub services: Arc<dyn ServiceCalls>,
    /// Probe results of the nameserver watch.
    pub dns: DnsHistory,
    /// The settings' section `nic`, which determines the findings about queues.
    pub nic: NicSettings,
}

impl Context {
    /// A context with the running kernel.
    pub fn new(roots: Roots, settings: MetricsSettings) -> Self {
        Self {
            nics: nic_calls(&roots),
            roots,
            settings,
            statfs: Arc::new(Kernel),
            machine: Arc::new(Kernel),
            network: Arc::new(Kernel),
            clock: Arc::new(Kernel),
            services: Arc::new(Kernel),
            dns: DnsHistory::default(),
            nic: NicSettings::default(),
        }
    }
}

/// Builds a collector. Nothing is read before its first scrape, so only the settings can be wrong.
pub type Build = fn(&Context) -> Result<Box<dyn Collector>, RegistryError>;

/// When a collector is on without being named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultOn {
    /// In every profile.
    Always,
    /// In the profile `dashboards`.
    Dashboards,
    /// In none.
    Never,
}

/// A setting of a collector that node_exporter has as a flag, `--collector.NAME.SUFFIX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// Suffix after the collector's name, e.g. `device-exclude`. If node_exporter uses another name
    /// for the collector, `NAME.SUFFIX`.
    pub suffix: &'static str,
    /// Key in the collector's settings, e.g. `deviceExclude`.
    pub key: &'static str,
    pub setting_type: SettingType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingType {
    /// One text; the last flag has precedence.
    Text,
    /// A list of texts; each flag adds one.
    Texts,
    /// A boolean; a flag without a value.
    Switch,
}

impl Flag {
    /// A flag with one text, usually a regular expression.
    pub const fn text(suffix: &'static str, key: &'static str) -> Self {
        Self {
            suffix,
            key,
            setting_type: SettingType::Text,
        }
    }
    /// A flag that may be repeated.
    pub const fn texts(suffix: &'static str, key: &'static str) -> Self {
        Self {
            suffix,
            key,
            setting_type: SettingType::Texts,
        }
    }
    /// A flag without a value.
    pub const fn switch(suffix: &'static str, key: &'static str) -> Self {
        Self {
            suffix,
            key,
            setting_type: SettingType::Switch,
        }
    }
}

/// An entry of a registration table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name of the collector, as in `--collector.NAME`, `collect[]=NAME` and the label `collector`.
    pub name: &'static str,
    /// Whether it runs if the settings do not name it.
    pub default_on: DefaultOn,
    /// One-line description for help texts.
    pub about: &'static str,
    pub build: Build,
    /// Settings that are also flags.
    pub flags: &'static [Flag],
}

impl Entry {
    /// A collector that runs by default.
    pub const fn on(name: &'static str, about: &'static str, build: Build) -> Self {
        Self {
            name,
            default_on: DefaultOn::Always,
            about,
            build,
            flags: &[],
        }
    }
    /// A collector that runs in the profile `dashboards` or when it is named.
    pub const fn dashboards(name: &'static str, about: &'static str, build: Build) -> Self {
        Self {
            default_on: DefaultOn::Dashboards,
            ..Self::on(name, about, build)
        }
    }
    /// A collector that runs only when it is named.
    pub const fn off(name: &'static str, about: &'static str, build: Build) -> Self {
        Self {
            default_on: DefaultOn::Never,
            ..Self::on(name, about, build)
        }
    }
    /// The same entry with flags.
    #[must_use]
    pub const fn with(self, flags: &'static [Flag]) -> Self {
        Self { flags, ..self }
    }
    /// True if it runs in `profile` without being named.
    pub fn runs_in(&self, profile: MetricsProfile) -> bool {
        match self.default_on {
            DefaultOn::Always => true,
            DefaultOn::Dashboards => profile == MetricsProfile::Dashboards,
            DefaultOn::Never => false,
        }
    }
}
