//! Being told of what may change the guest's DNS: addresses that come and go (the interface of a DNS cache), `resolv.conf` and what is behind it,
//! and leases. The kernel wakes us (netlink, inotify); what has changed is found out by looking again, so nothing is lost when it told us too much
//! at once, and what was only touched is no change.

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
use crate::{AddressesError, Roots, held_addresses, list, read_text};

/// `linux/rtnetlink.h`: RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
const GROUPS: u32 = 0x10 | 0x100;
/// Files that say who is asked, besides `/etc/resolv.conf`. Those that are not there are nothing, until they are.
const FILES: [&str; 4] = [
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf/resolv.conf",
];
/// Folders whose files are leases: of networkd, dhclient and dhcpcd.
const LEASES: [&str; 4] = [
    "/run/systemd/netif/leases",
    "/var/lib/dhcp",
    "/var/lib/dhclient",
    "/run/dhcpcd",
];
/// The lines of a lease that matter here: a renewal changes others, too.
const LINES: [&str; 4] = ["DNS", "DOMAIN", "domain", "dhcp6.name-servers"];
/// More leases than this in one folder are not looked at.
const MOST: usize = 64;
/// How much of a file is read.
const CAP: usize = 1 << 20;
/// How long it must be quiet before we look, so that a thousand addresses at once are one look…
const QUIET: Duration = Duration::from_millis(50);
/// …and how long that is waited for.
const SETTLED: Duration = Duration::from_millis(200);

/// Something that has changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsChange {
    /// An address of this guest.
    Address {
        /// Which.
        address: IpAddr,
        /// The interface that has it, or had it.
        interface: String,
        /// Whether it went; else it came.
        gone: bool,
    },
    /// `/etc/resolv.conf`, its link, or what is behind it.
    ResolvConf {
        /// The file, by its path in the guest.
        path: String,
    },
    /// What a lease says of nameservers or search domains.
    Lease {
        /// The file, by its path in the guest.
        path: String,
    },
}

