//! A guest on a tap device with agent, disk, nameservers and a stand-in for kubelet, and the
//! collector that pulls it, in one network namespace.

use std::{
    cell::RefCell,
    fmt::Write as _,
    fs,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use virtfleet_collector_core::view::{AgentStatus, VmDetail};
use virtfleet_tests::{
    dns::{NetNs, Reply, Responder},
    guest::{Disk, Guest as Machine, MIB, Network, Scene, UUID, Vm},
    pki::{self, Authority},
    process::Launch,
    real::{self, AGENT_PORT, BROUGHT, GUEST_TIMEOUT},
    sim::{self, Guest, Options},
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};
use virtfleet_wire::{
    finding::Severity,
    report::{GuestReport, SectionStatus},
};

use super::kubelet::{self, Heartbeats, NodeSeen};

/// Interval and timeout of pulls. An emulated guest takes 0.2 seconds for its page, on a busy
/// machine a second.
const PULL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time until a state or its verdict shows, or until the guest is healthy again. A silent
/// agent gets its verdict after 90 seconds.
const STATE_TIMEOUT: Duration = Duration::from_mins(3);
/// Maximum offset of the guest's clock that is still right, in milliseconds. Its hardware clock has
/// seconds.
const MAX_OFFSET_MS: u64 = 4000;
/// The nameservers that the guest uses; both are addresses of the namespace.
pub(crate) const NAMESERVERS: [&str; 2] = ["10.0.2.2", "10.0.2.3"];
/// The network of the guest, as its image would get it from cloud-init.
const NETWORK: &str = "[Match]\nMACAddress=02:00:00:00:00:01\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n\
    DNS=10.0.2.2\nDNS=10.0.2.3\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n";
/// The declared disk. A guest without time reads for a second to prove that it is blank.
const DISKS: &str = "- { name: data, proofSeconds: 1, match: { serial: data }, filesystem: ext4, mountPoint: /data, \
    options: [errors=remount-ro] }\n";
/// `adjtimex`, in place of chrony: sets the status `$1` and no error.
const ADJUST: &str = "my $t = pack('L x4 q4 l', 0x1c, 0, 0, 0, 0, $ARGV[0]) . \"\\0\" x 168; \
    exit(syscall(159, $t) < 0);\n";
const CHANNELS: &str = "import array, fcntl, socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); b = array.array('I', [0x3c] + [0] * 8)
r = struct.pack('16sP', sys.argv[1].encode(), b.buffer_info()[0])
fcntl.ioctl(s, 0x8946, r); b[0] = 0x3d; b[8] = int(sys.argv[2]); fcntl.ioctl(s, 0x8946, r)
";
/// `STA_PLL` of `adjtimex`: a program synchronises the clock.
const SYNCHRONISED: u32 = 0x01;
/// `STA_UNSYNC` of `adjtimex`.
pub(crate) const NOT_SYNCHRONISED: u32 = 0x40;

/// What is seen of the VM from outside of the guest.
pub(crate) struct Seen {
    /// The VM in the collector's API.
    pub(crate) vm: VmDetail,
    /// Its Node.
    pub(crate) node: NodeSeen,
}

/// The guest and what is around it.
pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(crate) who: Guest,
    pub(crate) stage: Stage,
    pub(crate) net: NetNs,
    heartbeats: Heartbeats,
    responders: RefCell<Vec<Responder>>,
}

impl World {
    /// Moves this thread into the scene's namespace, and starts everything there.
    pub(crate) fn new(scene: &Scene) -> Result<Self> {
        // Two queues for two vCPUs, so that nothing is to be tuned.
        let vm = Vm::new("health")
            .no_seed()
            .network(Network::Tap)
            .nic_queues(2)
            .disk(Disk::blank("data", 64 * MIB).serial("data"));
        let machine = real::installed(scene, &vm)?;
        let net = NetNs::of(scene.namespace()?.name());
        net.enter()?;
        net.ip(&format!("address add {}/24 dev tap0", NAMESERVERS[1]))?;
        let options = Options {
            guests: 1,
            hosts: 2,
            zones: 2,
            clusters: 1,
            ..Options::default()
        };
        let mut stage = Stage::new(options)?;
        stage.dial(AGENT_PORT, "10.0.0.0/8");
        let who = Guest {
            address: SocketAddr::new(IpAddr::from([10, 0, 2, 15]), AGENT_PORT),
            ..real::tenant(&stage, 1, UUID)?
        };
        let world = Self {
            machine,
            who,
            stage,
            net,
            heartbeats: Heartbeats::serve()?,
            responders: RefCell::default(),
        };
        Ok(world)
    }

