//! What can go wrong with the real systemd-networkd and systemd-resolved: a crash between any two
//! steps, nameservers that stop answering right after they were written, and what networkd does to
//! routes of others when its links are configured again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    bins,
    dns::Order,
    guest::Suite,
    machine::{INFRA, Machine, NODE_LOCAL, OTHER, Options, Root, Site, play},
    skip,
    wait::eventually,
};
use virtfleet_wire::settings::{DnsConfig, DnsManage, DnsPolicy, DnsSettings};

const SOON: Duration = Duration::from_secs(30);
/// How long a link that is configured again may have no address (systemd 252 gives its lease back).
const CONFIGURED: Duration = Duration::from_secs(15);

fn order(manage: DnsManage) -> Order {
    Order {
        dns: DnsSettings {
            manage,
            policy: DnsPolicy::None,
            config: DnsConfig {
                nameservers: vec![INFRA.to_owned()],
                ..DnsConfig::default()
            },
            ..DnsSettings::default()
        },
        ..Order::default()
    }
}

/// What systemd-resolved resolves by.
fn in_use(machine: &Machine) -> Result<Vec<String>> {
    let text = machine.read("/run/systemd/resolve/resolv.conf")?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("nameserver "));
    Ok(lines.map(str::to_owned).collect())
}

fn uses(machine: &Machine, nameserver: &str) -> Result<()> {
    eventually(CONFIGURED, "the nameservers in use", || {
        let now = in_use(machine)?;
        ensure!(
            now == [nameserver],
            "{now:?} instead of {nameserver}: {}",
            machine.names()
        );
        Ok(())
    })
}

fn resolves(machine: &Machine, name: &str) -> Result<()> {
    eventually(CONFIGURED, name, || machine.lookup(name))
}

/// A change that is killed at each point in turn, with names after each; `from` and `to` are in use
/// before and after it.
fn kills(machine: &Machine, manage: DnsManage, back: DnsManage, from: &str, to: &str) -> Result<usize> {
    let mut point = 1;
    loop {
        uses(machine, from)?;
        let killed = machine.stage(&Order {
            kill_at: Some(point),
            ..order(manage)
        })?;
        let at = killed.points.last().cloned().unwrap_or_default();
        let after = || -> Result<()> {
            resolves(machine, &format!("killed{point}.example"))?;
            if !killed.killed {
                return uses(machine, to);
            }
            if point % 2 == 0 {
                let recovered = machine.stage(&Order {
                    recover_only: true,
                    ..order(manage)
                })?;
                ensure!(recovered.error.is_none(), "{recovered:?}");
                resolves(machine, &format!("recovered{point}.example"))?;
                if recovered.recovered.is_some() {
                    uses(machine, from)?;
                }
            }
            let done = machine.stage(&order(manage))?;
            ensure!(!done.killed && done.error.is_none(), "{done:?}");
            resolves(machine, &format!("done{point}.example"))?;
            uses(machine, to)?;
            let left = machine.sh("ls -A /var/lib/virtfleet/dns; find /etc -name '.virtfleet-*'")?;
            ensure!(
                !left.contains("undo.json") && !left.contains(".virtfleet-"),
                "{left}"
            );
            Ok(())
        };
        after().with_context(|| format!("{manage:?}, killed at point {point} ({at})"))?;
        let undone = machine.stage(&order(back))?;
        ensure!(undone.error.is_none(), "{undone:?}");
        if !killed.killed {
            return Ok(point - 1);
        }
        point += 1;
    }
}

fn crashes(root: &Root) -> Result<()> {
    let site = Site::new(OTHER)?;
    let options = Options::default()
        .networkd()
        .program("dns-stage", bins::dns_stage()?);
    let machine = Machine::boot(root, site.inside(), options)?;
    resolves(&machine, "before.example")?;
    let written = kills(&machine, DnsManage::Auto, DnsManage::Off, OTHER, INFRA)?;
    let done = machine.stage(&order(DnsManage::Auto))?;
    ensure!(done.error.is_none(), "{done:?}");
    let restored = kills(&machine, DnsManage::Off, DnsManage::Auto, INFRA, OTHER)?;
    println!(
        "killed at {written} points while writing and {restored} while restoring; names resolved after each"
    );
    ensure!(written >= 6 && restored >= 6, "{written} and {restored} points");
    Ok(())
}

