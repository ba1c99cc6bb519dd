//! Compares the agent's page with node_exporter's, on one machine, in one run, family by family.
//!
//! ```text
//! Programs ─▶ Round (theirs, ours, theirs) × n ─▶ compare ─▶ differences ─▶ allowed ─▶ Verdict ─▶ table
//! ```
//! Both programs run the collectors that both have. Rules:
//! - A series whose value changes must lie between node_exporter's values before and after, in at
//!   least one round.
//! - A series whose value is constant must be equal in all rounds. On a machine that changes
//!   meanwhile, a gauge may differ in fewer than half of the rounds.
//! - A series that is on every page of node_exporter must be on every page of the agent; on a
//!   machine that changes meanwhile, on more than half of them.

pub mod allowed;
mod compare;
mod page;
pub mod programs;

use std::{fmt, path::Path};

use anyhow::Result;

pub use compare::{Difference, Round, What, compare};
pub use page::{Family, Key, Page};

use allowed::{ALLOWED, ANYWHERE, Allowed, MACHINE};
pub use programs::Extent;
use programs::{Programs, Serve};

/// Result of a comparison.
#[derive(Debug)]
pub struct Verdict {
    /// Number of node_exporter's families that were compared, and of their series.
    pub compared: (usize, usize),
    /// Differences without an entry that explains them.
    pub unexplained: Vec<Difference>,
    /// Differences with the entry that explains them.
    pub explained: Vec<(Difference, &'static Allowed)>,
    /// Entries for this place that matched no difference.
    pub idle: Vec<&'static Allowed>,
    /// Remarks that are not differences.
    pub notes: Vec<String>,
}

/// Starts both programs, on this machine or on the roots in `roots` (`proc`, `sys`, `rootfs`,
/// `udev`), and compares them.
pub fn run(roots: Option<&Path>, extent: Extent, rounds: usize) -> Result<Verdict> {
    let serve = Serve::everything(roots, extent)?;
    let mut programs = Programs::start(&serve)?;
    let rounds = programs.rounds(rounds)?;
    let mut verdict = judge(&rounds, ALLOWED, place(roots));
    let names = serve.collectors.join(" ");
    let count = serve.collectors.len();
    verdict
        .notes
        .insert(0, format!("{count} collectors in both: {names}"));
    Ok(verdict)
}

/// The place of the roots, as in [`Allowed::at`]: the name of a fixture, `generated` for other
/// roots, and `machine` without roots.
fn place(roots: Option<&Path>) -> &str {
    let Some(roots) = roots else { return MACHINE };
    let fixture = roots
        .parent()
        .is_some_and(|folder| folder.ends_with("fixtures/roots"));
    let name = roots.file_name().and_then(std::ffi::OsStr::to_str);
    name.filter(|_| fixture).unwrap_or("generated")
}

/// Compares the rounds and separates the differences that `allowed` explains at `place`.
pub fn judge(rounds: &[Round], allowed: &'static [Allowed], place: &str) -> Verdict {
    let mut verdict = Verdict {
        compared: compare::extent(rounds),
        unexplained: Vec::new(),
        explained: Vec::new(),
        idle: Vec::new(),
        notes: compare::notes(rounds),
    };
    let made = || allowed.iter().filter(|entry| entry.at.contains(&place));
    let listed = || {
        let anywhere = allowed.iter().filter(|entry| entry.at.contains(&ANYWHERE));
        made().chain(anywhere)
    };
    for difference in compare(rounds, place == MACHINE) {
        match listed().find(|entry| entry.explains(&difference)) {
            Some(entry) => verdict.explained.push((difference, entry)),
            None => verdict.unexplained.push(difference),
        }
    }
    let used = |entry: &Allowed| verdict.explained.iter().any(|(_, other)| *other == entry);
    verdict.idle = made().filter(|entry| !used(entry)).collect();
    verdict
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (families, series) = self.compared;
        let found = self.unexplained.len();
        let known = self.explained.len();
        writeln!(
            f,
            "{families} families, {series} series: {found} differences, and {known} explained ones"
        )?;
        for difference in &self.unexplained {
            line(f, "DIFFERENT", difference, &difference.detail)?;
        }
        for (difference, entry) in &self.explained {
            line(f, "explained", difference, entry.reason)?;
        }
        for entry in &self.idle {
            writeln!(
                f,
                "not needed  {:<40} {:<8} {}",
                entry.family,
                entry.what.as_str(),
                entry.reason
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn line(f: &mut fmt::Formatter<'_>, word: &str, difference: &Difference, text: &str) -> fmt::Result {
    let (family, what) = (&difference.family, difference.what.as_str());
    writeln!(f, "{word}  {family:<42} {what:<8} {text}")
}