/// Why nothing can be watched.
#[derive(Debug, thiserror::Error)]
pub enum DnsWatchError {
    /// The kernel refuses; in a service it may be `RestrictAddressFamilies=` without `AF_NETLINK`, or `fs.inotify.max_user_instances`.
    #[error("cannot {step}")]
    System {
        /// What.
        step: &'static str,
        /// What it says.
        source: io::Error,
    },
    /// Addresses.
    #[error(transparent)]
    Addresses(#[from] AddressesError),
}

fn system(step: &'static str) -> impl Fn(Errno) -> DnsWatchError {
    move |error| DnsWatchError::System {
        step,
        source: error.into(),
    }
}

/// What is watched, and how it was when it was looked at last.
#[derive(Debug)]
pub struct DnsWatch {
    roots: Roots,
    netlink: OwnedFd,
    inotify: Inotify,
    known: Known,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    addresses: BTreeSet<(IpAddr, String)>,
    /// By path: what matters of the file, or of the link.
    files: BTreeMap<String, String>,
    leases: BTreeMap<String, String>,
}

impl DnsWatch {
    /// Begins. What is there now is no change. It needs no rights but to read: files that only root may read are not watched.
    pub fn open(roots: &Roots) -> Result<Self, DnsWatchError> {
        let netlink = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )
        .map_err(system("open a netlink socket"))?;
        bind(netlink.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))
            .map_err(system("listen to changes of addresses"))?;
        let inotify =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(system("watch files"))?;
        let mut watch = Self {
            roots: roots.clone(),
            netlink,
            inotify,
            known: Known::default(),
        };
        watch.watch_folders();
        watch.known = watch.look()?;
        Ok(watch)
    }

    /// Waits until something has changed, for `timeout` at the most; nothing then. Several changes come together. Whoever waits again gets what came
    /// meanwhile. At the end of the time it looks, too, whatever the kernel said.
    pub fn wait(&mut self, timeout: Duration) -> Result<Vec<DnsChange>, DnsWatchError> {
        let until = Instant::now() + timeout;
        loop {
            self.watch_folders();
            let woken = self.woken(until.saturating_duration_since(Instant::now()))?;
            let settled = Instant::now() + SETTLED;
            while woken && Instant::now() < settled && self.woken(QUIET)? {}
            let now = self.look()?;
            let changes = self.known.changes(&now);
            self.known = now;
            if !changes.is_empty() || Instant::now() >= until {
                return Ok(changes);
            }
        }
    }

    /// Whether the kernel told us something within that time; all that it told is taken.
    fn woken(&self, wait: Duration) -> Result<bool, DnsWatchError> {
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
            // ENOBUFS: there was more than the socket has room for. We look at all of it in any case.
            match recv(self.netlink.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(0) | Err(Errno::EAGAIN) => break,
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(error) => return Err(system("hear of changes of addresses")(error)),
            }
        }
        loop {
            match self.inotify.read_events() {
                Ok(events) if events.is_empty() => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(system("hear of changes of files")(error)),
            }
        }
        Ok(true)
    }

    /// Watches the folders that are there; one that is watched already stays as it is. Those that are not there, or not for us, may be later.
    fn watch_folders(&self) {
        let resolv_conf = self.roots.root_file(RESOLV_CONF);
        let mut folders: BTreeSet<PathBuf> = LEASES.iter().map(|folder| self.roots.root(folder)).collect();
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

    fn look(&self) -> Result<Known, DnsWatchError> {
        let mut known = Known::default();
        for (interface, addresses) in held_addresses()? {
            let each = addresses
                .into_iter()
                .map(|(address, _)| (address, interface.clone()));
            known.addresses.extend(each);
        }
        let mut keep = |path: &str, file: &Path| {
            if let Ok(text) = read_text(file, CAP) {
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
        for folder in LEASES {
            let names = list(&self.roots.root(folder)).unwrap_or_default();
            for name in names.iter().take(MOST) {
                let path = format!("{folder}/{name}");
                if let Ok(text) = read_text(&self.roots.root(&path), CAP) {
                    known.leases.insert(path, words_of(&text));
                }
            }
        }
        Ok(known)
    }
}

/// What a lease says of DNS, each line once: dhclient adds the same again at each renewal.
fn words_of(lease: &str) -> String {
    let lines: BTreeSet<&str> = lease
        .lines()
        .map(str::trim)
        .filter(|line| LINES.iter().any(|word| line.contains(word)))
        .collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

impl Known {
    /// In order: addresses that came and went, files, leases.
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

    const SHORT: Duration = Duration::from_millis(1);
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
    fn files_that_change_are_heard_of_and_those_only_touched_are_not() {
        let (_dir, roots) = files();
        let mut watch = DnsWatch::open(&roots).unwrap();
        let write = |path: &str, text: &str| fs::write(roots.root(path), text).unwrap();
        assert_eq!(watch.wait(SHORT).unwrap(), []);
        write("/etc/hosts", "");
        write(RESOLV_CONF, "nameserver 192.0.2.1\n");
        assert_eq!(watch.wait(SHORT).unwrap(), []);
        write(RESOLV_CONF, "nameserver 192.0.2.2\n");
        assert_eq!(watch.wait(LONG).unwrap(), [resolv_conf(RESOLV_CONF)]);

        // A folder that was not there, and a link into it.
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
        assert_eq!(watch.wait(SHORT).unwrap(), []);
        write(lease, "ADDRESS=10.0.0.3\nDNS=169.254.20.10\n");
        assert_eq!(watch.wait(LONG).unwrap(), changed);
    }

    #[test]
    fn a_change_wakes_it_at_once() {
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

    /// In a network namespace of this thread's own. Without root there is none to be had.
    #[test]
    fn tier2_addresses_that_come_and_go_are_heard_of() {
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
        // More at once than the socket has room for.
        for third in 0..8 {
            for fourth in 0..32 {
                ip(&format!("address add 10.96.{third}.{fourth}/32 dev lo"));
            }
        }
        let mut heard = BTreeSet::new();
        while heard.len() < 256 {
            let more = watch.wait(LONG).unwrap();
            assert!(!more.is_empty(), "{} of 256", heard.len());
            heard.extend(more);
        }
        assert_eq!(watch.wait(SHORT).unwrap(), []);
    }
}