#[test]
fn tier2_a_crash_between_any_two_steps_leaves_names_on_debian_13() {
    play(
        "tier2_a_crash_between_any_two_steps_leaves_names_on_debian_13",
        Suite::Trixie,
        crashes,
    )
    .unwrap();
}

#[test]
fn tier2_a_crash_between_any_two_steps_leaves_names_on_debian_12() {
    play(
        "tier2_a_crash_between_any_two_steps_leaves_names_on_debian_12",
        Suite::Bookworm,
        crashes,
    )
    .unwrap();
}

/// As soon as the file exists, the nameserver that it names is unreachable.
const LOSE: &str = "(trap 'ip route del blackhole 10.78.0.53/32; rm /run/lose; exit' TERM
until [ -e /etc/systemd/network/10-eth0.network.d/zz-virtfleet.conf ]; do sleep 0.01; done
while :; do ip route replace blackhole 10.78.0.53/32; sleep 0.02; done) >/dev/null 2>&1 & echo $! >/run/lose";
/// Ends that. The trap runs once no `ip` of the loop does.
const FIND: &str =
    "kill $(cat /run/lose); while [ -e /run/lose ]; do sleep 0.01; done; ! ip route show | grep blackhole";

#[test]
fn tier2_what_stops_answering_once_it_is_written_is_put_back() {
    let test = "tier2_what_stops_answering_once_it_is_written_is_put_back";
    play(test, Suite::Trixie, |root| {
        let site = Site::new(OTHER)?;
        let settings = "dns: {manage: report-only, policy: None, config: {nameservers: [10.78.0.53]}}";
        let options = Options::default().networkd().agent(settings);
        let machine = Machine::boot(root, site.inside(), options)?;
        uses(&machine, OTHER)?;
        machine.sh(LOSE)?;
        let (code, said) = machine.agent("apply dns -o json")?;
        machine.sh(FIND)?;
        ensure!(code != 0, "{said}");
        resolves(&machine, "back.example")?;
        uses(&machine, OTHER)?;
        let state: Value = serde_json::from_str(&said)?;
        ensure!(state["rollbacks"] == 1 && state["error"].is_string(), "{state:#}");
        let findings = state["findings"].as_array().context("findings")?;
        ensure!(
            findings.iter().any(|one| one["id"] == "dns-rolled-back"),
            "{state:#}"
        );
        println!("{}: {}", state["standing"], state["error"]);
        let left = machine.sh("find /etc -name 'zz-virtfleet*'; ls -A /var/lib/virtfleet/dns")?;
        ensure!(
            !left.contains("zz-virtfleet") && !left.contains("undo.json"),
            "{left}"
        );
        // Once it answers it is taken up.
        machine.sh("virtfleet-agent apply dns")?;
        uses(&machine, INFRA)
    })
    .unwrap();
}

/// What others have on a link, as container networks and keepalived do, by a word for each.
const THEIRS: &str = "ip route add 10.200.1.0/24 via 10.78.0.1 proto static
ip route add 10.200.2.0/24 via 10.78.0.1 proto bird
ip rule add from 10.200.0.0/16 table 200 pref 100
ip address add 10.99.0.1/32 dev eth0";
const LEFT: &str = "ip route show | grep -q '^10.200.1.0/24' && echo static
ip route show | grep -q '^10.200.2.0/24' && echo bird
ip rule show | grep -q 'lookup 200' && echo rule
ip address show dev eth0 | grep -q '10.99.0.1/32' && echo address
true";
const LEAVE: &str = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n";

/// Returns what is left of foreign configuration after `networkctl reload` with a changed drop-in,
/// and whether networkd released the lease meanwhile.
fn reloaded(root: &Root, leave: bool) -> Result<(String, bool)> {
    let site = Site::new(OTHER)?;
    let mut options = Options::default().networkd();
    if leave {
        options = options.file("/etc/systemd/networkd.conf.d/50-test.conf", LEAVE);
    }
    let machine = Machine::boot(root, site.inside(), options)?;
    machine.until_sh(SOON, "ip -4 route show default | grep -q dhcp")?;
    machine.sh(THEIRS)?;
    let all = machine.sh(LEFT)?;
    ensure!(all.split_whitespace().count() == 4, "{all}");
    machine.write(
        "/etc/systemd/network/10-eth0.network.d/50-test.conf",
        "[DHCPv4]\nUseDNS=no\n",
    )?;
    let acquired = "journalctl --boot --no-pager --unit=systemd-networkd | grep -c 'DHCPv4 address'";
    let before = machine.sh(acquired)?;
    machine.sh("networkctl reload")?;
    machine.until_sh(SOON, &format!("[ $({acquired}) -gt {} ]", before.trim()))?;
    resolves(&machine, "after.example").err();
    let left = machine.sh(LEFT)?.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok((
        left,
        machine.journal("systemd-networkd")?.contains("DHCP lease lost"),
    ))
}

