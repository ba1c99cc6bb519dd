//! A network namespace of a test.

use std::{
    fs::{self, File},
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use nix::sched::{CloneFlags, setns};

use crate::process::{AtEnd, Launch};

const DEADLINE: Duration = Duration::from_secs(20);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The namespace. It is removed when dropped, or after this process has ended without a drop.
#[derive(Debug)]
pub struct NetNs {
    name: String,
    _end: Option<AtEnd>,
}

/// Packets that a namespace has sent since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// UDP datagrams.
    pub datagrams: u64,
    /// TCP connections opened.
    pub connections: u64,
}

impl NetNs {
    /// Creates a namespace with only `lo`, which is up.
    pub fn new() -> Result<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // The name contains the process id of its creator first, so that the cleanup after dead
        // processes finds it, too.
        let name = format!("virtfleet-{}-dns{number}", process::id());
        let end = AtEnd::new("ip netns del \"$1\"", [&name])?;
        let own = Self {
            name,
            _end: Some(end),
        };
        Launch::new("ip")
            .args(["netns", "add", &own.name])
            .text(DEADLINE)
            .context("a network namespace (needs root)")?;
        own.ip("link set lo up")?;
        Ok(own)
    }

    /// A namespace that other code creates and removes, e.g. that of a scene of real guests.
    pub fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            _end: None,
        }
    }

    /// Its name, for [`Launch::in_namespace`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` with these arguments in the namespace.
    pub fn ip(&self, words: &str) -> Result<()> {
        let launch = Launch::new("ip").args(["-n", &self.name]);
        launch.args(words.split_ascii_whitespace()).text(DEADLINE)?;
        Ok(())
    }

    /// Runs `work` on a new thread in the namespace; sockets that it creates stay in the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).context(path)?;
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(file, CloneFlags::CLONE_NEWNET).context("enter a network namespace")?;
                Ok(work())
            });
            thread
                .join()
                .map_err(|_| anyhow!("the thread in the network namespace has panicked"))?
        })
    }

    /// Moves the calling thread into the namespace for good, with all threads and processes that it
    /// starts later.
    pub fn enter(&self) -> Result<()> {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).context(path)?;
        setns(file, CloneFlags::CLONE_NEWNET).context("enter a network namespace")
    }

    /// Packets sent so far (`/proc/net/snmp`, `snmp6`; TCP is counted for IPv4 and IPv6 together).
    pub fn sent(&self) -> Result<Sent> {
        let text = self.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
        let value = |kind: &str, name: &str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(kind));
            let names = lines.next()?.split_ascii_whitespace();
            let mut values = lines.next()?.split_ascii_whitespace();
            let at = names.into_iter().position(|one| one == name)?;
            values.nth(at)?.parse::<u64>().ok()
        };
        let by_ipv6 = self.run(|| fs::read_to_string("/proc/thread-self/net/snmp6"))??;
        let by_ipv6 = by_ipv6
            .lines()
            .find_map(|line| line.strip_prefix("Udp6OutDatagrams")?.trim().parse::<u64>().ok());
        Ok(Sent {
            datagrams: value("Udp:", "OutDatagrams").context("UDP's OutDatagrams")?
                + by_ipv6.context("Udp6OutDatagrams")?,
            connections: value("Tcp:", "ActiveOpens").context("TCP's ActiveOpens")?,
        })
    }
}

/// Creates a veth pair between two namespaces; each end is the interface `name` with these
/// addresses (`10.66.0.1/24`). It is never visible outside the two namespaces.
pub fn veth(a: (&NetNs, &str, &[&str]), b: (&NetNs, &str, &[&str])) -> Result<()> {
    a.0.ip(&format!(
        "link add {} type veth peer name {} netns {}",
        a.1,
        b.1,
        b.0.name()
    ))?;
    for (namespace, name, addresses) in [a, b] {
        for address in addresses {
            // Without duplicate address detection, which is not needed here.
            let nodad = if address.contains(':') { " nodad" } else { "" };
            namespace.ip(&format!("address add {address} dev {name}{nodad}"))?;
        }
        namespace.ip(&format!("link set {name} up"))?;
    }
    Ok(())
}
