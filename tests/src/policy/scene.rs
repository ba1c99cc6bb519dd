//! Network namespaces that stand for pods, on one bridge, with the policies as rules of nftables.
//! Each has an IPv4 address and the IPv6 address that [`ipv6_of`] derives from it.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{allowed::rules_of, document::NetworkPolicy, nft, pod::Pod};
use crate::{dns::NetNs, process::Launch, skip, wait};

/// Name of the node, which holds the bridge. kubelet is there.
pub const NODE: &str = "node";
/// The node's address.
const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
/// Maximum time for one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time for a connection. Denied connections fail at once, see [`nft::table`].
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A host of the scene, before it is started.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its name in tests.
    pub name: &'static str,
    /// Its address.
    pub address: Ipv4Addr,
    /// The pod for which it stands. `None`: a host outside of the cluster.
    pub pod: Option<Pod>,
    /// Ports on which the test listens.
    pub ports: Vec<u16>,
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// It was accepted, at its destination.
    Open,
    /// The policies of the client's pod deny it.
    EgressDenied,
    /// The policies of the server's pod deny it.
    IngressDenied,
}

#[derive(Debug)]
struct Host {
    place: Place,
    network: NetNs,
    listeners: BTreeMap<SocketAddr, TcpListener>,
    /// Rules that are loaded.
    loaded: String,
}

/// The running scene. Dropping it removes its namespaces, and with them links and rules.
#[derive(Debug)]
pub struct PolicyScene {
    hosts: Vec<Host>,
    node: NetNs,
    over_ipv6: bool,
}

/// The IPv6 address of a host with this IPv4 address (RFC 4193).
pub fn ipv6_of(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits((0xfd00 << 112) | u128::from(address.to_bits()))
}

/// Requires what a scene needs, for [`skip::need`].
pub fn needs() -> Result<()> {
    skip::root()?;
    for program in ["ip", "nsenter", "nft"] {
        skip::program(program)?;
    }
    let network = NetNs::new().context("network namespaces")?;
    load(
        &network,
        "table inet probe { chain c { type filter hook input priority filter; }; }\n",
    )
    .context("nftables of this kernel")
}

/// Runs lines of `ip` in a namespace.
fn ip(network: &NetNs, lines: String) -> Result<()> {
    let launch = Launch::new("ip").args(["-n", network.name(), "-batch", "-"]);
    launch.stdin(lines).text(COMMAND_TIMEOUT).map(drop)
}

/// Loads rules in a namespace.
fn load(network: &NetNs, rules: &str) -> Result<()> {
    let launch = Launch::new("nft").in_namespace(network.name()).args(["-f", "-"]);
    let loaded = launch.stdin(rules).text(COMMAND_TIMEOUT);
    loaded
        .with_context(|| format!("nft -f, with:\n{rules}"))
        .map(drop)
}

/// Lines of `ip` that give a link both addresses. Everything is on the link, so that hosts may have
/// any address.
fn addresses(address: Ipv4Addr, link: &str) -> String {
    let ipv6 = ipv6_of(address);
    format!(
        "address add {address}/32 dev {link}\nroute add default dev {link}\n\
         address add {ipv6}/128 dev {link} nodad\nroute add ::/0 dev {link}\n"
    )
}

impl Host {
    /// Creates the host's namespace, with a link to the node's bridge.
    fn start(place: Place, node: &NetNs, index: usize) -> Result<Self> {
        let network = NetNs::new()?;
        let (port, address) = (format!("pod{index}"), place.address);
        ip(
            node,
            format!(
                "link add {port} type veth peer name eth0 netns {}\nlink set {port} master bridge up\n",
                network.name()
            ),
        )?;
        // Everything is on the link, so that hosts may have any address.
        ip(
            &network,
            format!("link set eth0 up\n{}", addresses(address, "eth0")),
        )?;
        let listeners = network.run(|| {
            // Without it the kernel limits the rate of the errors for denied connections.
            fs::write("/proc/sys/net/ipv4/icmp_ratemask", "0").context("icmp_ratemask")?;
            fs::write("/proc/sys/net/ipv6/icmp/ratelimit", "0").context("ratelimit of ICMPv6")?;
            let listen = |address: SocketAddr| -> Result<_> {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok((address, listener))
            };
            let families: [IpAddr; 2] = [address.into(), ipv6_of(address).into()];
            let all = place.ports.iter().flat_map(|port| {
                let port = *port;
                families.map(|address| SocketAddr::new(address, port))
            });
            let listeners = all.map(listen);
            listeners.collect::<Result<_>>().context("listen")
        })??;
        Ok(Self {
            place,
            network,
            listeners,
            loaded: String::new(),
        })
    }
}

