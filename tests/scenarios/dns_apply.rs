//! A guest whose `/etc/resolv.conf` is a plain file or a link, changed by the agent's own code,
//! with a real lookup after every step: crashes, nameservers that stop answering right after the
//! change, a file that cannot be changed, and somebody else's edits.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    bins,
    dns::{Guest, NetNs, Order, Plays, Resolver, Unbound, needs, veth},
    process::Launch,
    skip,
    wait::eventually,
};
use virtfleet_wire::settings::{DnsConfig, DnsManage, DnsPolicy, DnsSettings};

const TIER: u8 = 2;
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// What the guest has, and what is asked for.
const OLD: &str = "10.66.0.11";
const NEW: &str = "10.66.0.12";
/// A nameserver on the guest's link.
const LINK_LOCAL: &str = "fe80::53";
const DROP_IN: &str = "/etc/kubernetes/kubelet.conf.d/90-virtfleet.conf";
const FOR_PODS: &str = "/var/lib/virtfleet/resolv.conf";
const BEFORE: &str = "# somebody's\nsearch cluster.local\nnameserver 10.66.0.11\n";
/// What somebody else writes meanwhile.
const THEIRS: &str = "# an administrator's\nnameserver 10.66.0.11\n";
const LEASE: &str = "lease {\n  interface \"eth0\";\n  fixed-address 10.66.0.1;\n  option domain-name-servers 10.66.0.11;\n  \
                     expire never;\n}\n";
const LOSE_NEW: &str = "ip route add blackhole 10.66.0.12/32";

struct World {
    // In the order of their drop.
    guest: Guest,
    _servers: [Resolver; 2],
    _namespaces: [NetNs; 2],
}

impl World {
    fn new() -> Result<Self> {
        let (there, inside) = (NetNs::new()?, NetNs::new()?);
        veth(
            (&there, "eth0", &["10.66.0.11/24", "10.66.0.12/24"]),
            (&inside, "eth0", &["10.66.0.1/24"]),
        )?;
        let dns = Unbound::cluster(1)
            .server("local-zone: \"example.\" redirect")
            .server("local-data: \"example. 30 IN A 192.0.2.80\"");
        let servers = [dns.start(&there, OLD)?, dns.start(&there, NEW)?];
        let guest = Guest::new(&inside, &[("dns-stage", bins::dns_stage()?)])?;
        Ok(Self {
            guest,
            _servers: servers,
            _namespaces: [there, inside],
        })
    }

    /// As before any agent: a plain file, or a link to a file in `/run`.
    fn fresh(&self, link: Option<&str>) -> Result<()> {
        let guest = &self.guest;
        guest.sh(
            "rm -rf /var/lib/virtfleet /run/virtfleet /etc/dhcp/dhclient-enter-hooks.d/*; ip route del blackhole 10.66.0.12/32 2>/dev/null; true",
        )?;
        guest.write("/var/lib/dhcp/dhclient.eth0.leases", LEASE)?;
        match link {
            Some(target) => {
                guest.write("/run/somebody/resolv.conf", BEFORE)?;
                guest.link(RESOLV_CONF, target)?;
            }
            None => guest.write(RESOLV_CONF, BEFORE)?,
        }
        guest.lookup("fresh.example")
    }

    /// As [`World::fresh`] left it, in every respect.
    fn as_before(&self, link: Option<&str>) -> Result<()> {
        let path = self.guest.path(RESOLV_CONF);
        let target = fs::read_link(&path).ok();
        let target = target.as_deref().and_then(|target| target.to_str());
        ensure!(target == link, "the link is {target:?} instead of {link:?}");
        let text = self.guest.resolv_conf()?;
        ensure!(text == BEFORE, "{text}");
        let left = self
            .guest
            .sh("ls -A /etc /etc/dhcp/dhclient-enter-hooks.d | grep virtfleet || true")?;
        ensure!(left.is_empty(), "left behind: {left}");
        let unfinished = self.guest.path("/var/lib/virtfleet/dns/undo.json");
        ensure!(!unfinished.exists(), "the undo journal is left behind");
        Ok(())
    }

    fn is_new(&self) -> Result<()> {
        let text = self.guest.resolv_conf()?;
        ensure!(text.contains(NEW) && !text.contains(OLD), "{text}");
        Ok(())
    }
}

