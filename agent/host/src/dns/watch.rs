//! Watches for events that may change the guest's DNS: addresses that appear and disappear (the
//! interface of a DNS cache), `resolv.conf` and its target, and leases. Netlink and inotify wake
//! the watch. What has changed is found by reading the state again, so no change is lost when the
//! event queues overflow, and a file that was only touched is not a change.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify},
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
        },
    },
};

use super::RESOLV_CONF;
use crate::{AddressesError, Roots, interface_addresses, list, read_text};

/// `linux/rtnetlink.h`: RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
const NETLINK_GROUPS: u32 = 0x10 | 0x100;
/// Files that determine the nameservers, besides `/etc/resolv.conf`. They may be missing and appear
/// later.
const FILES: [&str; 4] = [
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf/resolv.conf",
];
/// Directories with lease files: networkd, dhclient and dhcpcd.
const LEASE_DIRECTORIES: [&str; 4] = [
    "/run/systemd/netif/leases",
    "/var/lib/dhcp",
    "/var/lib/dhclient",
    "/run/dhcpcd",
];
/// Prefixes of the relevant lease lines; a renewal changes others too.
const LEASE_PREFIXES: [&str; 4] = ["DNS", "DOMAIN", "domain", "dhcp6.name-servers"];
/// Maximum number of leases per directory.
const MAX_LEASES: usize = 64;
/// Maximum number of bytes read from a file.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Time without events before the state is read, so that a thousand new addresses cause one read…
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// …and the maximum time to wait for that.
const MAX_QUIET_WAIT: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsChange {
    /// An address of this guest appeared or disappeared.
    Address {
        address: IpAddr,
        interface: String,
        /// True if the address disappeared.
        gone: bool,
    },
    /// `/etc/resolv.conf`, its link, or its target.
    ResolvConf {
        /// The file's path in the guest.
        path: String,
    },
    /// The nameservers or search domains of a lease.
    Lease {
        /// The file's path in the guest.
        path: String,
    },
}

