//! A machine whose `/etc/resolv.conf` somebody keeps, on a network with three nameservers and a
//! DHCP server that hands out what the test says.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    bins,
    dns::{NetNs, Order, Outcome, Resolver, Unbound, dhcp_with, veth},
    guest::Suite,
    machine::{Machine, Options, Root, needs},
    process::Launch,
    wait::eventually,
};
use virtfleet_wire::settings::{DnsConfig, DnsManage, DnsPolicy, DnsSettings};

/// What DHCP hands out first, what is asked for, and what DHCP hands out later. Each says of every
/// name below `example.` that it is 192.0.2.<its last number>.
pub(crate) const OLD: u8 = 11;
pub(crate) const NEW: u8 = 12;
pub(crate) const LATER: u8 = 13;
/// Longer than any renewal and any boot takes.
pub(crate) const LONG: Duration = Duration::from_mins(1);
const PASS: Duration = Duration::from_mins(2);
const SETTINGS: &str = "/etc/virtfleet/agent.d/50-test.yaml";

/// Program that owns `/etc/resolv.conf`, and how the agent reports it.
pub(crate) struct Owner {
    /// The root with it.
    pub(crate) root: fn() -> Result<Root>,
    /// What the machine has for it.
    pub(crate) options: fn() -> Options,
    /// What is run once, before the boot that the scenario sees; nothing for none.
    pub(crate) prepare: &'static str,
    /// How `virtfleet-agent dns` names it, and what it says of it.
    pub(crate) named: [&'static str; 2],
    /// Its unit.
    pub(crate) unit: &'static str,
    /// Succeeds when a lease with the nameserver `$1` is there.
    pub(crate) leased: &'static str,
}

/// A machine, and the network that it is in.
pub(crate) struct World {
    // In the order of their drop.
    pub(crate) machine: Machine,
    dhcp: Option<Resolver>,
    _servers: Vec<Resolver>,
    outside: NetNs,
    _inside: NetNs,
    renewal: u32,
}

/// What the machine needs of this one.
pub(crate) fn needed(owner: &Owner) -> Result<Root> {
    bins::agent()?;
    bins::dns_stage()?;
    virtfleet_tests::dns::needs(&["unbound", "dnsmasq"])?;
    (owner.root)()
}

/// The guests' root of a release.
pub(crate) fn guests(suite: Suite) -> Result<Root> {
    needs(suite)
}

/// The root with every owner that Debian has.
pub(crate) fn owners() -> Result<Root> {
    needs(Suite::Trixie)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/owners-root.sh");
    let launch = Launch::new(script).args(["--cached", Suite::Trixie.name()]);
    let path = launch
        .text(Duration::from_mins(3))
        .context("no root with the owners; `make setup` makes it")?;
    Root::at(path.trim())
}

/// The settings of an agent. The policy of `auto` asks for NEW and nothing of the platform's.
pub(crate) fn settings(manage: &str) -> String {
    format!(
        "dns:\n  manage: {manage}\n  policy: ClusterFirst\n  cluster:\n    nameservers: [10.66.0.{NEW}]\n    namespace: tenant\n  \
         config:\n    options: [{{ name: ndots, value: \"2\" }}]"
    )
}

impl World {
    /// Boots it, with DHCP handing out these.
    pub(crate) fn boot(owner: &Owner, root: &Root, nameservers: &str, options: Options) -> Result<Self> {
        Self::boot_renewing(owner, root, nameservers, options, 4)
    }

    /// The same with a lease that is renewed after so many seconds, at most 110. A renewal that is
    /// under way when a pass takes over writes once more, whatever the pass wrote.
    pub(crate) fn boot_renewing(
        owner: &Owner,
        root: &Root,
        nameservers: &str,
        options: Options,
        renewal: u32,
    ) -> Result<Self> {
        let (outside, inside) = (NetNs::new()?, NetNs::new()?);
        veth(
            (
                &outside,
                "vm0",
                &["10.66.0.1/24", "10.66.0.11/24", "10.66.0.12/24", "10.66.0.13/24"],
            ),
            (&inside, "eth0", &[]),
        )?;
        let mut servers = Vec::new();
        for last in [OLD, NEW, LATER] {
            let server = Unbound::cluster(1)
                .server("local-zone: \"example.\" redirect")
                .server(&format!("local-data: \"example. 1 IN A 192.0.2.{last}\""));
            servers.push(server.start(&outside, &format!("10.66.0.{last}"))?);
        }
        let dhcp = Some(handing_out(&outside, nameservers, renewal)?);
        let mut machine = Machine::boot(root, &inside, options)?;
        if !owner.prepare.is_empty() {
            machine.sh(owner.prepare)?;
            machine.reboot()?;
        }
        let own = Self {
            machine,
            dhcp,
            _servers: servers,
            outside,
            _inside: inside,
            renewal,
        };
        own.leased(owner, nameservers)?;
        Ok(own)
    }

    /// From now on DHCP hands out these, and the lease is renewed.
    pub(crate) fn hand_out(&mut self, owner: &Owner, nameservers: &str) -> Result<()> {
        self.dhcp = None;
        self.dhcp = Some(handing_out(&self.outside, nameservers, self.renewal)?);
        self.leased(owner, nameservers)
    }

