//! What the scenarios share: an infra cluster's network with DHCP and resolvers, a guest on it
//! whose first boot brings the agent, and what the agent says.

use std::{cell::RefCell, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    bins,
    dns::{NetNs, Resolver, Unbound, dhcp, needs as dns_needs, unbound_for_a_guest},
    guest::{Disk, Guest, Network, Scene, Seed, Start, Suite, Vm, needs as guest_needs},
    real::{self, AGENT},
};

/// Maximum time of an operation of the agent, under emulation on a busy machine.
pub(crate) const AGENT_TIMEOUT: Duration = Duration::from_mins(4);
/// Where a NodeLocal DNS listens, the infra cluster's and the user cluster's alike.
pub(crate) const NODE_LOCAL: &str = "169.254.20.10";
/// The infra cluster's DNS.
pub(crate) const INFRA: &str = "10.96.0.10";
/// How many power cuts are asked for: see `guest_dns.rs`.
pub(crate) const CUTS: &str = "VIRTFLEET_DNS_CUTS";

/// Looks names up, one after the other, each another one, as programs do. What failed is tried
/// again, ten times at most: systemd-resolved closes its stub while it takes up its files, and
/// glibc gives up at once where a port is closed.
const LOOKUPS: &str =
    "look() { RES_OPTIONS='timeout:2 attempts:2' getent ahostsv4 $1.example.com >/dev/null; }
i=0; while :; do i=$((i + 1)); at=$(cut -d' ' -f1 /proc/uptime)
n=1; until look w$i-$n || [ $n -gt 10 ]; do n=$((n + 1)); sleep 0.3; done
case $n in 1) echo \"ok $i\" ;; 11) echo \"failed $i at $at\" ;; *) echo \"again $i at $at, $n tries\" ;; esac
sleep 0.1; done >/run/lookups";
/// Asks `$1` for `$2` by UDP and prints the answer's code and how many records it has; fails when
/// none comes.
const ASK: &str = r#"import socket, sys
question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" + b"".join(bytes([len(p)]) + p.encode() for p in sys.argv[2].split(".")) + b"\0\0\x01\0\x01"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.sendto(question, (sys.argv[1], 53)); a = s.recv(512)
print(a[3] & 15, a[7])
"#;

/// What these scenarios need of the machine.
pub(crate) fn needs(suite: Suite) -> Result<()> {
    guest_needs(suite)?;
    dns_needs(&["unbound", "dnsmasq", "ldd"])
}

/// The command that runs what takes minutes.
pub(crate) const SOAK: &str = "make guest-dns-soak";

/// A guest, and the network that it is on.
pub(crate) struct World {
    /// The guest.
    pub(crate) machine: Guest,
    net: NetNs,
    _resolvers: Vec<Resolver>,
    dhcp: RefCell<Option<Resolver>>,
}