/// Why changes cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum DnsWatchError {
    /// The kernel refuses. In a service the cause may be `RestrictAddressFamilies=` without
    /// `AF_NETLINK`, or `fs.inotify.max_user_instances`.
    #[error("cannot {step}")]
    System { step: &'static str, source: io::Error },
    /// The addresses cannot be read.
    #[error(transparent)]
    Addresses(#[from] AddressesError),
}

fn system(step: &'static str) -> impl Fn(Errno) -> DnsWatchError {
    move |error| DnsWatchError::System {
        step,
        source: error.into(),
    }
}

/// The watched files, and the state at the last read.
#[derive(Debug)]
pub struct DnsWatch {
    roots: Roots,
    netlink: OwnedFd,
    inotify: Inotify,
    known: WatchedState,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct WatchedState {
    addresses: BTreeSet<(IpAddr, String)>,
    /// The relevant content of each file or link, by path.
    files: BTreeMap<String, String>,
    leases: BTreeMap<String, String>,
}

impl DnsWatch {
    /// Starts the watch. The current state is not a change. Needs only read permission; files that
    /// only root can read are not watched.
    ///
    /// # Errors
    /// The kernel refuses, or the state cannot be read.
    pub fn open(roots: &Roots) -> Result<Self, DnsWatchError> {
        let netlink = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )
        .map_err(system("open a netlink socket"))?;
        bind(netlink.as_raw_fd(), &NetlinkAddr::new(0, NETLINK_GROUPS))
            .map_err(system("subscribe to address changes"))?;
        let inotify =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(system("watch files"))?;
        let mut watch = Self {
            roots: roots.clone(),
            netlink,
            inotify,
            known: WatchedState::default(),
        };
        watch.watch_folders();
        watch.known = watch.read_state()?;
        Ok(watch)
    }

    /// Waits until something has changed, at most for `timeout`; then the result is empty. Multiple
    /// changes are returned together. Changes between two calls are returned by the second. The
    /// state is also read when the timeout passes without events.
    ///
    /// # Errors
    /// The kernel refuses, or the state cannot be read.
    pub fn wait(&mut self, timeout: Duration) -> Result<Vec<DnsChange>, DnsWatchError> {
        let until = Instant::now() + timeout;
        loop {
            self.watch_folders();
            let wait_for_event = self.wait_for_event(until.saturating_duration_since(Instant::now()))?;
            let settled = Instant::now() + MAX_QUIET_WAIT;
            while wait_for_event && Instant::now() < settled && self.wait_for_event(QUIET_PERIOD)? {}
            let now = self.read_state()?;
            let changes = self.known.changes(&now);
            self.known = now;
            if !changes.is_empty() || Instant::now() >= until {
                return Ok(changes);
            }
        }
    }

    /// Waits for an event within that time and drains both queues.
    fn wait_for_event(&self, wait: Duration) -> Result<bool, DnsWatchError> {
        let mut watched =
            [self.netlink.as_fd(), self.inotify.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let limit = PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut watched, limit) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(true),
            Err(error) => return Err(system("wait for changes")(error)),
        }
        let mut buffer = [0; 8192];
        loop {
            // ENOBUFS: the socket's buffer overflowed. The whole state is read in any case.
            match recv(self.netlink.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(0) | Err(Errno::EAGAIN) => break,
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(error) => return Err(system("receive address changes")(error)),
            }
        }
        loop {
            match self.inotify.read_events() {
                Ok(events) if events.is_empty() => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(system("receive file changes")(error)),
            }
        }
        Ok(true)
    }

    /// Watches the existing directories; watching one again has no effect. Missing or inaccessible
    /// ones may be added later.
    fn watch_folders(&self) {
        let resolv_conf = self.roots.root_file(RESOLV_CONF);
        let mut folders: BTreeSet<PathBuf> = LEASE_DIRECTORIES
            .iter()
            .map(|folder| self.roots.root(folder))
            .collect();
        let files = FILES.iter().map(|file| self.roots.root(file));
        folders.extend(
            files
                .chain([self.roots.root(RESOLV_CONF), resolv_conf])
                .filter_map(|file| Some(file.parent()?.to_owned())),
        );
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        for folder in folders {
            if let Err(error) = self.inotify.add_watch(&folder, flags)
                && error != Errno::ENOENT
            {
                tracing::debug!(folder = %folder.display(), %error, "not watched");
            }
        }
    }

    fn read_state(&self) -> Result<WatchedState, DnsWatchError> {
        let mut known = WatchedState::default();
        for (interface, addresses) in interface_addresses()? {
            let each = addresses
                .into_iter()
                .map(|(address, _)| (address, interface.clone()));
            known.addresses.extend(each);
        }
        let mut keep = |path: &str, file: &Path| {
            if let Ok(text) = read_text(file, MAX_FILE_BYTES) {
                known.files.insert(path.to_owned(), text);
            }
        };
        keep(RESOLV_CONF, &self.roots.root_file(RESOLV_CONF));
        for file in FILES {
            keep(file, &self.roots.root(file));
        }
        if let Ok(link) = std::fs::read_link(self.roots.root(RESOLV_CONF)) {
            let text = known.files.entry(RESOLV_CONF.to_owned()).or_default();
            text.insert_str(0, &format!("{}\n", link.display()));
        }
        for folder in LEASE_DIRECTORIES {
            let names = list(&self.roots.root(folder)).unwrap_or_default();
            for name in names.iter().take(MAX_LEASES) {
                let path = format!("{folder}/{name}");
                if let Ok(text) = read_text(&self.roots.root(&path), MAX_FILE_BYTES) {
                    known.leases.insert(path, dns_lines(&text));
                }
            }
        }
        Ok(known)
    }
}

