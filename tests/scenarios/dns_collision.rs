//! The collision of two caches, staged for real: DHCP hands out 169.254.20.10, where the infra
//! cluster's NodeLocal DNS answers; then the user cluster's own binds the same address in the
//! guest, and forwards to itself. Without the agent names stop resolving at that moment. With it
//! they never do, and it is seen before.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_agent_core::dns::{
    answers::{Purpose, QueryOutcome, Question, Transport},
    resolv,
};
use virtfleet_agent_host::dns::{Ask, ask, random_bytes};
use virtfleet_tests::{
    bins,
    dns::{Guest, NetNs, Resolver, Unbound, dhcp, needs, veth},
    skip,
    wait::eventually,
};

const TIER: u8 = 2;
const NODE_LOCAL: &str = "169.254.20.10";
/// The infra cluster's DNS where the VM reaches it without a detour.
const INFRA: &str = "10.77.0.53";
/// Another nameserver of the platform.
const OTHER: &str = "10.77.0.54";
const STATE: &str = "/run/virtfleet/state/dns.json";

/// An infra cluster's network with a guest in it.
struct World {
    // In the order of their drop.
    guest: Guest,
    _servers: Vec<Resolver>,
    inside: NetNs,
    infra: NetNs,
}

impl World {
    /// The guest has its lease.
    fn new(given: &str) -> Result<Self> {
        let (infra, inside) = (NetNs::new()?, NetNs::new()?);
        veth(
            (&infra, "vm0", &["10.77.0.1/24", "10.77.0.53/24"]),
            (&inside, "eth0", &[]),
        )?;
        infra.ip(&format!("address add {NODE_LOCAL}/32 dev lo"))?;
        let dns = Unbound::cluster(1)
            .server("local-zone: \"example.\" redirect")
            .server("local-data: \"example. 30 IN A 192.0.2.80\"");
        let range = ("10.77.0.100", "10.77.0.120");
        let servers = vec![
            dns.start(&infra, NODE_LOCAL)?,
            dns.start(&infra, INFRA)?,
            dhcp(
                &infra,
                "vm0",
                range,
                "10.77.0.1",
                given,
                "ns.svc.cluster.local,cluster.local",
            )?,
        ];
        let guest = Guest::new(&inside, &[("virtfleet-agent", bins::agent()?)])?;
        guest.write("/etc/resolv.conf", "")?;
        guest.dhclient()?;
        // dhclient's script empties the file before it writes it.
        eventually(Duration::from_secs(30), "what DHCP gives", || {
            let text = guest.resolv_conf()?;
            ensure!(text.contains(NODE_LOCAL), "{text:?}");
            Ok(())
        })?;
        guest.lookup("before.example")?;
        Ok(Self {
            guest,
            _servers: servers,
            inside,
            infra,
        })
    }

    /// The user cluster's cache starts: its interface, its address, and whom it forwards to is what
    /// the guest resolves by.
    fn start_cache(&self) -> Result<Resolver> {
        let conf = resolv::parse(&self.guest.resolv_conf()?);
        self.guest
            .interface("nodelocaldns", &format!("{NODE_LOCAL}/32"))?;
        let mut cache = Unbound::default();
        for nameserver in &conf.nameservers {
            cache = cache.forward(&nameserver.to_string());
        }
        cache.start(&self.inside, NODE_LOCAL)
    }

    fn settings(&self, dns: &str) -> Result<()> {
        let text = format!("apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\ndns: {dns}\n");
        self.guest.write("/etc/virtfleet/agent.yaml", &text)
    }

    fn agent(&self, words: &str) -> Result<String> {
        self.guest.sh(&format!("/opt/virtfleet-agent {words} 2>&1"))
    }

    fn state(&self) -> Result<Value> {
        let text = fs::read_to_string(self.guest.path(STATE)).context(STATE)?;
        Ok(serde_json::from_str(&text)?)
    }

    fn findings(&self) -> Result<Vec<String>> {
        let state = self.state()?;
        let all = state["findings"].as_array().context("findings")?;
        let subjects = all
            .iter()
            .map(|one| format!("{} {}", one["id"], one["subject"]["name"]));
        Ok(subjects.map(|one| one.replace('"', "")).collect())
    }