fn order(manage: DnsManage) -> Order {
    Order {
        dns: DnsSettings {
            manage,
            policy: DnsPolicy::None,
            config: DnsConfig {
                nameservers: vec![NEW.to_owned()],
                searches: vec!["cluster.local".to_owned()],
                ..DnsConfig::default()
            },
            ..DnsSettings::default()
        },
        ..Order::default()
    }
}

fn recover() -> Order {
    Order {
        recover_only: true,
        ..order(DnsManage::Auto)
    }
}

fn needed() -> Result<()> {
    needs(&["unbound"])?;
    bins::dns_stage().map(drop)
}

#[test]
fn tier2_a_crash_between_any_two_steps_leaves_a_working_resolver() {
    let test = "tier2_a_crash_between_any_two_steps_leaves_a_working_resolver";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    let world = World::new().unwrap();
    let mut kills = 0;
    for link in [None, Some("../run/somebody/resolv.conf")] {
        // Taking it over, and giving it back.
        for manage in [DnsManage::Auto, DnsManage::Off] {
            for recovers_first in [true, false] {
                let mut point = 1;
                while crash(&world, link, manage, point, recovers_first)
                    .with_context(|| {
                        format!("{link:?}, {manage:?}, point {point}, recovery first: {recovers_first}")
                    })
                    .unwrap()
                {
                    kills += 1;
                    point += 1;
                }
            }
        }
    }
    println!(
        "killed at {kills} points between two effects; names resolved after each, and the next pass completed"
    );
    assert!(kills >= 30, "{kills}");
}

/// Whether it was killed before it was done.
fn crash(
    world: &World,
    link: Option<&str>,
    manage: DnsManage,
    point: usize,
    recovers_first: bool,
) -> Result<bool> {
    let guest = &world.guest;
    world.fresh(link)?;
    if manage == DnsManage::Off {
        let outcome = guest.stage(&order(DnsManage::Auto))?;
        ensure!(outcome.error.is_none() && outcome.steps > 0, "{outcome:?}");
        world.is_new()?;
    }
    let outcome = guest.stage(&Order {
        kill_at: Some(point),
        ..order(manage)
    })?;
    ensure!(
        outcome.error.is_none() && outcome.refusals.is_empty(),
        "{outcome:?}"
    );
    let at = || format!("{:?}", outcome.points);
    guest.lookup("crashed.example").with_context(at)?;
    if outcome.killed && recovers_first {
        guest.stage(&recover())?;
        guest.lookup("recovered.example").with_context(at)?;
        // One or the other, and nothing in between.
        let either = if manage == DnsManage::Auto {
            world.as_before(link).or_else(|_| world.is_new())
        } else {
            world.is_new().or_else(|_| world.as_before(link))
        };
        either.with_context(at)?;
    }
    let again = guest.stage(&order(manage))?;
    ensure!(again.error.is_none(), "{again:?}");
    guest.lookup("completed.example").with_context(at)?;
    match manage {
        DnsManage::Off => world.as_before(link),
        _ => world.is_new(),
    }
    .with_context(at)?;
    let rest = guest.stage(&order(manage))?;
    ensure!(
        rest.steps == 0 && rest.recovered.is_none(),
        "not at rest: {rest:?}"
    );
    Ok(outcome.killed)
}

#[test]
fn tier2_nameservers_that_stop_answering_after_the_change_are_rolled_back() {
    let test = "tier2_nameservers_that_stop_answering_after_the_change_are_rolled_back";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    let world = World::new().unwrap();
    for link in [None, Some("/run/somebody/resolv.conf")] {
        let mut kill_at = None;
        let mut points = 0;
        loop {
            world.fresh(link).unwrap();
            let outcome = world
                .guest
                .stage(&Order {
                    kill_at,
                    plays: Some(Plays {
                        at: "after write /etc/resolv.conf".to_owned(),
                        script: LOSE_NEW.to_owned(),
                    }),
                    ..order(DnsManage::Auto)
                })
                .unwrap();
            if outcome.killed {
                // In the middle of it, or of putting it back.
                world.guest.stage(&recover()).unwrap();
            } else {
                let error = outcome.error.clone().unwrap_or_default();
                assert!(
                    error.contains("restored the previous configuration"),
                    "{outcome:?}"
                );
                points = outcome.points.len();
            }
            world
                .as_before(link)
                .and_then(|()| world.guest.lookup("rolled-back.example"))
                .with_context(|| format!("{kill_at:?}: {outcome:?}"))
                .unwrap();
            let next = kill_at.map_or(points, |at| at - 1);
            if next == 0
                || !outcome
                    .points
                    .iter()
                    .any(|point| point.starts_with("after write /etc/resolv.conf"))
            {
                break;
            }
            kill_at = Some(next);
        }
        assert!(points > 5, "{points}");
        println!("{link:?}: put back, also when it was killed at any of {points} points after the change");
    }
}

