//! The agent's page beside node_exporter's: one machine, one run, family by family.
//!
//! ```text
//! Programs ─▶ Round (theirs, ours, theirs) × n ─▶ compare ─▶ differences ─▶ allowed ─▶ Verdict ─▶ table
//! ```
//! Both serve the collectors that both know. A series that moves must lie between what node_exporter said before and after,
//! in at least one round; one that does not move must be equal in at least one.

pub mod allowed;
mod compare;
mod page;
pub mod programs;

use std::{fmt, path::Path};

use anyhow::Result;

pub use compare::{Difference, Round, What, compare};
pub use page::{Family, Key, Page};

use allowed::{ALLOWED, Allowed};
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
    /// What is no difference but worth to be read.
    pub notes: Vec<String>,
}

/// Starts both programs, on this machine or on the roots in `roots` (`proc`, `sys`, `rootfs`, `udev`), and compares them.
pub fn run(roots: Option<&Path>, extent: Extent, rounds: usize) -> Result<Verdict> {
    let serve = Serve::everything(roots, extent)?;
    let mut programs = Programs::start(&serve)?;
    let rounds = programs.rounds(rounds)?;
    let mut verdict = judge(&rounds, ALLOWED);
    let names = serve.collectors.join(" ");
    let count = serve.collectors.len();
    verdict
        .notes
        .insert(0, format!("{count} collectors in both: {names}"));
    Ok(verdict)
}

/// Compares, and puts what `allowed` explains aside.
pub fn judge(rounds: &[Round], allowed: &'static [Allowed]) -> Verdict {
    let mut verdict = Verdict {
        compared: compare::extent(rounds),
        unexplained: Vec::new(),
        explained: Vec::new(),
        notes: compare::notes(rounds),
    };
    for difference in compare(rounds) {
        match allowed.iter().find(|entry| entry.explains(&difference)) {
            Some(entry) => verdict.explained.push((difference, entry)),
            None => verdict.unexplained.push(difference),
        }
    }
    verdict
}

/// The entries of the allow-list that none of `verdicts` needed.
pub fn unused<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Vec<&'static Allowed> {
    let used: Vec<&Allowed> = verdicts
        .into_iter()
        .flat_map(|verdict| verdict.explained.iter().map(|(_, entry)| *entry))
        .collect();
    let idle = |entry: &&Allowed| !used.contains(entry);
    ALLOWED.iter().filter(idle).collect()
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
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn line(f: &mut fmt::Formatter<'_>, word: &str, difference: &Difference, text: &str) -> fmt::Result {
    let (family, what) = (&difference.family, difference.what.as_str());
    writeln!(f, "{word}  {family:<42} {what:<8} {text}")
}
