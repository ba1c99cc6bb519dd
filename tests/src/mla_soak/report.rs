//! The result of a run, as a table.

use std::fmt;

use super::check::{Counted, Found};

/// What was found of a tenant.
#[derive(Debug)]
pub struct TenantRow {
    /// Its user cluster.
    pub cluster: String,
    /// Name of its receiver.
    pub receiver: String,
    pub(super) counted: Counted,
    pub(super) found: Found,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Kinds of faults with their numbers.
    pub faults: Vec<(String, usize)>,
    /// One row for each tenant.
    pub tenants: Vec<TenantRow>,
    /// Violations that belong to no tenant alone.
    pub violations: Vec<String>,
}

impl Report {
    /// All violations.
    pub fn all_violations(&self) -> Vec<String> {
        let tenants = self.tenants.iter().flat_map(|row| {
            let violations = row.found.violations.iter();
            violations.map(|text| format!("{} in {}: {text}", row.cluster, row.receiver))
        });
        self.violations.iter().cloned().chain(tenants).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(fault, count)| format!("{count} {fault}"))
            .collect();
        writeln!(f, "faults: {}", faults.join(", "))?;
        writeln!(
            f,
            "{:<12} {:<14} {:>10} {:>8} {:>8} {:>10} {:>8} {:>7} {:>7} {:>7} {:>10}",
            "tenant",
            "receiver",
            "accepted",
            "dropped",
            "refused",
            "stored",
            "repeated",
            "series",
            "pages",
            "partial",
            "longest gap"
        )?;
        for TenantRow {
            cluster,
            receiver,
            counted,
            found,
        } in &self.tenants
        {
            writeln!(
                f,
                "{cluster:<12} {receiver:<14} {:>10} {:>8} {:>8} {:>10} {:>8} {:>7} {:>7} {:>7} {:>9.1}s",
                counted.accepted,
                counted.dropped,
                counted.refused,
                found.samples,
                found.repeated,
                found.series,
                found.pages,
                found.partial,
                found.longest_gap_ms as f64 / 1000.0
            )?;
        }
        let total = |number: fn(&TenantRow) -> u64| self.tenants.iter().map(number).sum::<u64>();
        writeln!(
            f,
            "{} tenants: {} samples accepted, {} dropped, {} refused, {} stored, {} missing",
            self.tenants.len(),
            total(|row| row.counted.accepted),
            total(|row| row.counted.dropped),
            total(|row| row.counted.refused),
            total(|row| row.found.samples),
            total(|row| row.counted.missing(row.found.samples)),
        )?;
        let violations = self.all_violations();
        for violation in &violations {
            writeln!(f, "VIOLATION {violation}")?;
        }
        write!(f, "{} violations", violations.len())
    }
}
