//! The settings `nic` and `virtio`, checked: what the types cannot say.

use std::time::Duration;

use regex_lite::Regex;
use virtfleet_wire::settings::{Multiqueue, NicSettings, RingSettings, Steering, VirtioSettings};

/// The schedulers that Linux has for disks with several hardware queues (`block/`, since 5.0).
pub const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];
/// The least size of a ring: below it a driver would stop for want of descriptors.
const LEAST_RING: u32 = 64;
/// The most (`VIRTQUEUE_MAX_SIZE`, Virtual I/O Device specification, 2.7: a queue has at most 32768).
const MOST_RING: u32 = 32_768;
/// A pass must come to an end.
const MOST_SETTLE: Duration = Duration::from_mins(1);

/// Something in the settings that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, e.g. `nic.exclude`.
    pub path: String,
    /// What is wrong, and what may be.
    pub message: String,
}

/// What is asked for, when the settings make sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What may be done to the number of queues.
    pub multiqueue: Multiqueue,
    /// Whether numbers that others chose stay.
    pub keep_manual: bool,
    /// Interfaces that are left alone.
    pub exclude: Option<Pattern>,
    /// How long a link may take to come back.
    pub settle: Duration,
    /// Sizes of the rings.
    pub rings: RingSettings,
    /// Where received packets are steered to.
    pub rps: Steering,
    /// The scheduler of virtio disks.
    pub disk_scheduler: Option<String>,
}

impl Asked {
    /// The settings' defaults: nothing but looking.
    pub fn only_look() -> Self {
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

/// A regular expression. Equal to one of the same text.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Whether it matches somewhere in this name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
    /// As it was written.
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

/// The settings with what they ask for, or all that is wrong with them.
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
                let message = format!("{:?} is no regular expression: {error}", nic.exclude);
                refuse("nic.exclude", message);
            })
            .ok()
    };
    if nic.settle.0.is_zero() || nic.settle.0 > MOST_SETTLE {
        let message = format!("must be more than 0 and at most {}s", MOST_SETTLE.as_secs());
        refuse("nic.settle", message);
    }
    for (path, size) in [("nic.rings.rx", nic.rings.rx), ("nic.rings.tx", nic.rings.tx)] {
        if let Some(size) = size
            && !(size.is_power_of_two() && (LEAST_RING..=MOST_RING).contains(&size))
        {
            let message =
                format!("{size} is no size of a ring: a power of two from {LEAST_RING} to {MOST_RING}");
            refuse(path, message);
        }
    }
    if let Some(word) = &virtio.disk_scheduler
        && !SCHEDULERS.contains(&word.as_str())
    {
        let message = format!(
            "{word:?} is no scheduler of Linux; it has {}",
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
    fn the_defaults_ask_for_nothing() {
        let asked = check(&NicSettings::default(), &VirtioSettings::default()).unwrap();
        assert_eq!(asked, Asked::only_look());
    }

    #[test]
    fn each_value_that_cannot_be_meant_is_named() {
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
