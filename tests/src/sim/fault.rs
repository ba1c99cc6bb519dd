//! Faults of simulated guests.

use std::{fmt, str::FromStr, time::Duration};

use strum::{IntoStaticStr, VariantArray};

/// A fault. A guest has at most one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Fault {
    /// Accepts connections and sends nothing, not even in the TLS handshake.
    Silent,
    /// Its page of metrics never ends.
    Endless,
    /// Its report has a size of 10 MiB.
    HugeReport,
    /// Its certificate comes from an untrusted authority.
    WrongCa,
    /// Its certificate belongs to another VM.
    WrongVm,
    /// Answers 500 to everything.
    Http500,
    /// Sends one byte every 100 ms.
    Slow,
    /// Answers 200 with content that is neither a page nor a report.
    Garbage,
    /// Its report has a version string of 250 KiB of control characters.
    Echo,
    /// Its report has 20,000 empty sections.
    Sections,
    /// Its page has series that only the collector exports, with old timestamps.
    Forge,
    /// Redirects requests for its page to another URL (302).
    Redirect,
    /// Sends `100 Continue` endlessly and never a final response.
    Continue,
    /// Its report has 20,000 empty findings.
    Findings,
    /// Its report claims the UUID and boot id of another VM, and findings that only the collector
    /// reports.
    Claims,
    /// Its responses begin with endless headers.
    Headers,
    /// Spreads each response over [`LATE`], so that a pull ends just before the collector's usual
    /// timeout of 10 s.
    Late,
}

/// Time over which a guest with [`Fault::Late`] spreads a response. A pull has two responses.
pub const LATE: Duration = Duration::from_secs(4);

impl Fault {
    /// All faults.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|fault| fault.name() == text);
        let names = Self::ALL.iter().map(|fault| fault.name()).collect::<Vec<_>>();
        let error = || format!("there is no fault {text:?}; there are {}", names.join(", "));
        found.copied().ok_or_else(error)
    }
}