    /// What a pod gets that asks the cache.
    fn through_the_cache(&self, name: &str) -> Result<QueryOutcome> {
        let question = Question {
            nameserver: NODE_LOCAL.parse()?,
            zone: None,
            transport: Transport::Udp,
            purpose: Purpose::Named,
            name: name.to_owned(),
        };
        let answers = self.inside.run(|| {
            let how = Ask {
                timeout: Duration::from_secs(3),
                port: 53,
                random: &mut random_bytes,
            };
            ask(&[question], how)
        })?;
        Ok(answers[0].outcome.clone())
    }
}

fn needed() -> Result<()> {
    needs(&["unbound", "dnsmasq", "dhclient"])?;
    ensure!(
        Path::new("/sbin/dhclient-script").exists(),
        "/sbin/dhclient-script is missing"
    );
    bins::agent().map(drop)
}

#[test]
fn tier2_without_the_agent_the_second_cache_breaks_dns() {
    let test = "tier2_without_the_agent_the_second_cache_breaks_dns";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    let world = World::new(NODE_LOCAL).unwrap();
    let _cache = world.start_cache().unwrap();
    let error = world.guest.lookup("after.example").unwrap_err();
    println!("broken as in the field: {error:#}");
    let outcome = world.through_the_cache("pod.example").unwrap();
    assert!(
        !matches!(outcome, QueryOutcome::Addresses { .. } | QueryOutcome::NoSuchName),
        "{outcome:?}"
    );
}

/// The cluster's DNS dies after the guest was adopted, and starts again. DHCP hands out the
/// platform's own server, [`OTHER`], beside the address at which the user cluster's cache will
/// listen.
fn cluster_dns_dies(test: &str) -> Result<()> {
    let (infra, inside) = (NetNs::new()?, NetNs::new()?);
    veth(
        (&infra, "vm0", &["10.77.0.1/24", "10.77.0.53/24", "10.77.0.54/24"]),
        (&inside, "eth0", &[]),
    )?;
    infra.ip(&format!("address add {NODE_LOCAL}/32 dev lo"))?;
    let dns = Unbound::cluster(1)
        .server("local-zone: \"example.\" redirect")
        .server("local-data: \"example. 30 IN A 192.0.2.80\"");
    let range = ("10.77.0.100", "10.77.0.120");
    let given = format!("{NODE_LOCAL},{OTHER}");
    let servers = vec![
        dns.start(&infra, NODE_LOCAL)?,
        dns.start(&infra, OTHER)?,
        dhcp(
            &infra,
            "vm0",
            range,
            "10.77.0.1",
            &given,
            "ns.svc.cluster.local,cluster.local",
        )?,
    ];
    let cluster = dns.start(&infra, INFRA)?;
    let guest = Guest::new(&inside, &[("virtfleet-agent", bins::agent()?)])?;
    guest.write("/etc/resolv.conf", "")?;
    guest.dhclient()?;
    let world = World {
        guest,
        _servers: servers,
        inside,
        infra,
    };
    eventually(Duration::from_secs(30), "what DHCP gives", || {
        let written = world.guest.resolv_conf()?;
        ensure!(written.contains(OTHER), "{written:?}");
        Ok(())
    })?;
    world.settings(
        "{manage: auto, policy: ClusterFirst, cluster: {nameservers: [10.77.0.53], namespace: ns}, probe: {timeout: 2s}}",
    )?;
    let uses = |nameserver: &str, not: &str| -> Result<()> {
        let written = world.guest.resolv_conf()?;
        let line = |one: &str| written.contains(&format!("nameserver {one}\n"));
        ensure!(
            line(nameserver) && !line(not) && !line(NODE_LOCAL),
            "{written}\n{:#}",
            world.state()?
        );
        world.guest.lookup("host.example")
    };
    let critical = "dns-platform-fallback resolver".to_owned();
    world.agent("apply --stage dns")?;
    uses(INFRA, OTHER)?;
    ensure!(!world.findings()?.contains(&critical));

    drop(cluster);
    let begun = Instant::now();
    // As the timer and the watch do it: not at boot.
    world.agent("apply dns")?;
    uses(OTHER, INFRA).context("with the cluster's DNS dead")?;
    println!(
        "{test}: the platform's nameserver in use after {:?}",
        begun.elapsed()
    );
    let findings = world.findings()?;
    ensure!(findings.contains(&critical), "{findings:?}");
    let written = world.guest.resolv_conf()?;
    world.agent("apply dns")?;
    ensure!(world.guest.resolv_conf()? == written, "not at rest");

    // The user cluster's cache starts meanwhile, with the platform's nameserver behind it.
    let _cache = world.start_cache()?;
    let through = world.through_the_cache("pod.example")?;
    ensure!(through == QueryOutcome::Addresses { count: 1 }, "{through:?}");
    world.agent("apply dns")?;
    uses(OTHER, INFRA)?;

    let _cluster = dns.start(&world.infra, INFRA)?;
    world.agent("apply dns")?;
    uses(INFRA, OTHER).context("with the cluster's DNS back")?;
    let state = world.state()?;
    ensure!(state["standing"] == "verified", "{state:#}");
    ensure!(!world.findings()?.contains(&critical));
    Ok(())
}

