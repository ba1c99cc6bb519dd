//! The Debian package in guests that run: it comes, serves what an agent outside its unit would,
//! and goes.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    bins,
    guest::{Guest as Machine, Suite, play},
    parts,
    sim::Guest,
    skip,
    stage::{STAGE_TIMEOUT, Stage},
    wait,
};

use crate::guest_lifecycle::{kit, node_exporter, pods};

/// Families whose samples are of the process that serves them, or of what it has seen since its
/// start; and states that tasks are in for a moment.
const OWN: [&str; 9] = [
    "node_exporter_build_info",
    "node_processes_",
    "node_procs_",
    "node_tcp_connection_states",
    "process_",
    "virtfleet_agent_",
    "virtfleet_guest_pauses_total",
    "virtfleet_guest_pause_seconds_total",
    "virtfleet_guest_clock_steps_total",
];

/// Mounts that options of a unit have been known to hide or change.
const MOUNTS: &str = "set -e
truncate -s 16M /var/tmp/image; mkfs.ext4 -q -F /var/tmp/image
mkdir -p /srv/readonly /tmp/scratch /home/data
mount -o ro,loop /var/tmp/image /srv/readonly
mount -t tmpfs -o size=8m tmpfs /tmp/scratch
truncate -s 16M /var/tmp/home; mkfs.ext4 -q -F /var/tmp/home
mount -o loop /var/tmp/home /home/data";
/// What only root may read is no matter of the sandbox.
const AS_ITS_USER: &str =
    "cd / && setpriv --reuid virtfleet --regid virtfleet --init-groups /usr/bin/virtfleet-agent metrics";
const LATER: &str = "set -e
mkdir -p /srv/later; truncate -s 16M /var/tmp/later; mkfs.ext4 -q -F /var/tmp/later; mount -o loop /var/tmp/later /srv/later";

#[test]
fn tier4_the_package_serves_debian_13_what_its_sandbox_must_not_hide() {
    comes_and_goes(
        "tier4_the_package_serves_debian_13_what_its_sandbox_must_not_hide",
        Suite::Trixie,
    );
}

#[test]
fn tier4_the_package_serves_debian_12_what_its_sandbox_must_not_hide() {
    let test = "tier4_the_package_serves_debian_12_what_its_sandbox_must_not_hide";
    if !skip::deferred(4, test, kit::SOAK) {
        comes_and_goes(test, Suite::Bookworm);
    }
}

#[expect(clippy::unwrap_used, reason = "with CI=true a skip fails the test")]
fn comes_and_goes(test: &str, suite: Suite) {
    let there = bins::package().and_then(|package| {
        virtfleet_tests::guest::needs(suite)?;
        Ok((package, parts::node_exporter()?))
    });
    let Some((package, exporter)) = skip::need(4, test, there).unwrap() else {
        return;
    };
    play(test, |scene| {
        let (stage, who) = kit::stage()?;
        let machine = kit::booted(scene, &stage, &who, suite, |folder| {
            fs::copy(&package, folder.join("agent.deb"))?;
            fs::copy(&exporter, folder.join("node_exporter"))?;
            Ok(())
        })?;
        machine.run(MOUNTS)?;
        comes(&machine)?;
        machine.run(kit::CERTIFICATES)?;
        kit::page_until(&stage, &who, "/metrics", "an agent with certificates", |_| true)?;
        machine.run(LATER)?;
        let exposure = machine.run(
            "systemd-analyze security --no-pager virtfleet-agent.service | sed -n 's/.*Overall exposure.*: \\([0-9.]*\\) .*/\\1/p'",
        )?;
        let exposure: f64 = exposure.parse().context(exposure)?;
        eprintln!("systemd-analyze security on {}: {exposure}", suite.name());
        ensure!(exposure < 2.8, "{exposure}");
        // Some values are of a moment, and may be 0 in one page only.
        wait::eventually(STAGE_TIMEOUT, "the same inside and outside", || {
            same_inside_and_outside(&stage, &who, &machine)
        })?;
        node_exporter::says_the_same(&machine)?;
        pods::that_is_killed_is_reported(&stage, &who, &machine)?;
        goes(&machine)
    });
}

/// When dpkg returns, provisioning has run, and the agent waits for its certificates.
fn comes(machine: &Machine) -> Result<()> {
    machine.run("dpkg -i /root/virtfleet/agent.deb")?;
    machine.run(
        "set -e; getent passwd virtfleet; systemctl is-active virtfleet-provision virtfleet-dns; \
         test -s /run/virtfleet/state/guest.json; test -s /run/virtfleet/state/identity.json; \
         systemctl is-enabled virtfleet-agent virtfleet-provision virtfleet-dns virtfleet-reconcile.path \
         virtfleet-reconcile.timer virtfleet-settings.path virtfleet-agent.socket; \
         test \"$(systemctl show -P Result virtfleet-provision)\" = success",
    )?;
    machine.run_until(
        "test \"$(systemctl show -P ExecMainStatus virtfleet-agent)\" = 78",
        "an agent that gives up without certificates",
    )
}

