//! Validation of the settings `nic` and `virtio`, beyond what their types check.

use std::time::Duration;

use regex_lite::Regex;
use virtfleet_wire::settings::{Multiqueue, NicSettings, RingSettings, Steering, VirtioSettings};

/// I/O schedulers of Linux for disks with several hardware queues (`block/`, since 5.0).
pub const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];
/// Minimum ring size in descriptors: with fewer, a driver stops for lack of descriptors.
const MIN_RING: u32 = 64;
/// Maximum ring size in descriptors (Virtual I/O Device specification, 2.7: a queue has at most
/// 32768).
const MAX_RING: u32 = 32_768;
/// Maximum of `nic.settle`; it bounds the duration of a run.
const MAX_SETTLE: Duration = Duration::from_mins(1);

/// Invalid setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Key, e.g. `nic.exclude`.
    pub path: String,
    /// What is wrong, and which values are valid.
    pub message: String,
}

/// Valid settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Which changes of the number of queues are allowed.
    pub multiqueue: Multiqueue,
    /// Whether numbers of queues that an admin or another program set are kept.
    pub keep_manual: bool,
    /// Interfaces that are not managed.
    pub exclude: Option<Pattern>,
    /// Maximum time for a link to come back after a change.
    pub settle: Duration,
    /// Requested ring sizes.
    pub rings: RingSettings,
    /// Where received packets are steered.
    pub rps: Steering,
    /// Requested scheduler of virtio disks.
    pub disk_scheduler: Option<String>,
}

impl Asked {
    /// Default settings, with which the agent changes nothing.
    pub fn read_only() -> Self {
        let defaults = NicSettings::default();
        Self {
            multiqueue: Multiqueue::ReportOnly,
            keep_manual: false,
            exclude: None,
            settle: defaults.settle.0,
            rings: defaults.rings,
            rps: defaults.rps,
            disk_scheduler: None,
        }
    }
}

/// Regular expression. Two are equal if their texts are.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Whether it matches anywhere in the name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
    pub fn text(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Pattern {}

/// Validates the settings.
///
/// # Errors
///
/// All problems, if any setting is invalid.
pub fn check(nic: &NicSettings, virtio: &VirtioSettings) -> Result<Asked, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, message: String| {
        problems.push(Problem {
            path: path.to_owned(),
            message,
        });
    };
    let exclude = if nic.exclude.is_empty() {
        None
    } else {
        Regex::new(&nic.exclude)
            .map(Pattern)
            .map_err(|error| {
                let message = format!("{:?} is not a regular expression: {error}", nic.exclude);
                refuse("nic.exclude", message);
            })
            .ok()
    };
    if nic.settle.0.is_zero() || nic.settle.0 > MAX_SETTLE {
        let message = format!("must be more than 0 and at most {}s", MAX_SETTLE.as_secs());
        refuse("nic.settle", message);
    }
    for (path, size) in [("nic.rings.rx", nic.rings.rx), ("nic.rings.tx", nic.rings.tx)] {
        if let Some(size) = size
            && !(size.is_power_of_two() && (MIN_RING..=MAX_RING).contains(&size))
        {
            let message =
                format!("{size} is not a valid ring size: use a power of two from {MIN_RING} to {MAX_RING}");
            refuse(path, message);
        }
    }
    if let Some(word) = &virtio.disk_scheduler
        && !SCHEDULERS.contains(&word.as_str())
    {
        let message = format!(
            "{word:?} is not an I/O scheduler of Linux; valid: {}",
            SCHEDULERS.join(", ")
        );
        refuse("virtio.diskScheduler", message);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Asked {
        multiqueue: nic.multiqueue,
        keep_manual: nic.keep_manual,
        exclude,
        settle: nic.settle.0,
        rings: nic.rings,
        rps: nic.rps,
        disk_scheduler: virtio.disk_scheduler.clone(),
    })
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::duration::Span;

    use super::*;

    #[test]
    fn defaults_change_nothing() {
        let asked = check(&NicSettings::default(), &VirtioSettings::default()).unwrap();
        assert_eq!(asked, Asked::read_only());
    }

    #[test]
    fn invalid_values_are_reported() {
        let nic = NicSettings {
            exclude: "(".to_owned(),
            settle: Span::seconds(0),
            rings: RingSettings {
                rx: Some(0),
                tx: Some(100),
            },
            ..NicSettings::default()
        };
        let virtio = VirtioSettings {
            disk_scheduler: Some("cfq".to_owned()),
        };
        let problems = check(&nic, &virtio).unwrap_err();
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        let all = [
            "nic.exclude",
            "nic.settle",
            "nic.rings.rx",
            "nic.rings.tx",
            "virtio.diskScheduler",
        ];
        assert_eq!(paths, all);
        assert!(problems[4].message.contains("mq-deadline"), "{problems:?}");
    }

    #[test]
    fn patterns_are_equal_by_their_text() {
        let asked = |exclude: &str| {
            let nic = NicSettings {
                exclude: exclude.to_owned(),
                ..NicSettings::default()
            };
            check(&nic, &VirtioSettings::default()).unwrap()
        };
        assert_eq!(asked("^ens4$"), asked("^ens4$"));
        assert_ne!(asked("^ens4$"), asked("ens4"));
        let pattern = asked("^ens4$").exclude.unwrap();
        assert!(pattern.matches("ens4") && !pattern.matches("ens40"));
    }
}
