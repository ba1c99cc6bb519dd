//! Fraction of CPU time that the hypervisor withheld since the last call, from the first line of
//! `/proc/stat` (kernel: `Documentation/filesystems/proc.rst`, section 1.7).

/// Sums over all CPUs in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Total time; the time of nested guests is counted once.
    pub all: u64,
    /// Steal time.
    pub stolen: u64,
}

/// Parses the first line; `None` if it is not the line of all CPUs.
pub fn sums(text: &str) -> Option<Sums> {
    /// user nice system idle iowait irq softirq steal; the next two are included in user and nice.
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

/// Keeps the last sums.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Steal {
    last: Sums,
    share: f64,
}

impl Steal {
    /// Returns the fraction since the last call, 0 to 1; at the first call since boot. Unchanged if
    /// no time has passed or the counters decreased (a CPU was removed).
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
    fn fraction_between_two_samples() {
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
        fn fraction_is_between_0_and_1(text in "(cpu)? [0-9 ]{0,80}", looks in proptest::collection::vec((0_u64..1000, 0_u64..1000), 0..20)) {
            sums(&text);
            let mut steal = Steal::default();
            for (all, stolen) in looks {
                let share = steal.share(Sums { all, stolen });
                prop_assert!((0.0..=1.0).contains(&share), "{}", share);
            }
        }
    }
}
