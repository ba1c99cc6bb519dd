//! Queueing disciplines with their counters (`linux/pkt_sched.h`, `linux/gen_stats.h`).

use super::{attributes, long, number, text};

/// `RTM_GETQDISC`.
pub const GET: u16 = 38;
/// `struct tcmsg`.
const HEAD: usize = 20;
/// Request for all queueing disciplines.
pub const REQUEST: [u8; HEAD] = [0; HEAD];
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;

/// Queueing discipline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Qdisc {
    /// Index of its interface.
    pub device: u32,
    /// Whether it is the root of its interface.
    pub root: bool,
    /// Its kind, e.g. `fq_codel`.
    pub kind: String,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u32,
    pub drops: u32,
    /// Packets that the device did not accept and that were queued again.
    pub requeues: u32,
    /// Packets above a limit.
    pub overlimits: u32,
    pub queued: u32,
    /// Queued bytes.
    pub backlog: u32,
}

/// Parses an entry of the dump. `None` if it is truncated.
pub fn qdisc(body: &[u8]) -> Option<Qdisc> {
    let mut found = Qdisc {
        device: number(body, 4)?,
        root: matches!(number(body, 12)?, ROOT | 0),
        ..Qdisc::default()
    };
    let mut second = false;
    for (kind, value) in attributes(body.get(HEAD..)?) {
        match kind {
            // TCA_KIND, TCA_STATS (the old form, without requeues) and TCA_STATS2.
            1 => found.kind = text(value),
            3 if !second => old_stats(value, &mut found)?,
            7 => {
                second = true;
                stats(value, &mut found)?;
            }
            _ => {}
        }
    }
    Some(found)
}

fn old_stats(value: &[u8], found: &mut Qdisc) -> Option<()> {
    found.bytes = long(value, 0)?;
    found.packets = number(value, 8)?;
    found.drops = number(value, 12)?;
    found.overlimits = number(value, 16)?;
    found.queued = number(value, 28)?;
    found.backlog = number(value, 32)?;
    Some(())
}

fn stats(value: &[u8], found: &mut Qdisc) -> Option<()> {
    for (kind, value) in attributes(value) {
        match kind {
            // TCA_STATS_BASIC and TCA_STATS_QUEUE.
            1 => {
                found.bytes = long(value, 0)?;
                found.packets = number(value, 8)?;
            }
            3 => {
                found.queued = number(value, 0)?;
                found.backlog = number(value, 4)?;
                found.drops = number(value, 8)?;
                found.requeues = number(value, 12)?;
                found.overlimits = number(value, 16)?;
            }
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{super::made::attribute, *};

    fn numbers(all: &[u32]) -> Vec<u8> {
        all.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn qdisc_with_old_and_new_counters() {
        let head = numbers(&[0, 2, 0x8001_0000, ROOT, 1]);
        let basic = attribute(1, &[&numbers(&[1500, 0]), &numbers(&[3, 0])[..]].concat());
        let queue = attribute(3, &numbers(&[1, 60, 7, 8, 9]));
        let old = attribute(3, &numbers(&[1, 0, 1, 1, 1, 0, 0, 1, 1]));
        let body = [
            head.clone(),
            attribute(1, b"fq_codel\0"),
            attribute(7, &[basic, queue].concat()),
            old.clone(),
        ]
        .concat();
        let found = qdisc(&body).unwrap();
        assert_eq!(
            (found.device, found.root, found.kind.as_str()),
            (2, true, "fq_codel")
        );
        assert_eq!(
            (found.bytes, found.packets, found.queued, found.backlog),
            (1500, 3, 1, 60)
        );
        assert_eq!((found.drops, found.requeues, found.overlimits), (7, 8, 9));
        let found = qdisc(&[head, old].concat()).unwrap();
        assert_eq!((found.bytes, found.packets, found.requeues), (1, 1, 0));
        assert_eq!(qdisc(&body[..19]), None);
    }
}
