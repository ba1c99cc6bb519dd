//! Guest DNS on a Debian that boots, with the real systemd-networkd, systemd-resolved and the
//! package's units: the first and the second boot, the collision, every policy, and what
//! `manage: off` restores.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    dns::{Resolver, Unbound},
    guest::Suite,
    machine::{INFRA, Machine, NODE_LOCAL, OTHER, Options, Root, Site, play},
    wait::eventually,
};

const SOON: Duration = Duration::from_secs(30);
/// The agent requests a reconcile run within a minute after a change of the nameservers.
const FORESEEN: Duration = Duration::from_secs(100);
/// More than the time for which the agent waits while no link is being configured.
const LATE_LEASE: Duration = Duration::from_secs(5);
/// All files of ours in the guest, each with what a rewrite would change.
const OURS: &str = "find /etc /var/lib/virtfleet -name 'zz-virtfleet*' -o -path '/var/lib/virtfleet/dns/*' | LC_ALL=C sort | xargs -r stat -c '%n %i %Y %Z'";

fn nameservers(state: &Value) -> Vec<&str> {
    let all = state["effective"]["nameservers"].as_array();
    all.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What resolvectl says, without what differs between versions: `<scope>: <words>` for each scope
/// that has any.
fn resolvectl(machine: &Machine, verb: &str) -> Result<Vec<String>> {
    let text = machine.sh(&format!("resolvectl --no-pager {verb}"))?;
    let lines = text.lines().map(|line| line.trim().to_owned());
    Ok(lines.filter(|line| !line.ends_with(':')).collect())
}

fn is_verified(machine: &Machine, wanted: &[&str]) -> Result<()> {
    let state = machine.dns()?;
    ensure!(state["standing"] == "verified", "{state:#}\n{}", machine.names());
    ensure!(nameservers(&state) == wanted, "{state:#}");
    let plan = machine.dns_plan()?;
    ensure!(plan["steps"] == serde_json::json!([]), "{plan:#}");
    Ok(())
}

/// First boot, second boot, then `manage: off`, which restores the configuration.
fn boots(root: &Root) -> Result<()> {
    let given = format!("{OTHER},{INFRA}");
    let mut site = Site::new(&given)?;
    let settings =
        "dns: {manage: auto, policy: None, config: {nameservers: [10.78.0.53], searches: [corp.test]}}";
    let options = Options::default().networkd().agent(settings);
    let mut machine = Machine::boot(root, site.inside(), options)?;

    let exactly = |machine: &Machine| -> Result<()> {
        machine.is_active("virtfleet-dns.service")?;
        is_verified(machine, &[INFRA])?;
        // What is kept for a bad day is what was asked for, and not what the stub's file adds.
        let good = machine.sh("cat /var/lib/virtfleet/dns/last-good.json")?;
        ensure!(good.contains("corp.test") && !good.contains("trust-ad"), "{good}");
        let (dns, domains) = (resolvectl(machine, "dns")?, resolvectl(machine, "domain")?);
        ensure!(dns == [format!("Global: {INFRA}")], "{dns:?}");
        let (global, links): (Vec<_>, Vec<_>) = domains.iter().partition(|line| line.starts_with("Global: "));
        let mut global: Vec<&str> = global.iter().flat_map(|line| line.split(' ').skip(1)).collect();
        global.sort_unstable();
        ensure!(global == ["corp.test", "~.", "~cluster.local"], "{domains:?}");
        // Those of the lease route nothing, since the link has no nameserver.
        let words = |line: &&String| {
            line.rsplit(": ")
                .next()
                .unwrap_or_default()
                .split(' ')
                .all(|word| word.starts_with('~'))
        };
        ensure!(links.iter().all(words), "{domains:?}");
        for name in ["host.example", "kubernetes.default.svc.cluster.local", "short"] {
            machine.lookup(name)?;
        }
        Ok(())
    };
    exactly(&machine).context("first boot")?;
    let journal = machine.journal("virtfleet-dns")?;
    println!("first boot: {journal}");
    let before = machine.sh(OURS)?;
    ensure!(
        before.contains("/etc/systemd/resolved.conf.d/zz-virtfleet.conf"),
        "{before}"
    );

    // The lease comes late, while `eth0` has neither a route nor an address.
    site.give_after(&given, LATE_LEASE)?;
    machine.reboot()?;
    exactly(&machine).context("second boot")?;
    let after = machine.sh(OURS)?;
    ensure!(before == after, "written again:\n{before}\n{after}");
    println!("second boot: {}", machine.journal("virtfleet-dns")?);

    // `manage: off` restores the configuration; lookups succeed all along.
    let resolved = machine.resolved()?;
    let lookups = machine.watch("off%d.example")?;
    machine.write(
        "/etc/virtfleet/agent.d/60-off.yaml",
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\ndns: {manage: \"off\"}\n",
    )?;
    machine.until_dns(SOON, "manage: off", |state| state["standing"] == "off")?;
    // systemd 252 may be without a lease for longer than ten lookups that fail at once.
    eventually(SOON, "names after the change", || {
        machine.lookup("restored.example")
    })?;
    lookups.more(10)?;
    let (good, failed) = lookups.so_far();
    // networkd of systemd 252 releases its lease and acquires another one: the link has no address
    // for a moment, and no nameserver is reachable.
    let lease_lost = machine.journal("systemd-networkd")?.contains("DHCP lease lost");
    let faults = machine.unexplained(&failed)?;
    ensure!(
        faults.is_empty() || lease_lost,
        "{faults:?} beside {good} that succeeded"
    );
    ensure!(
        !resolved.1 || machine.resolved()? == resolved,
        "systemd-resolved was restarted, and can reload"
    );
    lookups.more(30)?;
    let (more, still) = lookups.so_far();
    ensure!(
        still.len() == failed.len(),
        "{still:?} beside {more} that succeeded"
    );
    println!(
        "restored: {} lookups failed, lease released meanwhile: {lease_lost}",
        failed.len()
    );
    eventually(SOON, "the lease's domains", || {
        let domains = resolvectl(&machine, "domain")?;
        ensure!(
            domains.len() == 1 && domains[0].ends_with(": ns.svc.cluster.local cluster.local"),
            "{domains:?}"
        );
        Ok(())
    })?;
    let left = machine.sh(
        "find /etc -name '*virtfleet*' ! -path '/etc/virtfleet*' ! -path '/etc/systemd/system/*' -type f",
    )?;
    ensure!(left.is_empty(), "{left}");
    let dns = resolvectl(&machine, "dns")?;
    ensure!(
        dns.len() == 1 && dns[0].ends_with(&format!(": {OTHER} {INFRA}")),
        "{dns:?}"
    );
    Ok(())
}

#[test]
fn tier2_debian_13_boots_to_verified_dns_and_boots_again_without_a_change() {
    play(
        "tier2_debian_13_boots_to_verified_dns_and_boots_again_without_a_change",
        Suite::Trixie,
        boots,
    )
    .unwrap();
}

#[test]
fn tier2_debian_12_boots_to_verified_dns_and_boots_again_without_a_change() {
    play(
        "tier2_debian_12_boots_to_verified_dns_and_boots_again_without_a_change",
        Suite::Bookworm,
        boots,
    )
    .unwrap();
}

/// The user cluster's cache: its interface, its address, and whom it forwards to is what pods of
/// kubelet's would get.
fn start_cache(machine: &Machine, site: &Site) -> Result<Resolver> {
    let text = machine.read("/run/systemd/resolve/resolv.conf")?;
    machine.interface("nodelocaldns", &format!("{NODE_LOCAL}/32"))?;
    let mut cache = Unbound::default();
    for nameserver in text.lines().filter_map(|line| line.strip_prefix("nameserver ")) {
        cache = cache.forward(nameserver.trim());
    }
    cache.start(site.inside(), NODE_LOCAL)
}

#[test]
fn tier2_with_report_only_the_second_cache_breaks_dns_and_was_foreseen() {
    play(
        "tier2_with_report_only_the_second_cache_breaks_dns_and_was_foreseen",
        Suite::Trixie,
        |root| {
            let site = Site::new(NODE_LOCAL)?;
            let options = Options::default().networkd().agent("dns: {manage: report-only}");
            let machine = Machine::boot(root, site.inside(), options)?;
            // A boot that only reports does not wait for a lease.
            eventually(SOON, "names", || machine.lookup("before.example"))?;
            let foreseen = format!("dns-collision-predicted {NODE_LOCAL}");
            eventually(FORESEEN, "it is foreseen", || {
                let findings = machine.dns_findings()?;
                ensure!(findings.contains(&foreseen), "{findings:?}");
                Ok(())
            })?;
            let _cache = start_cache(&machine, &site)?;
            let broken = machine.lookup("after.example");
            ensure!(broken.is_err(), "it should be broken: {}", machine.names());
            machine.sh("virtfleet-agent apply --stage reconcile || true")?;
            let state = machine.dns()?;
            ensure!(state["standing"] != "verified", "{state:#}");
            let findings = machine.dns_findings()?;
            let now = format!("dns-collision {NODE_LOCAL}");
            ensure!(findings.contains(&now), "{findings:?}");
            Ok(())
        },
    )
    .unwrap();
}

/// The same with the agent: names resolve at every moment.
fn never_breaks(root: &Root, given: &str, dns: &str) -> Result<()> {
    let site = Site::new(given)?;
    let options = Options::default()
        .networkd()
        .agent(&format!("dns: {{manage: auto, {dns}}}"));
    let machine = Machine::boot(root, site.inside(), options)?;
    is_verified(&machine, &[INFRA])?;
    let kept_away = machine.dns_findings()?;
    ensure!(
        kept_away.iter().any(|one| one.ends_with(NODE_LOCAL)),
        "nothing is said of {NODE_LOCAL}: {kept_away:?}"
    );
    let lookups = machine.watch("w%d.example")?;
    let cache = start_cache(&machine, &site)?;
    lookups.more(20)?;
    // A renewed lease does not bring it back.
    machine.sh("networkctl renew eth0")?;
    lookups.more(20)?;
    machine.sh("virtfleet-agent apply --stage reconcile")?;
    is_verified(&machine, &[INFRA])?;
    machine.lookup("kubernetes.default.svc.cluster.local")?;
    let (good, failed) = lookups.so_far();
    ensure!(
        failed.is_empty(),
        "{failed:?} beside {good} that succeeded; the cache says {}",
        cache.log()
    );
    println!("DHCP gave {given}, dns: {dns}: {good} lookups, none failed");
    Ok(())
}

#[test]
fn tier2_with_nameservers_of_its_own_no_lookup_fails_when_the_cache_comes() {
    play(
        "tier2_with_nameservers_of_its_own_no_lookup_fails_when_the_cache_comes",
        Suite::Trixie,
        |root| {
            never_breaks(
                root,
                NODE_LOCAL,
                "policy: None, config: {nameservers: [10.78.0.53]}",
            )
        },
    )
    .unwrap();
}

#[test]
fn tier2_with_the_one_of_two_that_collides_left_out_no_lookup_fails() {
    play(
        "tier2_with_the_one_of_two_that_collides_left_out_no_lookup_fails",
        Suite::Trixie,
        |root| never_breaks(root, &format!("{NODE_LOCAL},{INFRA}"), "policy: Default"),
    )
    .unwrap();
}

#[test]
fn tier2_each_policy_is_planned_as_kubelet_would() {
    play(
        "tier2_each_policy_is_planned_as_kubelet_would",
        Suite::Trixie,
        |root| {
            let site = Site::new(&format!("{OTHER},{INFRA}"))?;
            let options = Options::default().networkd().agent("");
            let machine = Machine::boot(root, site.inside(), options)?;
            let leased = format!("grep -q {INFRA} /run/systemd/resolve/resolv.conf");
            machine.until_sh(SOON, &leased)?;
            let cluster = "cluster: {nameservers: [10.78.0.53], namespace: ns}";
            let search = ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"];
            let cases: [(&str, &[&str], &[&str]); 5] = [
                (
                    "policy: Default",
                    &[OTHER, INFRA],
                    &["ns.svc.cluster.local", "cluster.local"],
                ),
                (&format!("policy: ClusterFirst, {cluster}"), &[INFRA], &search),
                (
                    &format!("policy: ClusterFirstWithHostNet, {cluster}"),
                    &[INFRA],
                    &search,
                ),
                (
                    "policy: None, config: {nameservers: [10.78.0.54], searches: [corp.test]}",
                    &[OTHER],
                    &["corp.test"],
                ),
                (
                    "policy: ClusterFirst",
                    &[OTHER, INFRA],
                    &["ns.svc.cluster.local", "cluster.local"],
                ),
            ];
            for (dns, nameservers, searches) in cases {
                let case = || -> Result<()> {
                    let head = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n";
                    machine.write(
                        "/root/policy.yaml",
                        &format!("{head}dns: {{manage: auto, {dns}}}\n"),
                    )?;
                    let (code, text) = machine.agent("--config /root/policy.yaml plan dns -o json")?;
                    let plan: Value =
                        serde_json::from_str(&text).with_context(|| format!("{code}: {text:?}"))?;
                    ensure!(plan["owner"] == "resolved", "{plan:#}");
                    ensure!(
                        plan["asked"]["nameservers"] == serde_json::json!(nameservers),
                        "{plan:#}"
                    );
                    ensure!(
                        plan["asked"]["searches"] == serde_json::json!(searches),
                        "{plan:#}"
                    );
                    // What is planned is done and answers; then nothing is left to do.
                    machine.sh("virtfleet-agent --config /root/policy.yaml apply dns")?;
                    machine.lookup("host.example")?;
                    let (code, text) = machine.agent("--config /root/policy.yaml plan dns -o json")?;
                    let plan: Value = serde_json::from_str(&text)?;
                    ensure!(
                        code == 0 && plan["steps"] == serde_json::json!([]),
                        "{code}: {plan:#}"
                    );
                    Ok(())
                };
                case().with_context(|| dns.to_owned())?;
            }
            Ok(())
        },
    )
    .unwrap();
}