    /// Gives the guest its network, disk, settings and clock, and starts agent and collector.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.start_nameservers()?;
        let machine = &self.machine;
        machine.write_file(
            "/etc/systemd/network/05-health.network",
            NETWORK.as_bytes(),
            "0644",
        )?;
        machine.write_file(
            "/etc/systemd/system/kubelet.service",
            kubelet::UNIT.as_bytes(),
            "0644",
        )?;
        machine.write_file("/root/adjust.pl", ADJUST.as_bytes(), "0644")?;
        machine.write_file("/root/channels.py", CHANNELS.as_bytes(), "0644")?;
        machine
            .run("systemctl enable --now --quiet systemd-networkd systemd-resolved && networkctl reload")?;
        machine.run_until("ip -br address | grep -q 10.0.2.15", "the guest's address")?;
        self.declare("")?;
        self.set_clock()?;
        real::begin(machine, &self.stage, &self.who)?;
        self.apply("disks")?;
        self.apply("dns")?;
        machine.run("systemctl start kubelet")?;

        real::place(&self.stage, &self.who, &self.stage.plan.hosts[0].name)?;
        let node = sim::user_node(&self.who, &self.stage.plan.hosts[0], &self.stage.plan.region);
        let file = format!("clusters/{}/node-{}.yaml", self.who.cluster, self.who.name);
        self.stage.write_manifest(&file, &node)?;
        self.stage.start_collector(Beat {
            interval: PULL_INTERVAL,
            timeout: PULL_INTERVAL,
        })?;
        Ok(())
    }

    /// Starts both nameservers.
    fn start_nameservers(&self) -> Result<()> {
        let right = Reply::Right(Duration::ZERO);
        let mut responders = self.responders.borrow_mut();
        for address in NAMESERVERS {
            responders.push(Responder::start(&self.net, address, right, Some(right))?);
        }
        Ok(())
    }

    /// Declares these disks beside `data`, without a reconcile request.
    pub(crate) fn declare(&self, more: &str) -> Result<()> {
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\ndns: {{ manage: report-only, probe: {{ timeout: 1s }} }}\n\
             disks:\n{DISKS}{more}"
        );
        let file = "/etc/virtfleet/agent.d/50-health.yaml";
        self.machine.write_file(file, text.as_bytes(), "0644")
    }

    /// One reconcile run over disks or DNS, whatever its exit code.
    pub(crate) fn apply(&self, what: &str) -> Result<()> {
        let command = format!("{BROUGHT} apply {what}");
        self.machine.sh_within(&command, GUEST_TIMEOUT).map(drop)
    }

    /// Sets the guest's clock and marks it as synchronised, as chrony does after a step.
    pub(crate) fn set_clock(&self) -> Result<()> {
        self.machine.set_clock()?;
        self.set_clock_status(SYNCHRONISED)
    }

    /// Sets the status of the kernel's clock.
    pub(crate) fn set_clock_status(&self, status: u32) -> Result<()> {
        let command = format!("perl /root/adjust.pl {status}");
        self.machine.run(&command).map(drop)
    }

    /// Replaces the agent's certificate by one of this authority for a VM with this UID.
    pub(crate) fn certify(&self, authority: &Authority, uid: &str) -> Result<()> {
        let folder = self.machine.folder().join("tls");
        let identity = authority.agent(&self.who.cluster, &self.who.name, uid)?;
        pki::write(&folder, "agent", authority, &identity)?;
        for name in ["agent.pem", "agent.key"] {
            let file = folder.join(name);
            let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            // In place, so that owner and group stay.
            self.machine
                .write_file(&format!("/etc/virtfleet/tls/{name}"), &bytes, "0640")?;
        }
        self.machine.run("systemctl restart virtfleet-agent").map(drop)
    }

    /// Loads rules for packets from and to the guest: lines of the chain `to` or `from`.
    pub(crate) fn filter(&self, rules: &[(&str, &str)]) -> Result<()> {
        let mut text = "table inet health {\nchain from { type filter hook input priority 0; }\n\
                        chain to { type filter hook output priority 0; }\n}\n"
            .to_owned();
        for (chain, rule) in rules {
            writeln!(text, "add rule inet health {chain} {rule}")?;
        }
        let loaded = self.nft().args(["-f", "-"]).stdin(&text).text(STAGE_TIMEOUT);
        loaded.map(drop).with_context(|| format!("nft, with:\n{text}"))
    }

    /// Removes the rules.
    pub(crate) fn unfilter(&self) -> Result<()> {
        let deleted = self.nft().args(["delete", "table", "inet", "health"]);
        deleted.text(STAGE_TIMEOUT).map(drop)
    }

    fn nft(&self) -> Launch {
        Launch::new("nft").in_namespace(self.net.name())
    }

    /// Writes the VMI with this text in place of its conditions.
    pub(crate) fn set_conditions(&self, conditions: &str) -> Result<()> {
        let host = &self.stage.plan.hosts[0].name;
        let is = "  conditions:\n  - type: Ready\n    status: \"True\"\n";
        let text = sim::vmi(&self.who, host).replacen(is, &format!("{is}{conditions}"), 1);
        ensure!(text.contains(conditions), "no conditions in {text}");
        let file = format!("infra/vmi-{}.yaml", self.who.name);
        self.stage.write_manifest(&file, &text)
    }

    /// What is seen now.
    pub(crate) fn seen(&self) -> Result<Seen> {
        let path = format!("/api/v1/vms/{}/{}", self.who.cluster, self.who.name);
        Ok(Seen {
            vm: serde_json::from_value(self.stage.json(&path)?).context("details of the VM")?,
            node: self.heartbeats.node(),
        })
    }

    /// Waits until what is seen satisfies `holds`.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) -> Result<Seen> {
        wait::eventually(STATE_TIMEOUT, what, || {
            let seen = self.seen()?;
            let summary = || {
                let findings = seen.findings().collect::<Vec<_>>();
                let sections = seen.report().map(|report| {
                    ["storage", "dns", "virtio"].map(|name| report.sections.get(name).map(|one| one.status))
                });
                format!(
                    "not yet: {:?} {:?} offset {:?} {:?} {findings:?} {sections:?}",
                    seen.vm.vm.agent,
                    seen.vm.vm.guest.as_ref().map(|guest| &guest.metrics),
                    seen.offset_ms(),
                    seen.node
                )
            };
            ensure!(holds(&seen), summary());
            Ok(seen)
        })
    }

    /// Waits for a pull that shows a healthy guest and ended after `since_ms`.
    pub(crate) fn until_healthy(&self, since_ms: u64) -> Result<Seen> {
        self.until("the guest is healthy", |seen| {
            seen.vm.vm.agent.last_seen_ms > Some(since_ms) && seen.is_healthy()
        })
    }
}

