//! `/proc/cgroups`: the controllers of version 1 (kernel: `kernel/cgroup/cgroup-v1.c`,
//! `proc_cgroupstats_show`).

use super::{ParseError, counter, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controller<'text> {
    pub name: &'text str,
    pub cgroups: u64,
    /// Whether it is enabled: 1 or 0.
    pub enabled: u64,
}

/// Parses the controllers, and skips the heading.
pub fn controllers(text: &str) -> impl Iterator<Item = Result<Controller<'_>, ParseError>> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'))
        .filter_map(|(index, line)| {
            let mut words = words(line);
            let name = words.next()?;
            let mut next = || counter(words.next(), index, "hierarchy, number of cgroups, enabled");
            // The hierarchy's number comes first.
            let numbers = next().and_then(|_| Ok((next()?, next()?)));
            Some(numbers.map(|(cgroups, enabled)| Controller {
                name,
                cgroups,
                enabled,
            }))
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str =
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t17\t1\nmemory\t0\t99\t0\n";

    #[test]
    fn controllers_by_name() {
        let all: Vec<_> = controllers(SAMPLE).collect::<Result<_, _>>().unwrap();
        assert_eq!((all[0].name, all[0].cgroups, all[0].enabled), ("cpuset", 17, 1));
        assert_eq!((all[1].name, all[1].enabled), ("memory", 0));
        assert_eq!(controllers("#h\ncpu 1 x 1").next().unwrap().unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = controllers(&text).count();
        }
    }
}
