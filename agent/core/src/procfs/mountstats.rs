//! `/proc/self/mountstats` (kernel: `fs/proc_namespace.c`, `fs/nfs/super.c`,
//! `net/sunrpc/xprtsock.c`, `net/sunrpc/stats.c`): counters of NFS clients.

use std::str::SplitAsciiWhitespace;

use super::{ParseError, counter, words};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsMount<'text> {
    /// Index among all mounts, from 0; the same as in mountinfo.
    pub index: usize,
    /// Source, e.g. `10.0.0.9:/export`, as printed by the kernel.
    pub device: &'text str,
    /// Mount point, as printed by the kernel.
    pub mount_point: &'text str,
    /// Seconds since it was mounted.
    pub age: Option<u64>,
    /// Event counters in the kernel's order; empty if the line is missing.
    pub events: Vec<u64>,
    /// Counters of bytes and pages in the kernel's order; empty if the line is missing.
    pub bytes: Vec<u64>,
    pub transports: Vec<Transport<'text>>,
    /// Operations with their counters.
    pub operations: Vec<(&'text str, [u64; NfsMount::OPERATION])>,
}

impl NfsMount<'_> {
    /// Number of counters per operation: requests, transmissions, major timeouts, bytes sent, bytes
    /// received, milliseconds queued, until the answer, in total.
    pub const OPERATION: usize = 8;
    /// Number of event counters.
    pub const EVENTS: usize = 27;
    /// Number of counters of bytes and pages.
    pub const BYTES: usize = 8;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport<'text> {
    /// `tcp`, `udp` or `rdma`.
    pub protocol: &'text str,
    /// Port, binds, connects, connect time, idle seconds, sends, receives, bad transaction IDs,
    /// requests, backlog, maximum slots, sending queue, pending queue; 0 if the protocol does not
    /// have it.
    pub values: [u64; Transport::VALUES],
}

impl Transport<'_> {
    pub const VALUES: usize = 13;
}

/// Parses the NFS mounts. Passes malformed lines to `bad`, and leaves their mounts out.
pub fn nfs_mounts(text: &str, mut bad: impl FnMut(ParseError)) -> Vec<NfsMount<'_>> {
    let mut found: Vec<NfsMount<'_>> = Vec::new();
    let mut left_out = Vec::new();
    // Whether the line belongs to the last mount, and whether it is one of its operations.
    let (mut inside, mut operations, mut index) = (false, false, 0);
    for (at, line) in text.lines().enumerate() {
        let mut words = words(line);
        let Some(first) = words.next() else {
            operations = false;
            continue;
        };
        // What belongs to a mount is indented, so any other line is that of a mount.
        if !line.starts_with([' ', '\t']) {
            (inside, operations) = (false, false);
            index += 1;
            let named = first == "device" || line.starts_with("no device ");
            if !named || !line.contains(" mounted on ") || !line.contains(" with fstype ") {
                bad(ParseError::at(
                    at,
                    "device D mounted on PATH with fstype TYPE",
                    line,
                ));
                continue;
            }
            let mut device = words;
            let parts: Vec<_> = device.by_ref().take(7).collect();
            if let [
                device,
                "mounted",
                "on",
                mount_point,
                "with",
                "fstype",
                "nfs" | "nfs4",
            ] = parts[..]
            {
                inside = true;
                found.push(NfsMount {
                    index: index - 1,
                    device,
                    mount_point,
                    age: None,
                    events: Vec::new(),
                    bytes: Vec::new(),
                    transports: Vec::new(),
                    operations: Vec::new(),
                });
            }
            continue;
        }
        let Some(mount) = found.last_mut().filter(|_| inside) else {
            continue;
        };
        if !operations && first == "per-op" {
            operations = true;
        } else if let Err(error) = mount.add(at, operations, first, words) {
            bad(error);
            left_out.extend(found.pop().map(|mount| mount.device));
            inside = false;
        }
    }
    // Mounts of one export have one series.
    found.retain(|mount| !left_out.contains(&mount.device));
    found
}

impl<'text> NfsMount<'text> {
    /// Adds the line that begins with the word `first`.
    fn add(
        &mut self,
        at: usize,
        is_operation: bool,
        first: &'text str,
        mut words: SplitAsciiWhitespace<'text>,
    ) -> Result<(), ParseError> {
        if is_operation {
            let mut values = [0; NfsMount::OPERATION];
            for value in &mut values {
                *value = counter(words.next(), at, "8 counters of an operation")?;
            }
            self.operations.push((first.trim_end_matches(':'), values));
            return Ok(());
        }
        // A second one belongs to a mount whose line is malformed.
        let again = match first {
            "age:" => self.age.is_some(),
            "events:" => !self.events.is_empty(),
            "bytes:" => !self.bytes.is_empty(),
            _ => false,
        };
        if again {
            return Err(ParseError::at(at, "one line of each kind for a mount", first));
        }
        match first {
            "age:" => self.age = Some(counter(words.next(), at, "an age in seconds")?),
            "events:" => self.events = numbers(words, at, NfsMount::EVENTS, "27 counters of events")?,
            "bytes:" => self.bytes = numbers(words, at, NfsMount::BYTES, "8 counters of bytes")?,
            "xprt:" => {
                let protocol = words.next().unwrap_or_default();
                self.transports.push(transport(protocol, words, at)?);
            }
            _ => {}
        }
        Ok(())
    }
}

fn numbers<'text>(
    words: impl Iterator<Item = &'text str>,
    at: usize,
    count: usize,
    expected: &'static str,
) -> Result<Vec<u64>, ParseError> {
    let numbers: Vec<_> = words
        .take(count)
        .map(|word| counter(Some(word), at, expected))
        .collect::<Result<_, _>>()?;
    if numbers.len() < count {
        return Err(ParseError::at(at, expected, ""));
    }
    Ok(numbers)
}