impl Seen {
    /// The guest's last report, if the last pull got it.
    pub(crate) fn report(&self) -> Option<&GuestReport> {
        self.vm
            .report
            .as_ref()
            .filter(|_| self.vm.vm.agent.status == AgentStatus::Up)
    }

    /// Ids and severities of the findings in that report.
    fn findings(&self) -> impl Iterator<Item = (&str, Severity)> {
        let all = self.report().into_iter().flat_map(|report| &report.findings);
        all.map(|finding| (finding.id.as_str(), finding.severity))
    }

    /// Whether the report has this finding, of at least the severity of a warning.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.findings()
            .any(|(one, severity)| one == id && severity > Severity::Info)
    }

    /// Whether the report mentions this finding, as information.
    pub(crate) fn mentions(&self, id: &str) -> bool {
        self.findings().any(|(one, _)| one == id)
    }

    /// Difference of the guest's clock in milliseconds, either way.
    pub(crate) fn offset_ms(&self) -> Option<u64> {
        let guest_ms = self.report()?.clock.realtime_ns / 1_000_000;
        Some(guest_ms.abs_diff(self.vm.vm.agent.last_seen_ms?))
    }

    /// Whether the guest's kernel says that its clock is synchronised.
    pub(crate) fn is_synchronised(&self) -> Option<bool> {
        self.vm.vm.guest.as_ref()?.metrics.clock_synchronised
    }

    /// Class of the last failure, if the agent is silent, and where it failed.
    pub(crate) fn failure(&self) -> Option<(&str, bool)> {
        let agent = &self.vm.vm.agent;
        let failure = agent
            .failure
            .as_ref()
            .filter(|_| agent.status == AgentStatus::Silent)?;
        Some((failure.class.as_str(), failure.point.is_some()))
    }

    fn is_healthy(&self) -> bool {
        let ok = |report: &GuestReport, section| {
            let section = report.sections.get(section);
            section.is_some_and(|section| section.status == SectionStatus::Ok)
        };
        self.report().is_some_and(|report| {
            ["storage", "dns", "virtio"]
                .into_iter()
                .all(|one| ok(report, one))
        }) && self.findings().all(|(_, severity)| severity == Severity::Info)
            && self.is_synchronised() == Some(true)
            && self.offset_ms() < Some(MAX_OFFSET_MS)
            && self.node
                == NodeSeen {
                    ready: "True",
                    has_memory_pressure: false,
                }
    }
}