#[test]
fn tier2_a_node_whose_cluster_dns_dies_goes_on_with_the_platforms_and_returns() {
    let test = "tier2_a_node_whose_cluster_dns_dies_goes_on_with_the_platforms_and_returns";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    cluster_dns_dies(test).unwrap();
}

/// The agent at work: the settings that put it right, and what DHCP gives.
fn never_breaks(given: &str, dns: &str) -> Result<()> {
    let world = World::new(given)?;
    let guest = &world.guest;
    let before = guest.resolv_conf()?;
    let set = |manage: &str| world.settings(&format!("{{manage: {manage}, {dns}}}"));

    // Foreseen, while nothing is wrong yet and nothing may be changed.
    set("report-only")?;
    world.agent("apply --stage dns")?;
    let findings = world.findings()?;
    let foreseen = format!("dns-collision-predicted {NODE_LOCAL}");
    ensure!(findings.contains(&foreseen), "{findings:?}");
    ensure!(guest.resolv_conf()? == before, "it was changed with report-only");

    // Put right, with lookups all along.
    let lookups = guest.watch("w%d.example")?;
    set("auto")?;
    let begun = Instant::now();
    let said = world.agent("apply --stage dns")?;
    let took = begun.elapsed();
    let text = guest.resolv_conf()?;
    ensure!(
        text.contains(INFRA) && !text.contains(NODE_LOCAL),
        "{text}\n{said}"
    );
    let state = world.state()?;
    ensure!(state["standing"] == "verified", "{state:#}");
    lookups.more(5)?;

    // The cache starts.
    let cache = world.start_cache()?;
    lookups.more(30)?;
    let through = world.through_the_cache("pod.example")?;
    ensure!(
        through == QueryOutcome::Addresses { count: 1 },
        "{through:?}: {}",
        cache.log()
    );
    guest.lookup("kubernetes.default.svc.cluster.local")?;

    // Another pass finds nothing to do; a new lease does not bring the address back.
    world.agent("apply --stage dns")?;
    ensure!(guest.resolv_conf()? == text, "not at rest");
    ensure!(world.state()?["standing"] == "verified", "{:#}", world.state()?);
    guest.stop_dhclient()?;
    guest.dhclient()?;
    ensure!(
        guest.resolv_conf()? == text,
        "the lease was taken: {}",
        guest.resolv_conf()?
    );
    lookups.more(5)?;
    let (good, failed) = lookups.so_far();
    ensure!(failed.is_empty(), "{failed:?} beside {good} that succeeded");
    println!("DHCP gave {given}, dns: {dns}: {good} lookups, none failed; applied and verified in {took:?}");
    Ok(())
}

#[test]
fn tier2_with_nameservers_of_its_own_dns_never_breaks() {
    let test = "tier2_with_nameservers_of_its_own_dns_never_breaks";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    never_breaks(NODE_LOCAL, "policy: None, config: {nameservers: [10.77.0.53]}").unwrap();
}

#[test]
fn tier2_with_the_infra_clusters_dns_first_dns_never_breaks() {
    let test = "tier2_with_the_infra_clusters_dns_first_dns_never_breaks";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    never_breaks(
        NODE_LOCAL,
        "policy: ClusterFirst, cluster: {nameservers: [10.77.0.53], namespace: ns}",
    )
    .unwrap();
}

#[test]
fn tier2_the_one_of_two_that_collides_is_left_out() {
    let test = "tier2_the_one_of_two_that_collides_is_left_out";
    let Some(()) = skip::need(TIER, test, needed()).unwrap() else {
        return;
    };
    never_breaks("169.254.20.10,10.77.0.53", "policy: Default").unwrap();
}
