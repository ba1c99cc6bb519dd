//! Gates on figures that do not depend on the machine.

use anyhow::{Result, ensure};

/// Checks that a figure is at most `bound`, the value of the constant `name`, and at least 80 % of
/// it: under a bound with more room, the figure could grow again, and no test would fail.
///
/// # Errors
/// The figure, and the value that the constant should have.
pub fn ratchet(what: &str, measured: u64, name: &str, bound: u64) -> Result<()> {
    let next = measured + measured / 20;
    ensure!(
        measured <= bound,
        "{what}: {measured}, and {name} allows {bound}: find what has grown; if it must, set {name} to {next}"
    );
    ensure!(
        measured >= bound / 5 * 4,
        "{what}: only {measured}, and {name} allows {bound}: lower {name} to {next}"
    );
    Ok(())
}

#[test]
fn a_figure_above_its_bound_or_far_below_it_is_refused() {
    let check = |measured| ratchet("bytes", measured, "BYTES", 100);
    for good in [80, 100] {
        check(good).unwrap();
    }
    for (wrong, words) in [(101, "set BYTES to 106"), (79, "lower BYTES to 82")] {
        let error = check(wrong).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