    /// Waits until the lease says so.
    pub(crate) fn leased(&self, owner: &Owner, nameservers: &str) -> Result<()> {
        let last = nameservers.rsplit(',').next().unwrap_or_default();
        let script = format!("set -- {last}; {}", owner.leased);
        self.machine
            .until_sh(LONG, &script)
            .map(drop)
            .with_context(|| format!("the lease with {nameservers}"))
    }

    /// Looks a name up as programs do, and says by whom it was answered.
    pub(crate) fn answered_by(&self, name: &str) -> Result<u8> {
        let script = format!("RES_OPTIONS='timeout:2 attempts:2' getent ahostsv4 {name}.example");
        let found = self
            .machine
            .sh(&script)
            .with_context(|| self.resolv_conf().unwrap_or_default())?;
        let word = found.split_ascii_whitespace().next().unwrap_or_default();
        let last = word.strip_prefix("192.0.2.").context("an address of the tests")?;
        Ok(last.parse()?)
    }

    /// Checks that this nameserver answers and that no other is in use.
    pub(crate) fn uses(&self, last: u8) -> Result<()> {
        let by = self.answered_by("used")?;
        self.has_only(last)?;
        ensure!(by == last, "{by} has answered instead of {last}");
        Ok(())
    }

    /// Checks that no other nameserver is in use, and waits until this one answers: a service that
    /// was started again may still assign the address.
    pub(crate) fn keeps(&self, last: u8) -> Result<()> {
        self.has_only(last)?;
        eventually(LONG, "an answer", || self.uses(last))
    }

    fn has_only(&self, last: u8) -> Result<()> {
        let behind = "grep -q '^nameserver 127.0.0.53' /etc/resolv.conf && cat /run/systemd/resolve/resolv.conf || cat /etc/resolv.conf";
        let text = self.machine.sh(behind)?;
        let servers: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("nameserver"))
            .collect();
        ensure!(servers == [format!("nameserver 10.66.0.{last}")], "{text}");
        Ok(())
    }

    /// `/etc/resolv.conf` with its link, once this nameserver is in use. `dhclient-script` of
    /// Debian 13 truncates the file at each renewal before it writes to it.
    pub(crate) fn settled(&self, last: u8) -> Result<String> {
        eventually(LONG, "the owner's file", || {
            let text = self.resolv_conf()?;
            self.uses(last)?;
            ensure!(
                text.contains("nameserver ") && self.resolv_conf()? == text,
                "{text}"
            );
            Ok(text)
        })
    }

    /// `/etc/resolv.conf`, with where it links to.
    pub(crate) fn resolv_conf(&self) -> Result<String> {
        self.machine.sh("readlink /etc/resolv.conf; cat /etc/resolv.conf")
    }

    /// Writes the settings.
    pub(crate) fn set(&self, body: &str) -> Result<()> {
        let text = format!("apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n{body}\n");
        self.machine.write(SETTINGS, &text)
    }

    /// `virtfleet-agent apply dns`, which must have nothing to complain of.
    pub(crate) fn apply(&self) -> Result<String> {
        self.machine.sh("virtfleet-agent apply dns --wait 60s")
    }

    /// Waits until a pass has nothing to do: a renewal that was under way when the agent wrote the
    /// file writes it once more.
    pub(crate) fn at_rest(&self) -> Result<()> {
        eventually(LONG, "nothing is left to do", || {
            let plan = self.machine.sh("virtfleet-agent plan dns")?;
            ensure!(plan.contains("nothing to do"), "{plan}");
            Ok(())
        })
    }

    /// Waits until `virtfleet-agent dns` names the owner.
    pub(crate) fn says(&self, owner: &Owner) -> Result<()> {
        eventually(LONG, "the owner in the status", || {
            let status = self.machine.sh("virtfleet-agent dns")?;
            let first = status.lines().next().unwrap_or_default();
            ensure!(owner.named.iter().all(|word| first.contains(word)), "{status}");
            Ok(())
        })
    }

    /// Files of ours that are there, but for the agent's own.
    pub(crate) fn ours(&self) -> Result<String> {
        self.machine
            .sh("grep -rlIs '^# Written by virtfleet-agent' /etc /run/systemd /run/NetworkManager || true")
    }

    /// A pass of `dns-stage`.
    pub(crate) fn stage(&self, order: &Order) -> Result<Outcome> {
        let launch = self.machine.launch("dns-stage")?;
        Outcome::of(&launch.arg(serde_json::to_string(order)?).output(PASS)?)
    }
}

/// Order for `dns-stage`.
pub(crate) fn order(manage: DnsManage) -> Order {
    Order {
        dns: DnsSettings {
            manage,
            policy: DnsPolicy::None,
            config: DnsConfig {
                nameservers: vec![format!("10.66.0.{NEW}")],
                searches: vec!["cluster.local".to_owned()],
                ..DnsConfig::default()
            },
            ..DnsSettings::default()
        },
        ..Order::default()
    }
}

fn handing_out(outside: &NetNs, nameservers: &str, renewal: u32) -> Result<Resolver> {
    let first = format!("--dhcp-option=option:T1,{renewal}");
    let last = format!("--dhcp-option=option:T2,{}", renewal.max(60));
    let renewed = [&*first, &last];
    let range = ("10.66.0.100", "10.66.0.120");
    dhcp_with(
        outside,
        "vm0",
        range,
        "10.66.0.1",
        nameservers,
        "corp.example",
        &renewed,
    )
}
