//! Waits for conditions with a deadline; tests wait in no other way.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

/// Minimum pause between two probes.
const PAUSE: Duration = Duration::from_millis(20);
/// Deadline for effects of an event, as opposed to a timer, also on a busy machine. It is well
/// below the pauses, timeouts and intervals from which it must be distinguished: 30 seconds and
/// more.
pub const PROMPT: Duration = Duration::from_secs(10);

/// Maximum pause between two probes.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Factor by which deadlines are longer than given: they are chosen for an idle machine, and only a
/// failing test takes longer because of it.
const BUSY_FACTOR: u32 = 4;

/// A pause is at least the time since the first probe divided by this. So a wait takes at most a
/// sixteenth longer, and a long one probes rarely: what tests and collectors spend on probes is
/// missing to that for which they wait.
const PAUSE_DIVISOR: u32 = 16;

/// Calls `probe` until it returns a value. Fails with `what` and the last error when
/// [`BUSY_FACTOR`] times `deadline` has passed since the first call. Pauses as long as a probe
/// takes, so that a probe that starts programs uses at most half of a core, and longer in a long
/// wait ([`PAUSE_DIVISOR`]).
pub fn eventually<T>(deadline: Duration, what: &str, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let deadline = deadline.saturating_mul(BUSY_FACTOR);
    loop {
        let begun = Instant::now();
        match probe() {
            Ok(value) => return Ok(value),
            Err(last) if start.elapsed() >= deadline => {
                return Err(last.context(format!("waited {deadline:?} for {what}")));
            }
            // Parking with a timeout is a pause that no event ends: this thread is never unparked.
            Err(_) => thread::park_timeout(pause(begun.elapsed(), start.elapsed())),
        }
    }
}

/// The pause after a probe that took `probe`, in a wait that has taken `waited` so far.
fn pause(probe: Duration, waited: Duration) -> Duration {
    probe.max(waited / PAUSE_DIVISOR).clamp(PAUSE, LONGEST_PAUSE)
}

/// As [`eventually`], for a condition without a value.
pub fn until(deadline: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    eventually(deadline, what, || {
        holds().then_some(()).ok_or_else(|| anyhow!("not yet"))
    })
}

/// Waits for `length` and calls `look` every second. For measurements, never to wait for an event.
pub fn measure(length: Duration, mut look: impl FnMut() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    while let Some(left) = length.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left.min(Duration::from_secs(1)));
        look()?;
    }
    Ok(())
}

/// A shell script that prints what journalctl finds with `options` since the boot. Messages that
/// journald has not stored yet are waited for, because a unit's end does not wait for them. If
/// nothing is found it looks again, ten times: journalctl has missed entries that were there.
pub fn journal_script(options: &str) -> String {
    format!(
        "journalctl --sync; n=0; until journalctl --no-pager --quiet --boot {options} | grep . || [ $n -ge 10 ]; \
         do n=$((n + 1)); sleep 1; done"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_value_or_the_last_reason() {
        let mut left = 3;
        let value = eventually(Duration::from_secs(5), "a countdown", || {
            left -= 1;
            if left == 0 {
                Ok("done")
            } else {
                Err(anyhow!("{left} left"))
            }
        });
        assert_eq!(value.unwrap(), "done");
        let error = eventually(Duration::ZERO, "the moon", || Err::<(), _>(anyhow!("cloudy"))).unwrap_err();
        assert_eq!(format!("{error:#}"), "waited 0ns for the moon: cloudy");
        until(Duration::ZERO, "nothing", || false).unwrap_err();
    }

    #[test]
    fn pauses_grow_with_the_probe_and_with_the_wait() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(1), ms(1)), PAUSE);
        assert_eq!(pause(ms(100), ms(100)), ms(100));
        assert_eq!(pause(ms(1), ms(1600)), ms(100));
        assert_eq!(pause(ms(1), ms(60_000)), LONGEST_PAUSE);
        assert_eq!(pause(ms(60_000), ms(60_000)), LONGEST_PAUSE);
    }
}