#[test]
fn tier2_links_are_restored_as_they_were() {
    let test = "tier2_links_are_restored_as_they_were";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    let world = World::new().unwrap();
    world.guest.write("/run/somebody/resolv.conf", BEFORE).unwrap();
    world.guest.link("/run/chain", "somebody/resolv.conf").unwrap();
    for link in [
        "/run/somebody/resolv.conf",
        "../run/somebody/resolv.conf",
        "/run/chain",
    ] {
        let both = || -> Result<()> {
            world.fresh(Some(link))?;
            let outcome = world.guest.stage(&order(DnsManage::Auto))?;
            ensure!(outcome.error.is_none() && outcome.steps > 0, "{outcome:?}");
            world.is_new()?;
            let behind = fs::read_to_string(world.guest.path("/run/somebody/resolv.conf"))?;
            ensure!(behind == BEFORE, "what is behind the link was changed: {behind}");
            let outcome = world.guest.stage(&order(DnsManage::Off))?;
            ensure!(outcome.error.is_none(), "{outcome:?}");
            world.as_before(Some(link))?;
            world.guest.lookup("given-back.example")
        };
        both().context(link).unwrap();
    }
    // A link to nothing: there is no nameserver before, and there is one after.
    world.fresh(None).unwrap();
    world
        .guest
        .link(RESOLV_CONF, "../run/missing/resolv.conf")
        .unwrap();
    let outcome = world.guest.stage(&order(DnsManage::Auto)).unwrap();
    assert!(outcome.error.is_none(), "{outcome:?}");
    world.is_new().unwrap();
    world.guest.lookup("no-more-dangling.example").unwrap();
}

#[test]
fn tier2_what_somebody_else_writes_meanwhile_stays_theirs() {
    let test = "tier2_what_somebody_else_writes_meanwhile_stays_theirs";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    let world = World::new().unwrap();
    world.fresh(None).unwrap();
    let all = world.guest.stage(&order(DnsManage::Auto)).unwrap().points;
    let written = all
        .iter()
        .position(|point| point == "after write /etc/resolv.conf")
        .unwrap()
        + 1;
    world.fresh(None).unwrap();
    let killed = Order {
        kill_at: Some(written),
        ..order(DnsManage::Auto)
    };
    assert!(world.guest.stage(&killed).unwrap().killed);
    world.guest.write(RESOLV_CONF, THEIRS).unwrap();
    let outcome = world.guest.stage(&recover()).unwrap();
    let recovered = outcome.recovered.unwrap_or_default();
    assert!(recovered.contains("left: [\"/etc/resolv.conf\"]"), "{recovered}");
    assert_eq!(world.guest.resolv_conf().unwrap(), THEIRS);
    world.guest.lookup("theirs.example").unwrap();
}

/// A guest with a kubelet that reads `/etc/resolv.conf`, and nameservers at [`OLD`] and
/// [`LINK_LOCAL`].
fn with_kubelet() -> Result<(Guest, [Resolver; 2], [NetNs; 2])> {
    let (there, inside) = (NetNs::new()?, NetNs::new()?);
    veth(
        (&there, "eth0", &["10.66.0.11/24"]),
        (&inside, "eth0", &["10.66.0.1/24"]),
    )?;
    there.ip("address flush dev eth0 scope link")?;
    there.ip(&format!("address add {LINK_LOCAL}/64 dev eth0 nodad"))?;
    let dns = Unbound::cluster(1)
        .server("local-zone: \"example.\" redirect")
        .server("local-data: \"example. 30 IN A 192.0.2.80\"");
    let servers = [dns.start(&there, OLD)?, dns.start(&there, "::")?];
    let guest = Guest::new(&inside, &[("virtfleet-agent", bins::agent()?)])?;
    guest.write(
        "/var/lib/kubelet/config.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.240.16.10]\n",
    )?;
    guest.write(
        "/etc/systemd/system/kubelet.service",
        "[Service]\nExecStart=/usr/bin/kubelet --config-dir=/etc/kubernetes/kubelet.conf.d\n",
    )?;
    guest.sh("mkdir -p /etc/kubernetes/kubelet.conf.d")?;
    // The kernel checks the guest's own link-local address first.
    guest.write(RESOLV_CONF, &format!("nameserver {LINK_LOCAL}%eth0\n"))?;
    eventually(Duration::from_secs(30), "an answer on the link", || {
        guest.lookup("before.example")
    })?;
    Ok((guest, servers, [there, inside]))
}

