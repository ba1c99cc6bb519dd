//! Which share of its CPUs' time the guest was denied since it was looked at last: from the first line of `/proc/stat`
//! (kernel: `Documentation/filesystems/proc.rst`, section 1.7).

/// Sums over all CPUs, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// All of the time, guests' own not counted twice.
    pub all: u64,
    /// Time in which the host ran others.
    pub stolen: u64,
}

/// The sums of the first line; none when it is not one of all CPUs.
pub fn sums(text: &str) -> Option<Sums> {
    /// user nice system idle iowait irq softirq steal; the two that follow are in user and nice already.
    const COUNTED: usize = 8;
    let mut words = text.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let mut sums = Sums::default();
    for _ in 0..COUNTED {
        sums.stolen = words.next()?.parse().ok()?;
        sums.all = sums.all.checked_add(sums.stolen)?;
    }
    Some(sums)
}

/// Remembers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Steal {
    last: Sums,
    share: f64,
}

impl Steal {
    /// The share since the last call, from 0 to 1; at the first call since the start of the guest. Where no time has passed, or where the
    /// counters stepped back (a CPU was taken away), it is what it was.
    pub fn share(&mut self, now: Sums) -> f64 {
        let all = now.all.checked_sub(self.last.all).filter(|all| *all > 0);
        let stolen = now.stolen.checked_sub(self.last.stolen);
        if let (Some(all), Some(stolen)) = (all, stolen) {
            self.share = (stolen as f64 / all as f64).min(1.0);
        }
        self.last = now;
        self.share
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = "cpu  10 0 10 60 0 0 0 20 5 0\ncpu0 10 0 10 60 0 0 0 20 5 0\n";

    #[test]
    fn the_share_between_two_looks() {
        let first = sums(SAMPLE).unwrap();
        assert_eq!((first.all, first.stolen), (100, 20));
        let mut steal = Steal::default();
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        near(steal.share(first), 0.2);
        near(steal.share(first), 0.2);
        near(steal.share(Sums { all: 200, stolen: 70 }), 0.5);
        near(steal.share(Sums { all: 150, stolen: 10 }), 0.5);
        near(steal.share(Sums { all: 250, stolen: 10 }), 0.0);
        for bad in [
            "",
            "cpu0 1 2 3 4 5 6 7 8",
            "cpu 1 2 3",
            "cpu 1 2 3 4 5 6 7 x",
            "cpu",
        ] {
            assert_eq!(sums(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_share_is_one(text in "(cpu)? [0-9 ]{0,80}", looks in proptest::collection::vec((0_u64..1000, 0_u64..1000), 0..20)) {
            sums(&text);
            let mut steal = Steal::default();
            for (all, stolen) in looks {
                let share = steal.share(Sums { all, stolen });
                prop_assert!((0.0..=1.0).contains(&share), "{}", share);
            }
        }
    }
}
