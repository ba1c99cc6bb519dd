//! Time from boot to verified DNS: a Debian with networkd and resolved in a container, with DHCP
//! and a working first nameserver. Three kinds of boot alternate: with the agent and all its files
//! to write, with the agent and nothing to write, and without the agent.
//!
//! `bench-dns [BOOTS]`. The times are those that systemd and the agent report.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use virtfleet_tests::{
    guest::Suite,
    machine::{INFRA, Machine, OTHER, Options, Site, needs},
    measure::Table,
};

const BOOTS: usize = 7;
/// A unit that completes when a name resolves through the system resolver; the same in every
/// measured boot.
const FIRST_NAME: &str = "[Unit]\nDescription=The first name that resolves\nDefaultDependencies=no\nAfter=systemd-resolved.service\n[Service]\n\
     Type=oneshot\nEnvironment=RES_OPTIONS=timeout:1\nExecStart=/bin/sh -c 'until getent ahostsv4 first.example >/dev/null; do sleep 0.02; done'\n\
     [Install]\nWantedBy=multi-user.target\n";
/// A unit that requires network-online.target.
const ONLINE: &str = "[Unit]\nDescription=Waits for the network\nWants=network-online.target\nAfter=network-online.target\n[Service]\nType=oneshot\n\
     ExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

/// Times of one boot, measured from the start of its first process.
#[derive(Default, Clone, Copy)]
struct Boot {
    lease: Duration,
    first_name: Duration,
    online: Duration,
    service: Duration,
    verified: Duration,
}

impl Boot {
    fn of(machine: &Machine, agent: bool) -> Result<Self> {
        let start = property(machine, "", "UserspaceTimestampMonotonic")?;
        let since = |time: Duration| time.saturating_sub(start);
        let active = |unit: &str| property(machine, unit, "ActiveEnterTimestampMonotonic").map(since);
        let exited = property(machine, "first-name", "ExecMainExitTimestampMonotonic").map(since)?;
        let mut boot = Self {
            lease: since(lease(machine)?),
            first_name: exited,
            online: active("network-online.target")?,
            ..Self::default()
        };
        if agent {
            let unit = "virtfleet-dns.service";
            let began = property(machine, unit, "InactiveExitTimestampMonotonic")?;
            let ended = property(machine, unit, "ActiveEnterTimestampMonotonic")?;
            boot.service = ended.saturating_sub(began);
            let state = machine.dns()?;
            anyhow::ensure!(state["standing"] == "verified", "{state:#}\n{}", machine.names());
            let at = state["verifiedAtBoottimeMs"]
                .as_u64()
                .context("verifiedAtBoottimeMs")?;
            boot.verified = since(Duration::from_millis(at).saturating_sub(asleep()?));
        }
        Ok(boot)
    }
}

/// Offset between the boot-time clock and the monotonic clock, which stops while the machine
/// sleeps.
fn asleep() -> Result<Duration> {
    let now = |clock| clock_gettime(clock).map(Duration::from);
    Ok(now(ClockId::CLOCK_BOOTTIME)?.saturating_sub(now(ClockId::CLOCK_MONOTONIC)?))
}

fn property(machine: &Machine, unit: &str, name: &str) -> Result<Duration> {
    let text = machine.sh(&format!("systemctl show -P {name} {unit}"))?;
    let micros: u64 = text
        .trim()
        .parse()
        .with_context(|| format!("{name} of {unit:?}: {text:?}"))?;
    anyhow::ensure!(micros > 0, "{unit} has no {name}");
    Ok(Duration::from_micros(micros))
}

/// Time of networkd's log message about the first lease of the boot.
fn lease(machine: &Machine) -> Result<Duration> {
    let text = machine.sh("journalctl --no-pager --boot --unit=systemd-networkd --output=json")?;
    for line in text.lines() {
        let entry: Value = serde_json::from_str(line)?;
        if entry["MESSAGE"]
            .as_str()
            .is_some_and(|message| message.contains("DHCPv4 address"))
        {
            let time = entry["__MONOTONIC_TIMESTAMP"].as_str().context("no time")?;
            return Ok(Duration::from_micros(time.parse()?));
        }
    }
    anyhow::bail!("networkd got no lease")
}

fn median(boots: &[Boot], figure: impl Fn(&Boot) -> Duration) -> Duration {
    let mut all: Vec<Duration> = boots.iter().map(figure).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn main() -> Result<()> {
    let count = std::env::args().nth(1).map_or(Ok(BOOTS), |word| word.parse())?;
    let root = needs(Suite::Trixie)?;
    let site = Site::new(&format!("{OTHER},{INFRA}"))?;
    let plain = Options::default()
        .networkd()
        .file("/etc/systemd/system/first-name.service", FIRST_NAME)
        .file("/etc/systemd/system/online.service", ONLINE)
        .enable("first-name.service")
        .enable("online.service")
        .enable("systemd-networkd-wait-online.service");
    let settings = format!("dns: {{manage: auto, policy: None, config: {{nameservers: [{INFRA}]}}}}");
    let agent = plain.clone().agent(&settings);

    let (mut without, mut writes, mut rests) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..count {
        eprintln!("bench: boots {} of {count}", number + 1);
        // The second boot is measured, as in the other cases: a first boot does more than DNS.
        let mut machine = Machine::boot(&root, site.inside(), plain.clone())?;
        machine.reboot()?;
        without.push(Boot::of(&machine, false)?);
        drop(machine);
        let mut machine = Machine::boot(&root, site.inside(), agent.clone())?;
        machine.reboot()?;
        rests.push(Boot::of(&machine, true)?);
        machine.sh("rm -r /etc/systemd/resolved.conf.d /etc/systemd/network/*.d /var/lib/virtfleet/dns")?;
        machine.reboot()?;
        writes.push(Boot::of(&machine, true)?);
    }
    report(&without, &rests, &writes);
    Ok(())
}

fn report(without: &[Boot], rests: &[Boot], writes: &[Boot]) {
    let mut table = Table::new(&["median", "without the agent", "nothing to write", "all to write"]);
    let mut row = |what: &str, figure: &dyn Fn(&Boot) -> Duration, also: bool| {
        let cell = |boots: &[Boot]| format!("{} ms", median(boots, figure).as_millis());
        let first = if also { cell(without) } else { "-".to_owned() };
        table.row(&[what, &first, &cell(rests), &cell(writes)]);
    };
    row("boot to the lease", &|boot| boot.lease, true);
    row(
        "boot to the first name that resolves",
        &|boot| boot.first_name,
        true,
    );
    row("boot to network-online.target", &|boot| boot.online, true);
    row("boot to verified DNS", &|boot| boot.verified, false);
    row(
        "lease to verified DNS (goal: at most 1 s)",
        &|boot| boot.verified.saturating_sub(boot.lease),
        false,
    );
    row("virtfleet-dns.service", &|boot| boot.service, false);
    let cpus = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{} boots each of Debian 13 in a container, load {}",
        without.len(),
        cpus.split(' ').next().unwrap_or_default()
    );
    print!("{}", table.render());
    let base = median(without, |boot| boot.first_name).as_secs_f64();
    for (what, boots) in [("nothing to write", rests), ("all to write", writes)] {
        let ratio = median(boots, |boot| boot.verified).as_secs_f64() / base;
        println!("boot to verified DNS, {what}: {ratio:.2} of the time to the first name without the agent");
    }
}