/// The DNS lines of a lease, without duplicates: dhclient repeats them at each renewal.
fn dns_lines(lease: &str) -> String {
    let lines: BTreeSet<&str> = lease
        .lines()
        .map(str::trim)
        .filter(|line| LEASE_PREFIXES.iter().any(|word| line.contains(word)))
        .collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

impl WatchedState {
    /// In order: address changes, files, leases.
    fn changes(&self, now: &Self) -> Vec<DnsChange> {
        let address = |gone| {
            move |(address, interface): &(IpAddr, String)| DnsChange::Address {
                address: *address,
                interface: interface.clone(),
                gone,
            }
        };
        let came = now.addresses.difference(&self.addresses).map(address(false));
        let went = self.addresses.difference(&now.addresses).map(address(true));
        let files = differing(&self.files, &now.files).map(|path| DnsChange::ResolvConf { path });
        let leases = differing(&self.leases, &now.leases).map(|path| DnsChange::Lease { path });
        came.chain(went).chain(files).chain(leases).collect()
    }
}

fn differing(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> impl Iterator<Item = String> {
    let paths: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let differ: Vec<String> = paths
        .into_iter()
        .filter(|path| before.get(*path) != now.get(*path))
        .cloned()
        .collect();
    differ.into_iter()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, thread};

    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::{Commands as _, SystemCommands, Tool, is_root};

    const SHORT_INTERVAL: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(20);

    fn files() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        fs::create_dir_all(roots.root("/etc")).unwrap();
        fs::create_dir_all(roots.root("/run/systemd/netif/leases")).unwrap();
        fs::write(roots.root(RESOLV_CONF), "nameserver 192.0.2.1\n").unwrap();
        (dir, roots)
    }

    fn resolv_conf(path: &str) -> DnsChange {
        DnsChange::ResolvConf {
            path: path.to_owned(),
        }
    }

    #[test]
    fn changed_files_are_reported_and_touched_ones_are_not() {
        let (_dir, roots) = files();
        let mut watch = DnsWatch::open(&roots).unwrap();
        let write = |path: &str, text: &str| fs::write(roots.root(path), text).unwrap();
        assert_eq!(watch.wait(SHORT_INTERVAL).unwrap(), []);
        write("/etc/hosts", "");
        write(RESOLV_CONF, "nameserver 192.0.2.1\n");
        assert_eq!(watch.wait(SHORT_INTERVAL).unwrap(), []);
        write(RESOLV_CONF, "nameserver 192.0.2.2\n");
        assert_eq!(watch.wait(LONG).unwrap(), [resolv_conf(RESOLV_CONF)]);

        // A directory that did not exist before, and a link into it.
        fs::create_dir_all(roots.root("/run/systemd/resolve")).unwrap();
        write(FILES[0], "nameserver 192.0.2.2\n");
        fs::remove_file(roots.root(RESOLV_CONF)).unwrap();
        symlink("../run/systemd/resolve/resolv.conf", roots.root(RESOLV_CONF)).unwrap();
        let both = [RESOLV_CONF, FILES[0]].map(resolv_conf);
        assert_eq!(watch.wait(LONG).unwrap(), both);
        write(FILES[0], "nameserver 192.0.2.3\n");
        assert_eq!(watch.wait(LONG).unwrap(), both);

        let lease = "/run/systemd/netif/leases/2";
        write(lease, "ADDRESS=10.0.0.2\nDNS=192.0.2.1\n");
        let changed = [DnsChange::Lease {
            path: lease.to_owned(),
        }];
        assert_eq!(watch.wait(LONG).unwrap(), changed);
        write(lease, "ADDRESS=10.0.0.3\nDNS=192.0.2.1\n");
        assert_eq!(watch.wait(SHORT_INTERVAL).unwrap(), []);
        write(lease, "ADDRESS=10.0.0.3\nDNS=169.254.20.10\n");
        assert_eq!(watch.wait(LONG).unwrap(), changed);
    }

    #[test]
    fn a_change_ends_the_wait_at_once() {
        let (_dir, roots) = files();
        let mut watch = DnsWatch::open(&roots).unwrap();
        let before = Instant::now();
        let waiting = thread::spawn(move || watch.wait(LONG).unwrap());
        let fresh = roots.root("/etc/fresh");
        fs::write(&fresh, "nameserver 192.0.2.9\n").unwrap();
        fs::rename(fresh, roots.root(RESOLV_CONF)).unwrap();
        assert_eq!(waiting.join().unwrap(), [resolv_conf(RESOLV_CONF)]);
        assert!(before.elapsed() < LONG / 2);
    }

    /// Runs in its own network namespace, which requires root.
    #[test]
    fn tier2_address_changes_are_reported() {
        if !is_root() {
            return;
        }
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let ip = |line: &str| {
            let tool = Tool::new("ip").args(line.split(' '));
            SystemCommands.check(&tool).unwrap();
        };
        let (_dir, roots) = files();
        let mut watch = DnsWatch::open(&roots).unwrap();
        let of = |address: &str, interface: &str, gone| DnsChange::Address {
            address: address.parse().unwrap(),
            interface: interface.to_owned(),
            gone,
        };
        ip("address add 169.254.20.10/32 dev lo");
        let before = Instant::now();
        assert_eq!(watch.wait(LONG).unwrap(), [of("169.254.20.10", "lo", false)]);
        assert!(before.elapsed() < LONG / 2);
        ip("address del 169.254.20.10/32 dev lo");
        ip("address add fd00::10/128 dev lo");
        assert_eq!(
            watch.wait(LONG).unwrap(),
            [of("fd00::10", "lo", false), of("169.254.20.10", "lo", true)]
        );
        // More events than the socket's buffer has room for.
        for third in 0..8 {
            for fourth in 0..32 {
                ip(&format!("address add 10.96.{third}.{fourth}/32 dev lo"));
            }
        }
        let mut reported = BTreeSet::new();
        while reported.len() < 256 {
            let more = watch.wait(LONG).unwrap();
            assert!(!more.is_empty(), "{} of 256", reported.len());
            reported.extend(more);
        }
        assert_eq!(watch.wait(SHORT_INTERVAL).unwrap(), []);
    }
}
