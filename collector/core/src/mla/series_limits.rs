//! Limits on the number of series of VMs in a stream. Series about pulls (`up`, `scrape_…`) and
//! those of the platform do not count.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesLimits {
    /// Maximum number of series of one VM after the rules.
    pub per_vm: usize,
    /// Maximum number of series of all VMs after the rules.
    pub all: usize,
}

/// Which limit the series of a page exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceededLimit {
    /// [`SeriesLimits::per_vm`], which is this number.
    PerVm(usize),
    /// [`SeriesLimits::all`], which is this number.
    All(usize),
}

impl Default for SeriesLimits {
    fn default() -> Self {
        Self {
            per_vm: usize::MAX,
            all: usize::MAX,
        }
    }
}

impl SeriesLimits {
    /// Checks a page with `series` series; the other VMs have `others`.
    ///
    /// # Errors
    /// Which limit it exceeds. A page without series exceeds none.
    pub(super) fn check(self, series: usize, others: usize) -> Result<(), ExceededLimit> {
        if series > self.per_vm {
            Err(ExceededLimit::PerVm(self.per_vm))
        } else if series > 0 && others.saturating_add(series) > self.all {
            Err(ExceededLimit::All(self.all))
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerVm(max) => write!(f, "more than {max} series after the rules (limits.seriesPerVm)"),
            Self::All(max) => write!(f, "the stream would have more than {max} series (limits.series)"),
        }
    }
}