fn transport<'text>(
    protocol: &'text str,
    words: impl Iterator<Item = &'text str>,
    at: usize,
) -> Result<Transport<'text>, ParseError> {
    const EXPECTED: &str = "counters of a connection";
    // Without connections, connects, their time and idle time do not exist. Values after the
    // pending queue of tcp and the backlog of rdma are not exported. `statvers=1.0` ends with the
    // backlog.
    let places: &[usize] = match protocol {
        "tcp" => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        "udp" => &[0, 1, 5, 6, 7, 8, 9, 10, 11, 12],
        "rdma" => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        _ => return Err(ParseError::at(at, "tcp, udp or rdma", protocol)),
    };
    let mut values = [0; Transport::VALUES];
    let mut count = 0;
    for (place, word) in places.iter().zip(words) {
        values[*place] = counter(Some(word), at, EXPECTED)?;
        count += 1;
    }
    let least = if protocol == "udp" { 7 } else { 10 };
    if count < least {
        return Err(ParseError::at(at, EXPECTED, ""));
    }
    Ok(Transport { protocol, values })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::hostile::{self, with_bad},
        *,
    };

    const SAMPLE: &str = "device rootfs mounted on / with fstype rootfs\nno device mounted on /x with fstype tmpfs\n\n\
        device 192.168.1.1:/srv mounted on /mnt/a\\040b with fstype nfs4 statvers=1.1\n\
        \topts:\trw,vers=4.0,addr=192.168.1.5\n\tage:\t13968\n\
        \tevents:\t52 226 0 0 1 13 398 0 0 331 0 47 0 0 77 0 0 77 0 0 0 0 0 0 0 0 9\n\
        \tbytes:\t1207640230 0 0 0 1210214218 0 295483 7\n\
        \txprt:\ttcp 832 0 1 0 11 6428 6427 0 12154 0 24 26 5726\n\
        \txprt:\tudp 832 0 6428 6427 0 12154 3 24 26 5726\n\
        \tper-op statistics\n\t        NULL: 0 0 0 0 0 0 0 0\n\
        \t        READ: 1298 1298 0 207680 1210292152 6 79386 79407 3\n\n\
        device sysfs mounted on /sys with fstype sysfs\n";

    #[test]
    fn nfs_mounts_and_their_counters() {
        let all = nfs_mounts(SAMPLE, |_| panic!());
        let mount = &all[0];
        assert_eq!((all.len(), mount.index, mount.device), (1, 2, "192.168.1.1:/srv"));
        assert_eq!((mount.mount_point, mount.age), ("/mnt/a\\040b", Some(13968)));
        assert_eq!((mount.events[1], mount.events[26]), (226, 9));
        assert_eq!(mount.bytes[7], 7);
        let [tcp, udp] = mount.transports[..] else {
            panic!()
        };
        assert_eq!(
            (tcp.protocol, tcp.values[2], tcp.values[4], tcp.values[12]),
            ("tcp", 1, 11, 5726)
        );
        assert_eq!(
            (udp.values[2], udp.values[5], udp.values[9], udp.values[12]),
            (0, 6428, 3, 5726)
        );
        assert_eq!(
            mount.operations[1],
            ("READ", [1298, 1298, 0, 207_680, 1_210_292_152, 6, 79_386, 79_407])
        );
        assert!(nfs_mounts("", |_| panic!()).is_empty());
    }

    #[test]
    fn malformed_lines_are_reported() {
        let head = "device a:/ mounted on /m with fstype nfs statvers=1.1\n";
        for line in [
            "\tage: x",
            "\tevents: 1 2",
            "\tbytes: 1 2 3 4 5 6 7",
            "\txprt: tcp 1 2",
            "\txprt: pigeon 1",
            "\tper-op statistics\n\tREAD: 1 2",
        ] {
            let text = format!("{head}{line}\n");
            // Its mount is left out, and the others are found.
            let (found, bad) = with_bad(|bad| nfs_mounts(&text, bad).len());
            assert_eq!((found, bad), (0, vec![text.lines().count()]), "{line}");
            let text = format!("{text}{SAMPLE}");
            assert_eq!(nfs_mounts(&text, |_| {})[0].index, 3, "{line}");
        }
        // A malformed line of a mount: its counters are not those of the mount above it.
        let last = "device b:/ mounted on /n with fstype nfs statvers=1.1\n\tage:\t5\n";
        for line in [
            "devicX b:/ mounted on /n with fstype nfs",
            "device b:/ mounted",
            "noise",
        ] {
            let text = format!("{head}\tage:\t1\n{line} statvers=1.1\n\tage:\t2\n{last}");
            let (found, bad) = with_bad(|bad| nfs_mounts(&text, bad));
            let ages: Vec<_> = found.iter().map(|mount| (mount.index, mount.age)).collect();
            assert_eq!(ages, [(0, Some(1)), (2, Some(5))], "{line}");
            assert_eq!(bad, [3], "{line}");
        }
        // An indented one is known by what follows it.
        let text = format!("{head}\tage:\t1\n {last}{SAMPLE}");
        let (found, bad) = with_bad(|bad| nfs_mounts(&text, bad));
        assert_eq!((found.len(), found[0].index, bad), (1, 3, vec![4]));
        // Another mount of the export would go on with the series of the one that is left out.
        let text = format!("{head}\tage:\tx\n{last}{head}\tage:\t1\n");
        let found = nfs_mounts(&text, |_| {});
        assert_eq!((found.len(), found[0].device), (1, "b:/"));
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            drop(nfs_mounts(&text, |_| {}));
        }
    }
}
