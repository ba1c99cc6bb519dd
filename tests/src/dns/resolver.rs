//! Real resolvers, and a real DHCP server.

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::NetNs;
use crate::process::{Launch, Process};

const SOON: Duration = Duration::from_secs(30);

/// The path of a program: resolvers are in folders that may be missing in a user's `PATH`.
pub(super) fn program(name: &str) -> Result<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|folder| PathBuf::from(folder).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed; as root: tests/parts/setup.sh"))
}

/// A running resolver. Dropping it ends it.
#[derive(Debug)]
pub struct Resolver {
    process: Process,
    _folder: tempfile::TempDir,
}

impl Resolver {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its output.
    pub fn log(&self) -> String {
        self.process.log()
    }

    fn start(
        folder: tempfile::TempDir,
        launch: Launch,
        namespace: &NetNs,
        ready: impl Fn() -> bool + Send + Sync,
    ) -> Result<Self> {
        let mut process = launch
            .in_namespace(namespace.name())
            .tied()
            .start(folder.path())?;
        process.wait_for(SOON, "its port", |_| {
            namespace
                .run(&ready)?
                .then_some(())
                .context("nothing listens there yet")
        })?;
        Ok(Self {
            process,
            _folder: folder,
        })
    }

    /// Starts dnsmasq at an address, with these options.
    pub fn dnsmasq(namespace: &NetNs, address: &str, options: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let to: IpAddr = address.parse()?;
        let launch = Launch::new(program("dnsmasq")?)
            .args([
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--no-resolv",
                "--no-hosts",
                "--bind-interfaces",
                "--user=root",
                "--pid-file",
                "--log-facility=-",
            ])
            .arg(format!("--listen-address={address}"))
            .args(options);
        Self::start(folder, launch, namespace, move || connects(to))
    }
}

/// unbound's configuration.
#[derive(Debug, Clone, Default)]
pub struct Unbound {
    server: Vec<String>,
    forward: Vec<String>,
}

impl Unbound {
    /// Adds a line to the section `server`.
    #[must_use]
    pub fn server(mut self, line: &str) -> Self {
        self.server.push(line.to_owned());
        self
    }

    /// Adds an upstream server, with or without `@port`.
    #[must_use]
    pub fn forward(mut self, to: &str) -> Self {
        self.forward.push(to.to_owned());
        self
    }

    /// A configuration that serves only the zone of a cluster.
    pub fn cluster(addresses: usize) -> Self {
        let mut own = Self::default().server("local-zone: \"cluster.local.\" static");
        for last in 1..=addresses {
            own = own.server(&format!(
                "local-data: \"kubernetes.default.svc.cluster.local. 30 IN A 10.96.0.{last}\""
            ));
        }
        own
    }

    /// The configuration file's text.
    pub fn text(&self, addresses: &[&str], folder: &str) -> String {
        let mut text = format!(
            "server:\n  chroot: \"\"\n  username: \"\"\n  directory: \"{folder}\"\n  pidfile: \"\"\n  use-syslog: no\n  num-threads: 1\n  \
             module-config: \"iterator\"\n  do-not-query-localhost: no\n  access-control: 0.0.0.0/0 allow\n  access-control: ::/0 allow\n"
        );
        for address in addresses {
            text.extend(["  interface: ", address, "\n"]);
        }
        for line in &self.server {
            text.extend(["  ", line, "\n"]);
        }
        if !self.forward.is_empty() {
            text += "forward-zone:\n  name: \".\"\n";
        }
        for to in &self.forward {
            text.extend(["  forward-addr: ", to, "\n"]);
        }
        text + "remote-control:\n  control-enable: no\n"
    }

    /// Starts it at an address.
    pub fn start(&self, namespace: &NetNs, address: &str) -> Result<Resolver> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("unbound.conf");
        fs::write(&file, self.text(&[address], &folder.path().display().to_string()))?;
        let launch = Launch::new(program("unbound")?).args(["-d", "-c"]).arg(&file);
        let to: IpAddr = address.parse()?;
        let by_udp = self.server.iter().any(|line| line == "do-tcp: no");
        Resolver::start(folder, launch, namespace, move || {
            if by_udp { replies(to) } else { connects(to) }
        })
    }
}

/// Starts dnsmasq as the DHCP server of an interface: addresses from `first` to `last`, the router,
/// these nameservers (option 6) and these search domains (119).
pub fn dhcp(
    namespace: &NetNs,
    interface: &str,
    (first, last): (&str, &str),
    router: &str,
    nameservers: &str,
    searches: &str,
) -> Result<Resolver> {
    dhcp_with(
        namespace,
        interface,
        (first, last),
        router,
        nameservers,
        searches,
        &[],
    )
}

/// As [`dhcp`], with further options of dnsmasq, e.g. `--dhcp-option=option:T1,5`, which makes
/// clients renew leases every 5 s.
pub fn dhcp_with(
    namespace: &NetNs,
    interface: &str,
    (first, last): (&str, &str),
    router: &str,
    nameservers: &str,
    searches: &str,
    options: &[&str],
) -> Result<Resolver> {
    let folder = tempfile::tempdir()?;
    let launch = Launch::new(program("dnsmasq")?)
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--user=root",
            "--pid-file",
            "--log-facility=-",
            "--log-dhcp",
            "--no-ping",
            "--dhcp-authoritative",
        ])
        .arg(format!("--interface={interface}"))
        .arg(format!(
            "--dhcp-leasefile={}",
            folder.path().join("leases").display()
        ))
        .arg(format!("--dhcp-range={first},{last},2m"))
        .arg(format!("--dhcp-option=option:router,{router}"))
        .arg(format!("--dhcp-option=option:dns-server,{nameservers}"))
        .arg(format!("--dhcp-option=option:domain-search,{searches}"))
        .args(options);
    let mut process = launch
        .in_namespace(namespace.name())
        .tied()
        .start(folder.path())?;
    process.wait_for_line("DHCP, IP range", SOON)?;
    Ok(Resolver {
        process,
        _folder: folder,
    })
}

/// Copies unbound and its libraries into a folder, for a guest that has no resolver. Run it as
/// `F/ld.so --library-path F F/unbound …`.
pub fn unbound_for_a_guest(folder: &Path) -> Result<()> {
    let unbound = program("unbound")?;
    let needed = Launch::new("ldd").arg(&unbound).text(SOON)?;
    let copy = |from: &str, name: &str| {
        let to = folder.join(name);
        fs::copy(from, &to).with_context(|| format!("copy {from} to {}", to.display()))
    };
    fs::create_dir_all(folder)?;
    copy(&unbound.to_string_lossy(), "unbound")?;
    for line in needed.lines() {
        // `libssl.so.3 => /lib/…/libssl.so.3 (0x…)`, and the loader itself without an arrow.
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [name, "=>", path, ..] if path.starts_with('/') => copy(path, name)?,
            [loader, ..] if loader.starts_with('/') => copy(loader, "ld.so")?,
            _ => 0,
        };
    }
    Ok(())
}

fn connects(to: IpAddr) -> bool {
    TcpStream::connect_timeout(&SocketAddr::new(to, 53), Duration::from_secs(1)).is_ok()
}

/// Whether the server answers a datagram.
fn replies(to: IpAddr) -> bool {
    // A query for the root's nameservers.
    const QUESTION: &[u8] = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01";
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let asked = || {
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        socket.connect((to, 53))?;
        socket.send(QUESTION)?;
        socket.recv(&mut [0; 512])
    };
    asked().is_ok()
}
