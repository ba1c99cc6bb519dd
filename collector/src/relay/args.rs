//! Flags of the relay. It has no settings file, so that its Deployment needs no ConfigMap in the
//! tenant's namespace.

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use ipnet::IpNet;
use virtfleet_collector_core::{connect_rate::CONNECTIONS_OF_VM, host_port::HostPort};
use virtfleet_wire::settings::{AGENT_PORT, Span};

/// Flags of the relay.
#[derive(Debug, Clone, Args)]
pub struct RelayArgs {
    /// Address and port for collectors, which request connections to VMs. With port 0 the kernel
    /// chooses one.
    #[arg(
        long = "connect.address",
        env = "VIRTFLEET_RELAY_CONNECT_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:10915"
    )]
    pub connect_address: SocketAddr,
    /// Networks of the VMs, separated by commas. Other destinations are refused. Loopback,
    /// link-local and multicast addresses need an entry that lies wholly inside their range.
    #[arg(
        long = "connect.allow-cidrs",
        env = "VIRTFLEET_RELAY_CONNECT_ALLOW_CIDRS",
        value_name = "CIDRS",
        value_delimiter = ',',
        required = true
    )]
    pub allow: Vec<IpNet>,
    /// The port of the agents, the only one that is allowed as a destination.
    #[arg(
        long = "connect.port",
        env = "VIRTFLEET_RELAY_CONNECT_PORT",
        value_name = "PORT",
        default_value_t = AGENT_PORT,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub port: u16,
    /// The collector's host:port for agents that push. Absent: nothing listens for agents.
    #[arg(
        long = "forward.collector",
        env = "VIRTFLEET_RELAY_FORWARD_COLLECTOR",
        value_name = "HOST:PORT"
    )]
    pub collector: Option<HostPort>,
    /// Address and port for agents that push.
    #[arg(
        long = "forward.address",
        env = "VIRTFLEET_RELAY_FORWARD_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:10913"
    )]
    pub forward_address: SocketAddr,
    /// Address and port of /healthz, /readyz and /metrics, over HTTP.
    #[arg(
        long = "probe.address",
        env = "VIRTFLEET_RELAY_PROBE_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:10914"
    )]
    pub probe_address: SocketAddr,
    /// Maximum open connections of each direction. A collector keeps one to each VM.
    #[arg(
        long = "max-connections",
        env = "VIRTFLEET_RELAY_MAX_CONNECTIONS",
        value_name = "NUMBER",
        default_value_t = 4096,
        value_parser = clap::value_parser!(u32).range(1..=65536)
    )]
    pub max_connections: u32,
    /// Maximum open connections of one VM that pushes. Where several VMs have one address (a NAT):
    /// 8 for each. They may also connect so many times as often.
    #[arg(
        long = "forward.max-connections-per-peer",
        env = "VIRTFLEET_RELAY_FORWARD_MAX_CONNECTIONS_PER_PEER",
        value_name = "NUMBER",
        default_value_t = CONNECTIONS_OF_VM,
        value_parser = clap::value_parser!(u32).range(1..=65536)
    )]
    pub forward_per_peer: u32,
    /// Maximum open connections from one address of a collector. Absent: --max-connections.
    #[arg(
        long = "connect.max-connections-per-peer",
        env = "VIRTFLEET_RELAY_CONNECT_MAX_CONNECTIONS_PER_PEER",
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u32).range(1..=65536)
    )]
    pub connect_per_peer: Option<u32>,
    /// Maximum time for a connection to the destination.
    #[arg(
        long = "connect-timeout",
        env = "VIRTFLEET_RELAY_CONNECT_TIMEOUT",
        value_name = "TIME",
        default_value = "5s",
        value_parser = time
    )]
    pub connect_timeout: Duration,
    /// Maximum time without a byte in either direction. A connection over which a collector pulls
    /// stays open for two of its intervals, if that is longer.
    #[arg(
        long = "idle-timeout",
        env = "VIRTFLEET_RELAY_IDLE_TIMEOUT",
        value_name = "TIME",
        default_value = "3m",
        value_parser = time
    )]
    pub idle_timeout: Duration,
    /// Validate the flags and exit.
    #[arg(long)]
    pub check: bool,
}

/// Minimum of the flags that are times.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// A time as in the settings, e.g. `5s`.
fn time(text: &str) -> Result<Duration, String> {
    let span: Span = serde_json::from_value(text.into()).map_err(|error| error.to_string())?;
    if span.0 < MIN_TIMEOUT {
        return Err(format!("{text} is less than {MIN_TIMEOUT:?}"));
    }
    Ok(span.0)
}