/// What the unit serves is what the same binary prints as the same user without any sandbox.
fn same_inside_and_outside(stage: &Stage, who: &Guest, machine: &Machine) -> Result<()> {
    let inside = kit::page(stage, who, "/metrics")?;
    let outside = machine.run(AS_ITS_USER)?;
    let again = kit::page(stage, who, "/metrics")?;
    for mount in ["/srv/readonly", "/tmp/scratch", "/home/data", "/srv/later"] {
        ensure!(
            outside.contains(&format!("mountpoint=\"{mount}\"")),
            "{mount} is not on the page:\n{outside}"
        );
    }
    let counters = |page: &str| -> Vec<String> {
        let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines
            .filter_map(|line| line.strip_suffix(" counter"))
            .map(str::to_owned)
            .collect()
    };
    let counters = counters(&outside);
    let (inside, again, outside) = (
        kit::samples(&inside),
        kit::samples(&again),
        kit::samples(&outside),
    );
    // Services come and go while the three pages are made; their slice stays.
    let own = |name: &str| {
        OWN.iter().any(|prefix| name.starts_with(prefix)) || name.contains("cgroup=\"system.slice/")
    };
    let mut wrong = Vec::new();
    for name in inside
        .keys()
        .filter(|name| !own(name) && !outside.contains_key(*name))
    {
        wrong.push(format!("only inside: {name}"));
    }
    for (name, value) in outside.iter().filter(|(name, _)| !own(name)) {
        let (Some(first), Some(last)) = (inside.get(name), again.get(name)) else {
            wrong.push(format!("only outside: {name}"));
            continue;
        };
        let family = name.split('{').next().unwrap_or_default();
        let fixed = [
            "_readonly",
            "_size_bytes",
            "_files",
            "_device_error",
            "_info",
            "_total_bytes",
            "MemTotal_bytes",
        ];
        let numbers = [first, value, last].map(|text| text.parse::<f64>().unwrap_or(f64::NAN));
        if counters.iter().any(|counter| counter == family) {
            // Idle time may go back a little: the kernel says so itself.
            let slack = if family == "node_cpu_seconds_total" {
                0.5
            } else {
                0.0
            };
            if numbers[1] + slack < numbers[0] || numbers[2] + slack < numbers[1] {
                wrong.push(format!(
                    "{name}: {first} inside, then {value} outside, then {last} inside"
                ));
            }
        } else if fixed.iter().any(|end| family.ends_with(end)) && (first != value || last != value) {
            wrong.push(format!("{name}: {first} and {last} inside, {value} outside"));
        } else if (numbers[0] == 0.0 && numbers[2] == 0.0 && numbers[1] > 0.0)
            || numbers[0].is_nan() != numbers[1].is_nan()
        {
            wrong.push(format!("{name}: blank inside, {value} outside"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    eprintln!("{} samples outside, {} inside", outside.len(), inside.len());
    Ok(())
}

/// Removing leaves settings; purging leaves what others put there, and the journal of destructive
/// steps.
fn goes(machine: &Machine) -> Result<()> {
    machine.run(
        "mkdir -p /var/lib/virtfleet/journal /var/lib/virtfleet/other; touch /var/lib/virtfleet/journal/kept",
    )?;
    machine.run("dpkg -r virtfleet-agent")?;
    machine.run(
        "set -e; ! systemctl is-active virtfleet-agent virtfleet-provision virtfleet-dns virtfleet-reconcile.path \
         virtfleet-reconcile.timer virtfleet-settings.path virtfleet-agent.socket; \
         test ! -e /usr/bin/virtfleet-agent; test -e /etc/virtfleet/agent.yaml; test -e /etc/virtfleet/agent.d/10-tls.yaml",
    )?;
    machine.run("dpkg -P virtfleet-agent")?;
    machine.run(
        "set -e; test ! -e /run/virtfleet; test ! -e /etc/virtfleet/agent.yaml; test -e /etc/virtfleet/agent.d/10-tls.yaml; \
         test \"$(ls /var/lib/virtfleet)\" = journal; test -e /var/lib/virtfleet/journal/kept; \
         test -z \"$(find /etc/systemd/system -lname '*virtfleet*')\"; \
         test -z \"$(systemctl list-units --all --plain --no-legend 'virtfleet*')\"",
    )
    .map(drop)
}