#[test]
fn tier2_what_networkd_leaves_of_others_when_it_reloads() {
    let test = "tier2_what_networkd_leaves_of_others_when_it_reloads";
    // What networkd itself does; what we promise on such a machine is shown in every run.
    if skip::deferred(2, test, "make container-soak") {
        return;
    }
    // docs/dns-reference.md says so; a systemd that does otherwise should be known.
    for (suite, leave, wanted) in [
        (Suite::Trixie, false, ("", false)),
        (Suite::Trixie, true, ("static bird rule", false)),
        (Suite::Bookworm, false, ("", true)),
        (Suite::Bookworm, true, ("rule", true)),
    ] {
        play(test, suite, |root| {
            let (left, lost) = reloaded(root, leave)?;
            ensure!(
                (left.as_str(), lost) == wanted,
                "{}, ManageForeign…=no {leave}: left {left:?}, lease released {lost}",
                suite.name()
            );
            Ok(())
        })
        .unwrap();
    }
}

/// What stands in for kubelet: a process of its name.
const KUBELET: &str = "[Unit]\nDescription=kubelet\n[Service]\nExecStart=/usr/bin/kubelet infinity\n[Install]\nWantedBy=multi-user.target\n";

/// On a node that works, a pass takes the collision away and touches nothing of the container
/// network's.
fn live(root: &Root) -> Result<()> {
    let site = Site::new(&format!("{NODE_LOCAL},{OTHER}"))?;
    let options = Options::default()
        .networkd()
        .agent("dns: {manage: report-only}")
        .program("kubelet", skip::program("sleep")?)
        .file("/etc/systemd/system/kubelet.service", KUBELET)
        .enable("kubelet.service");
    let mut machine = Machine::boot(root, site.inside(), options)?;
    uses_all(&machine, &[NODE_LOCAL, OTHER])?;
    machine.sh(THEIRS)?;
    let resolved = machine.resolved()?;
    let lookups = machine.watch("live%d.example")?;
    let auto = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\ndns: {manage: auto}\n";
    machine.write("/etc/virtfleet/agent.d/60-auto.yaml", auto)?;
    let verified = |state: &Value| state["standing"] == "verified" && state["manage"] == "auto";
    machine.until_dns(SOON, "DNS put right", verified)?;
    uses(&machine, OTHER)?;
    let left = machine.sh(LEFT)?;
    ensure!(left.split_whitespace().count() == 4, "left of others': {left:?}");
    // A lease that is renewed brings nothing back.
    machine.sh("networkctl renew eth0")?;
    lookups.more(20)?;
    uses(&machine, OTHER)?;
    let (good, failed) = lookups.so_far();
    println!("{} of {good} lookups failed", failed.len());
    let faults = machine.unexplained(&failed)?;
    ensure!(faults.is_empty(), "{faults:?} beside {good} that succeeded");
    ensure!(
        !resolved.1 || machine.resolved()? == resolved,
        "systemd-resolved was restarted, and can reload"
    );
    // A process that entered from outside may hold up the end of the container.
    drop(lookups);
    machine.reboot()?;
    uses(&machine, OTHER)?;
    eventually(CONFIGURED, "nothing is left to do", || {
        let plan = machine.dns_plan()?;
        ensure!(plan["steps"] == serde_json::json!([]), "{plan:#}");
        Ok(())
    })
}

fn uses_all(machine: &Machine, nameservers: &[&str]) -> Result<()> {
    eventually(CONFIGURED, "the nameservers in use", || {
        let now = in_use(machine)?;
        ensure!(now == nameservers, "{now:?}");
        Ok(())
    })
}

#[test]
fn tier2_on_a_node_that_works_nothing_of_others_is_dropped() {
    let test = "tier2_on_a_node_that_works_nothing_of_others_is_dropped";
    for suite in [Suite::Trixie, Suite::Bookworm] {
        play(test, suite, live).unwrap();
    }
}