impl World {
    /// The guest at its first boot, cloud-init done. `given` are the nameservers of the lease,
    /// `settings` lines of the delivery's settings.
    pub(crate) fn first_boot(scene: &Scene, suite: Suite, given: &str, settings: &str) -> Result<Self> {
        let net = NetNs::of(scene.namespace()?.name());
        for address in [NODE_LOCAL, INFRA] {
            net.ip(&format!("address add {address}/32 dev lo"))?;
        }
        let dns = Unbound::cluster(1)
            .server("local-zone: \"example.com.\" redirect")
            .server("local-data: \"example.com. 30 IN A 192.0.2.80\"");
        let resolvers = vec![dns.start(&net, NODE_LOCAL)?, dns.start(&net, INFRA)?];

        let folder = real::agent_folder(scene.path())?;
        let input = scene.path().join("delivery.yaml");
        fs::copy(bins::static_agent()?, scene.path().join("virtfleet-agent"))
            .context("copy the agent beside the delivery")?;
        let label = real::DISK_LABEL;
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\nagent:\n  file: virtfleet-agent\n  sources:\n  \
             - disk: {{ label: {label}, path: virtfleet-agent }}\nsettings:\n  server:\n    listeners:\n    \
             - {{ name: default, address: \"127.0.0.1:10911\", plain: true }}\n{settings}"
        );
        fs::write(&input, text).with_context(|| format!("write {}", input.display()))?;
        let seed = Seed::no_cloud("dns").user_data(real::render("cloud-init", &input, &["--without-tls"])?);
        let vm = Vm::new("dns")
            .suite(suite)
            .network(Network::Tap)
            .seed(seed)
            .disk(Disk::folder("agent", &folder, label).read_only());
        let machine = scene.start(&vm, Start::BeforeCloudInit)?;
        let world = Self {
            machine,
            net,
            _resolvers: resolvers,
            dhcp: RefCell::default(),
        };
        // The guest asks again until somebody answers.
        world.hand_out(given)?;
        world.machine.wait_cloud_init()?;
        Ok(world)
    }

    /// DHCP hands these nameservers out from now on.
    pub(crate) fn hand_out(&self, given: &str) -> Result<()> {
        let mut dhcp_server = self.dhcp.borrow_mut();
        // Before the next one: there is one port.
        drop(dhcp_server.take());
        let range = ("10.0.2.100", "10.0.2.120");
        let searches = "ns.svc.cluster.local,cluster.local";
        *dhcp_server = Some(dhcp(&self.net, "tap0", range, "10.0.2.2", given, searches)?);
        Ok(())
    }

    /// Runs the guest's link through DHCP again, until its lease is this.
    pub(crate) fn renew(&self, given: &str) -> Result<()> {
        self.hand_out(given)?;
        let shows = format!(
            "grep -qx 'DNS={}' /run/systemd/netif/leases/*",
            given.replace(',', " ")
        );
        self.machine
            .run("networkctl renew $(basename $(ls -d /sys/class/net/en*))")?;
        self.machine.run_until(&shows, "the new lease")
    }

    /// Writes other DNS settings, without a reconcile request; root's next reconcile run applies
    /// them at once.
    pub(crate) fn set(&self, dns: &str) -> Result<()> {
        let text = format!("apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\ndns: {dns}\n");
        self.machine
            .write_file("/etc/virtfleet/agent.d/90-dns.yaml", text.as_bytes(), "0644")?;
        self.machine.run(&format!("{AGENT} check-config")).map(drop)
    }

    /// A pass over DNS as the boot and the watch make one, waited for.
    pub(crate) fn pass(&self) -> Result<Value> {
        self.machine
            .sh_within(&format!("{AGENT} apply --stage dns"), AGENT_TIMEOUT)?;
        self.state()
    }

    /// How DNS stands, as `virtfleet-agent dns` says.
    pub(crate) fn state(&self) -> Result<Value> {
        let said = self.machine.sh(&format!("{AGENT} dns -o json"))?;
        serde_json::from_str(&said.stdout).with_context(|| format!("{}{}", said.stdout, said.stderr))
    }

    /// As asked for, by these nameservers alone, and names resolve.
    pub(crate) fn verified(&self, nameservers: &[&str]) -> Result<Value> {
        let state = self.state()?;
        ensure!(state["standing"] == "verified", "{state:#}");
        ensure!(
            state["effective"]["nameservers"] == serde_json::json!(nameservers),
            "{:#}",
            state["effective"]
        );
        self.machine.run("getent ahostsv4 verified.example.com | grep -q '^192.0.2.80 ' && getent ahostsv4 kubernetes.default.svc.cluster.local | grep -q '^10.96.0.1 '")
            .context("names do not resolve")?;
        Ok(state)
    }

    /// Begins to look names up all along.
    pub(crate) fn watch(&self) -> Result<()> {
        self.machine
            .write_file("/run/lookups.sh", LOOKUPS.as_bytes(), "0755")?;
        self.machine
            .run("systemd-run --quiet --unit lookups sh /run/lookups.sh")?;
        self.more(2)
    }

    /// Waits for so many lookups more.
    pub(crate) fn more(&self, count: u32) -> Result<()> {
        let test = format!("[ $(wc -l </run/lookups) -ge $((before + {count})) ]");
        let script = format!("before=$(wc -l </run/lookups); until {test}; do sleep 0.2; done");
        self.machine.run_within(&script, AGENT_TIMEOUT).map(drop)
    }

    /// Checks that no lookup has failed so far and that at most `again` of them needed a retry.
    /// Prints the counts.
    pub(crate) fn looked_up(&self, again: usize) -> Result<()> {
        let count = self.machine.run("grep -c ^ok /run/lookups || true")?;
        let others = self.machine.run("grep -v ^ok /run/lookups || true")?;
        ensure!(
            !others.contains("failed") && others.lines().count() <= again,
            "beside {count} lookups that succeeded: {others}"
        );
        println!(
            "{count} lookups succeeded at once, {} when tried again: {others}",
            others.lines().count()
        );
        Ok(())
    }

    /// Brings a resolver into the guest, whose image has none.
    pub(crate) fn bring_cache(&self, scene: &Scene) -> Result<()> {
        let folder = scene.path().join("unbound");
        unbound_for_a_guest(&folder)?;
        self.machine.copy_in(&folder, "/opt/unbound")
    }

    /// The user cluster's cache starts as NodeLocal DNS does: its interface, its address, and whom
    /// it forwards to is what kubelet gives it.
    pub(crate) fn start_cache(&self) -> Result<()> {
        let machine = &self.machine;
        let upstreams = machine.run("sed -n 's/^nameserver //p' /run/systemd/resolve/resolv.conf")?;
        let cache = upstreams.lines().fold(Unbound::default(), Unbound::forward);
        let text = cache.text(&[NODE_LOCAL], "/opt/unbound");
        machine.write_file("/run/unbound.conf", text.as_bytes(), "0644")?;
        machine.run(&format!(
            "set -e; modprobe dummy; ip link add nodelocaldns type dummy; ip address add {NODE_LOCAL}/32 dev nodelocaldns; ip link set nodelocaldns up
             systemd-run --quiet --unit cache /opt/unbound/ld.so --library-path /opt/unbound /opt/unbound/unbound -d -c /run/unbound.conf",
        ))?;
        machine.run_until("grep -q ' 0A14FEA9:0035 ' /proc/net/udp", "the cache")
    }

    /// It goes.
    pub(crate) fn stop_cache(&self) -> Result<()> {
        self.machine
            .run("systemctl stop cache && ip link del nodelocaldns")
            .map(drop)
    }

    /// What a pod gets that asks the cache: the answer's code and how many records it has; an error
    /// for silence.
    pub(crate) fn through_the_cache(&self, name: &str) -> Result<String> {
        self.machine.write_file("/run/ask.py", ASK.as_bytes(), "0644")?;
        self.machine
            .run(&format!("python3 /run/ask.py {NODE_LOCAL} {name}"))
    }

    /// What has been written for DNS, with times.
    pub(crate) fn written(&self) -> Result<String> {
        self.machine.run(
            "find /etc/systemd /etc/netplan /etc/resolv.conf /var/lib/virtfleet/dns -name '*irtfleet*' -type f -printf '%p %T@\\n' -o -name resolv.conf -printf '%p %l\\n' 2>/dev/null | sort",
        )
    }
}

/// The findings on DNS: id, severity and subject of each.
pub(crate) fn findings(state: &Value) -> Vec<String> {
    let all = state["findings"].as_array().into_iter().flatten();
    all.map(|one| format!("{} {} {}", one["id"], one["severity"], one["subject"]["name"]).replace('"', ""))
        .collect()
}
