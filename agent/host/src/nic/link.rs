//! Link state of a network interface from sysfs, and settings in sysfs: CPUs of a queue, I/O
//! scheduler of a disk.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::Path,
    time::Duration,
};

use nix::poll::{PollTimeout, poll};
use virtfleet_agent_core::{
    nic::mask,
    procfs::stat::{TICKS_PER_SECOND, cpus},
    virtio::Direction,
};

use crate::{Roots, read_text};

/// Maximum size of an attribute in bytes: a page.
const MAX_ATTRIBUTE_BYTES: usize = 4096;
/// Maximum size of `/proc/stat` in bytes; it has a line per CPU and one for interrupts.
const MAX_STAT_BYTES: usize = 4 << 20;

/// Link state of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub mac: String,
    /// True if a carrier is detected. `None` while the interface is down.
    pub carrier: Option<bool>,
    /// Operational state of RFC 2863, e.g. `up`.
    pub operstate: String,
}

/// Traffic of an interface since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets in both directions.
    pub packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
}

/// Link state. `None` if the interface does not exist.
pub fn link(roots: &Roots, nic: &str) -> Option<Link> {
    let folder = roots.sys("class/net").join(nic);
    Some(Link {
        index: line(&folder.join("ifindex"))?.parse().ok()?,
        mac: line(&folder.join("address"))?,
        carrier: line(&folder.join("carrier")).map(|word| word == "1"),
        operstate: line(&folder.join("operstate")).unwrap_or_default(),
    })
}

/// Traffic of an interface. `None` if the interface does not exist.
pub fn traffic(roots: &Roots, nic: &str) -> Option<Traffic> {
    let folder = roots.sys("class/net").join(nic).join("statistics");
    let count = |name: &str| line(&folder.join(name))?.parse::<u64>().ok();
    Some(Traffic {
        packets: count("rx_packets")?.saturating_add(count("tx_packets")?),
        rx_bytes: count("rx_bytes")?,
        tx_bytes: count("tx_bytes")?,
    })
}

/// CPU time in soft interrupts since boot, summed over all CPUs.
pub fn softirq(roots: &Roots) -> Option<Duration> {
    let text = read_text(&roots.proc("stat"), MAX_STAT_BYTES).ok()?;
    let ticks: u64 = cpus(&text).flatten().map(|(_, times)| times.softirq).sum();
    let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
    Some(Duration::from_secs_f64(f64::from(ticks) / TICKS_PER_SECOND))
}

/// Sets the CPUs of a queue: XPS of a transmit queue, RPS of a receive queue. Requires root.
///
/// # Errors
/// The attribute does not exist or cannot be written.
pub fn steer(roots: &Roots, nic: &str, direction: Direction, queue: u32, cpus: &[u32]) -> io::Result<()> {
    let (short, file) = match direction {
        Direction::Transmit => ("tx", "xps_cpus"),
        Direction::Receive => ("rx", "rps_cpus"),
    };
    let path = format!("class/net/{nic}/queues/{short}-{queue}/{file}");
    write(&roots.sys(path), &mask::encode(cpus))
}

/// Sets the I/O scheduler of a disk. Requires root.
///
/// # Errors
/// The attribute does not exist or cannot be written.
pub fn schedule(roots: &Roots, disk: &str, scheduler: &str) -> io::Result<()> {
    write(&roots.sys(format!("block/{disk}/queue/scheduler")), scheduler)
}

/// Sleeps for `length`.
pub fn pause(length: Duration) {
    let length = PollTimeout::try_from(length).unwrap_or(PollTimeout::MAX);
    // A signal ends the sleep early, which causes one additional poll.
    poll(&mut [], length).ok();
}

/// Writes an attribute with one system call, as sysfs requires. Does not create a file.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(format!("{text}\n").as_bytes())
}

fn line(path: &Path) -> Option<String> {
    let text = read_text(path, MAX_ATTRIBUTE_BYTES).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Guest(tempfile::TempDir, Roots);

    impl Guest {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let roots = Roots {
                sysfs: dir.path().join("sys"),
                procfs: dir.path().join("proc"),
                ..Roots::default()
            };
            Self(dir, roots)
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn text(&self, path: &str) -> String {
            fs::read_to_string(self.0.path().join(path)).unwrap()
        }
    }

    #[test]
    fn a_link_that_is_down_has_no_carrier_and_a_missing_one_is_none() {
        let guest = Guest::new();
        assert_eq!(link(&guest.1, "eth0"), None);
        assert_eq!(traffic(&guest.1, "eth0"), None);
        guest.file("sys/class/net/eth0/ifindex", "2\n");
        guest.file("sys/class/net/eth0/address", "02:00:00:00:00:01\n");
        guest.file("sys/class/net/eth0/operstate", "down\n");
        let down = link(&guest.1, "eth0").unwrap();
        assert_eq!(
            (down.index, down.carrier, down.operstate.as_str()),
            (2, None, "down")
        );
        guest.file("sys/class/net/eth0/carrier", "1\n");
        assert_eq!(link(&guest.1, "eth0").unwrap().carrier, Some(true));
    }

    #[test]
    fn traffic_and_soft_interrupts_are_summed() {
        let guest = Guest::new();
        for (name, value) in [
            ("rx_packets", 3),
            ("tx_packets", 4),
            ("rx_bytes", 50),
            ("tx_bytes", 60),
        ] {
            guest.file(
                &format!("sys/class/net/eth0/statistics/{name}"),
                &format!("{value}\n"),
            );
        }
        let seen = traffic(&guest.1, "eth0").unwrap();
        assert_eq!((seen.packets, seen.rx_bytes, seen.tx_bytes), (7, 50, 60));
        let stat = "cpu  1 2 3 4 5 6 250 8 9 10\ncpu0 1 2 3 4 5 6 250 8 9 10\nintr 5\nctxt 1\nbtime 1\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n";
        guest.file("proc/stat", stat);
        assert_eq!(softirq(&guest.1), Some(Duration::from_millis(2500)));
    }

    #[test]
    fn masks_and_schedulers_are_written_only_to_existing_attributes() {
        let guest = Guest::new();
        let gone = steer(&guest.1, "eth0", Direction::Transmit, 0, &[0]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        let queues = "sys/class/net/eth0/queues";
        guest.file(&format!("{queues}/tx-1/xps_cpus"), "");
        guest.file(&format!("{queues}/rx-0/rps_cpus"), "");
        guest.file("sys/block/vda/queue/scheduler", "");
        steer(&guest.1, "eth0", Direction::Transmit, 1, &[2, 33, 70]).unwrap();
        steer(&guest.1, "eth0", Direction::Receive, 0, &[]).unwrap();
        schedule(&guest.1, "vda", "none").unwrap();
        assert_eq!(
            guest.text(&format!("{queues}/tx-1/xps_cpus")),
            "40,00000002,00000004\n"
        );
        assert_eq!(guest.text(&format!("{queues}/rx-0/rps_cpus")), "0\n");
        assert_eq!(guest.text("sys/block/vda/queue/scheduler"), "none\n");
    }

    #[test]
    fn a_pause_sleeps() {
        let began = std::time::Instant::now();
        pause(Duration::from_millis(20));
        assert!(began.elapsed() >= Duration::from_millis(19));
    }
}