impl PolicyScene {
    /// Starts the hosts, without policies.
    pub fn new(places: Vec<Place>) -> Result<Self> {
        let node = NetNs::new()?;
        ip(
            &node,
            format!(
                "link add bridge type bridge\nlink set bridge up\n{}",
                addresses(NODE_ADDRESS, "bridge")
            ),
        )?;
        let hosts = places.into_iter().enumerate().map(|(index, place)| {
            let name = place.name;
            Host::start(place, &node, index).with_context(|| format!("host {name}"))
        });
        let hosts = hosts.collect::<Result<_>>()?;
        Ok(Self {
            hosts,
            node,
            over_ipv6: false,
        })
    }

    /// Applies exactly these policies.
    pub fn apply(&mut self, policies: &[NetworkPolicy]) -> Result<()> {
        let pods = self.hosts.iter().filter_map(|host| host.place.pod.clone());
        let pods: Vec<Pod> = pods.collect();
        for host in &mut self.hosts {
            let Some(pod) = &host.place.pod else {
                continue;
            };
            let rules = rules_of(policies, &pods, pod).with_context(|| host.place.name)?;
            let node = [NODE_ADDRESS.into(), ipv6_of(NODE_ADDRESS).into()];
            let table = nft::table(&rules, &node);
            if table != host.loaded {
                load(&host.network, &table)?;
                host.loaded = table;
            }
        }
        Ok(())
    }

    fn host(&self, name: &str) -> Result<&Host> {
        let mut hosts = self.hosts.iter();
        let host = hosts.find(|host| host.place.name == name);
        host.with_context(|| format!("the scene has no host {name:?}"))
    }

    /// The namespace of a host, or of the node.
    pub fn network(&self, name: &str) -> Result<&NetNs> {
        match name {
            NODE => Ok(&self.node),
            _ => self.host(name).map(|host| &host.network),
        }
    }

    /// From now on addresses and connections are those of IPv6.
    pub fn use_ipv6(&mut self) {
        self.over_ipv6 = true;
    }

    /// The address of a host.
    pub fn address(&self, name: &str) -> Result<IpAddr> {
        let address = match name {
            NODE => NODE_ADDRESS,
            _ => self.host(name)?.place.address,
        };
        Ok(if self.over_ipv6 {
            ipv6_of(address).into()
        } else {
            address.into()
        })
    }

    /// Names of the hosts and of the node.
    pub fn names(&self) -> Vec<&'static str> {
        let hosts = self.hosts.iter().map(|host| host.place.name);
        hosts.chain([NODE]).collect()
    }

    /// Ports on which the test listens at a host.
    pub fn ports(&self, name: &str) -> Result<&[u16]> {
        self.host(name).map(|host| host.place.ports.as_slice())
    }

    /// Connects from a host to different ports of hosts, and says what became of each connection.
    pub fn dial(&self, from: &str, targets: &[(&str, u16)]) -> Result<Vec<Reach>> {
        let source = self.address(from)?;
        let dial = |(to, port): &(&str, u16)| {
            let host = self.host(to)?;
            let address = SocketAddr::new(self.address(to)?, *port);
            connect(source, address, host.listeners.get(&address))
                .with_context(|| format!("{from} connects to {to}:{port}"))
        };
        // Side by side: Linux reports a denied connection over IPv6 with the second SYN, after 1 s.
        // The threads inherit the namespace.
        self.network(from)?.run(|| {
            thread::scope(|scope| {
                let dials: Vec<_> = targets
                    .iter()
                    .map(|target| scope.spawn(|| dial(target)))
                    .collect();
                let joined = dials.into_iter().map(|one| match one.join() {
                    Ok(reach) => reach,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
                joined.collect()
            })
        })?
    }
}

/// Connects, and checks that this listener accepts the connection.
fn connect(source: IpAddr, address: SocketAddr, listener: Option<&TcpListener>) -> Result<Reach> {
    let stream = match TcpStream::connect_timeout(&address, DIAL_TIMEOUT) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => return Ok(Reach::EgressDenied),
        Err(error) if error.kind() == io::ErrorKind::HostUnreachable => return Ok(Reach::IngressDenied),
        // The same ICMPv6 error, as Linux reports it.
        Err(error) if address.is_ipv6() && error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Reach::IngressDenied);
        }
        Err(error) => bail!("{error}, which no policy causes"),
    };
    let listener = listener.context("a program of the test answers that is not the scene's")?;
    let (_, peer) = wait::eventually(DIAL_TIMEOUT, "the connection", || Ok(listener.accept()?))?;
    let own = stream.local_addr()?;
    ensure!(
        peer == own && own.ip() == source,
        "{peer} was accepted in place of {own} from {source}"
    );
    Ok(Reach::Open)
}
