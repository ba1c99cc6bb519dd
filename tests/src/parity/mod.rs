//! The agent's page beside node_exporter's: one machine, one run, family by family.
//!
//! ```text
//! Programs ─▶ Round (theirs, ours, theirs) × n ─▶ compare ─▶ differences ─▶ allowed ─▶ Verdict ─▶ table
//! ```
//! Both serve the collectors that both know. A series that moves must lie between what node_exporter said before and after,
//! in at least one round; one that does not move must be equal in all, but for a gauge of a machine that goes on meanwhile, which
//! may be another in fewer than half of them. What stands in every page of theirs must stand in all of ours, on such a machine in
//! more than half.

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

/// What came of a comparison.
#[derive(Debug)]
pub struct Verdict {
    /// Families of theirs that were compared, and their series.
    pub compared: (usize, usize),
    /// Differences that nothing explains.
    pub unexplained: Vec<Difference>,
    /// Differences with the entry that explains them.
    pub explained: Vec<(Difference, &'static Allowed)>,
    /// Entries that were made for this place, and that nothing needed.
    pub idle: Vec<&'static Allowed>,
    /// What is no difference but worth to be read.
    pub notes: Vec<String>,
}

/// Starts both programs, on this machine or on the roots in `roots` (`proc`, `sys`, `rootfs`, `udev`), and compares them.
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

/// What [`Allowed::at`] calls the roots: the name of a fixture's, `generated` for others, and `machine` for none.
fn place(roots: Option<&Path>) -> &str {
    let Some(roots) = roots else { return MACHINE };
    let fixture = roots
        .parent()
        .is_some_and(|folder| folder.ends_with("fixtures/roots"));
    let name = roots.file_name().and_then(std::ffi::OsStr::to_str);
    name.filter(|_| fixture).unwrap_or("generated")
}

/// Compares, and puts what `allowed` explains at `place` aside.
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
