//! What a collector is, what it is built from, and how it fails.

use std::{
    borrow::Cow,
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
};

use virtfleet_agent_core::procfs::ParseError;
use virtfleet_agent_host::{
    ClockCalls, Kernel, Machine, NetworkCalls, NicCalls, RereadError, Roots, ServiceCalls, Statfs, nic_calls,
};
use virtfleet_agent_state::{CachedStateError, DnsHistory};
use virtfleet_wire::{
    exposition::Page,
    settings::{MetricsProfile, MetricsSettings, NicSettings},
};

use crate::RegistryError;

/// Reads one corner of the guest and writes its families.
pub trait Collector: Send {
    /// Appends this collector's families to `page`, each family at once. What was written before an error is taken back
    /// by the caller, but for [`CollectError::Partly`].
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError>;

    /// Told before each collection: what the collectors before this one have written. Whoever implements it only reads.
    fn behind(&mut self, _page: &Page) {}
}

/// Why a collector wrote nothing, or not all.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// This guest has no such data; that is no fault. The scrape says success 0, as node_exporter does.
    #[error("no data: {0}")]
    NoData(Cow<'static, str>),
    /// Something that should work does not.
    #[error("{what}")]
    Failed {
        /// What failed, with the file or the call.
        what: String,
        /// Why, where something below said so.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Some of it does not work. What was written is true, and stays on the page.
    #[error("{0}")]
    Partly(String),
}

impl CollectError {
    /// This guest has no such data.
    pub fn no_data(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::NoData(reason.into())
    }
    /// Something failed, and nothing below says more.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed {
            what: what.into(),
            source: None,
        }
    }
    /// Something failed because of `source`.
    pub fn because(what: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed {
            what: what.into(),
            source: Some(Box::new(source)),
        }
    }
    /// A file does not hold what it should.
    pub fn parse(path: &Path) -> impl FnOnce(ParseError) -> Self {
        let path: PathBuf = path.to_owned();
        move |error| {
            Self::because(
                format!("{} is not as the kernel writes it", path.display()),
                error,
            )
        }
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

/// What collectors are built from.
#[derive(Clone)]
pub struct Context {
    /// Where the guest's trees are.
    pub roots: Roots,
    /// The settings' `metrics` section. Collectors are built with `collectors` naming each, as it is.
    pub settings: MetricsSettings,
    /// Who is asked for a filesystem's space.
    pub statfs: Arc<dyn Statfs>,
    /// Who is asked about the machine.
    pub machine: Arc<dyn Machine>,
    /// Who is asked about the network, by netlink and ioctl.
    pub network: Arc<dyn NetworkCalls>,
    /// Who is asked about queues of network interfaces.
    pub nics: Arc<dyn NicCalls>,
    /// Who is asked about the clock.
    pub clock: Arc<dyn ClockCalls>,
    /// Who is asked about services.
    pub services: Arc<dyn ServiceCalls>,
    /// What the watch over DNS hears.
    pub dns: DnsHistory,
    /// The settings' section `nic`, by which queues are judged.
    pub nic: NicSettings,
}

impl Context {
    /// With the kernel that runs us.
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

/// Builds a collector; nothing is read before its first scrape, so that only settings can be wrong.
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
    /// Behind the collector's name, e.g. `device-exclude`; with a name of its own before a point where node_exporter has
    /// another for the collector.
    pub suffix: &'static str,
    /// The key under the collector's settings, e.g. `deviceExclude`.
    pub key: &'static str,
    /// What the setting holds.
    pub holds: Holds,
}

/// What a flag's setting holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// One text; the last flag wins.
    Text,
    /// Texts; each flag adds one.
    Texts,
    /// Yes; a flag without a value.
    Switch,
}

impl Flag {
    /// A flag with one text, mostly a regular expression.
    pub const fn text(suffix: &'static str, key: &'static str) -> Self {
        Self {
            suffix,
            key,
            holds: Holds::Text,
        }
    }
    /// A flag that may be given several times.
    pub const fn texts(suffix: &'static str, key: &'static str) -> Self {
        Self {
            suffix,
            key,
            holds: Holds::Texts,
        }
    }
    /// A flag without a value.
    pub const fn switch(suffix: &'static str, key: &'static str) -> Self {
        Self {
            suffix,
            key,
            holds: Holds::Switch,
        }
    }
}

/// A line of a registration table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The collector's name, as in `--collector.NAME`, `collect[]=NAME` and the label `collector`.
    pub name: &'static str,
    /// Whether it runs unless the settings say otherwise.
    pub default_on: DefaultOn,
    /// One line for help texts.
    pub about: &'static str,
    /// Its constructor.
    pub build: Build,
    /// Its settings that are flags, too.
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
    /// A collector that runs in the profile `dashboards`, or when it is named.
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
    /// The same with flags.
    #[must_use]
    pub const fn with(self, flags: &'static [Flag]) -> Self {
        Self { flags, ..self }
    }
    /// Whether it runs in `profile` unless it is named.
    pub fn runs_in(&self, profile: MetricsProfile) -> bool {
        match self.default_on {
            DefaultOn::Always => true,
            DefaultOn::Dashboards => profile == MetricsProfile::Dashboards,
            DefaultOn::Never => false,
        }
    }
}