/// Files of public reports (kubernetes #49675, #140844).
#[test]
fn tier2_pods_get_only_nameservers_that_they_reach() {
    let test = "tier2_pods_get_only_nameservers_that_they_reach";
    let needed = needed().and_then(|()| bins::agent().map(drop));
    let Some(()) = skip::need(TIER, test, needed).unwrap() else {
        return;
    };
    let (guest, _servers, _namespaces) = with_kubelet().unwrap();
    let cases: [(&[&str], &str, bool); 5] = [
        (&["fe80::53%eth0", OLD], "", true),
        (&[OLD, "127.0.0.1"], "", true),
        (&["192.168.1.254", OLD, "fe80::53%eth0", "fd80::9"], "", true),
        (&["127.0.0.1"], "config: {nameservers: [10.66.0.11]}, ", true),
        (&["fe80::53%eth0"], "", false),
    ];
    for (servers, dns, others) in cases {
        let case = || -> Result<()> {
            guest.sh(&format!("rm -rf /var/lib/virtfleet /run/virtfleet {DROP_IN}"))?;
            let resolv_conf = format!("nameserver {}\n", servers.join("\nnameserver "));
            guest.write(RESOLV_CONF, &resolv_conf)?;
            let dns = format!("dns: {{manage: auto, {dns}probe: {{timeout: 1s}}}}\n");
            let settings = format!("apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n{dns}");
            guest.write("/etc/virtfleet/agent.yaml", &settings)?;
            guest.sh("/opt/virtfleet-agent apply dns 2>&1")?;
            guest.lookup("after.example")?;
            if others {
                let drop_in = guest.sh(&format!("cat {DROP_IN}"))?;
                ensure!(
                    drop_in.contains(&format!("\nresolvConf: {FOR_PODS}\n")),
                    "{drop_in}"
                );
                let file = guest.sh(&format!("cat {FOR_PODS}"))?;
                let lost = file.contains("fe80") || file.contains("nameserver 127.");
                ensure!(file.contains(OLD) && !lost, "{file}");
            } else {
                ensure!(!guest.path(DROP_IN).exists());
                let state = guest.sh("cat /run/virtfleet/state/dns.json")?;
                ensure!(state.contains("\"dns-kubelet-resolvconf\""), "{state}");
            }
            let (code, plan) = guest.try_sh("/opt/virtfleet-agent plan dns --detailed-exitcode 2>&1")?;
            ensure!(code == 0, "not at rest: {code}: {plan}");
            Ok(())
        };
        case().with_context(|| format!("{servers:?}")).unwrap();
    }
}

/// Makes a file immutable until its drop.
struct Immutable(String);

impl Immutable {
    fn new(path: String) -> Result<Self> {
        let words = ["+i", path.as_str()];
        Launch::new("chattr").args(words).text(Duration::from_secs(10))?;
        Ok(Self(path))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let launch = Launch::new("chattr").args(["-i", &self.0]);
        if let Err(error) = launch.text(Duration::from_secs(10)) {
            eprintln!("chattr -i {}: {error:#}", self.0);
        }
    }
}

#[test]
fn tier2_a_file_that_cannot_be_changed_is_left_alone() {
    let test = "tier2_a_file_that_cannot_be_changed_is_left_alone";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    let world = World::new().unwrap();
    world.fresh(None).unwrap();
    let path = world.guest.path(RESOLV_CONF).display().to_string();
    let fixed = Immutable::new(path).context("a filesystem for temporary files that knows chattr +i");
    let Some(fixed) = skip::need(TIER, test, fixed).unwrap() else {
        return;
    };
    let outcome = world.guest.stage(&order(DnsManage::Auto)).unwrap();
    assert!(outcome.points.is_empty(), "{outcome:?}");
    assert!(
        outcome
            .refusals
            .iter()
            .any(|one| one.starts_with("NotOurs") && one.contains("immutable")),
        "{outcome:?}"
    );
    world.as_before(None).unwrap();
    world.guest.lookup("immutable.example").unwrap();
    drop(fixed);
    let outcome = world.guest.stage(&order(DnsManage::Auto)).unwrap();
    assert!(outcome.error.is_none() && outcome.steps > 0, "{outcome:?}");
    world.is_new().unwrap();
}
