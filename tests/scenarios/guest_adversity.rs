//! What befalls a guest in its life, and what its agent and the collector make of it: pauses,
//! kills, wrong clocks, full disks, tight memory, twins, and a Prometheus.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    guest::{Guest as Machine, MIB, Scene, UUID, play},
    parts, prometheus, real,
    scrape::Client,
    sim::Guest,
    skip,
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait::{PROMPT, eventually, measure},
};

/// What the collector shows within seconds, with room for an emulated guest on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// Interval and timeout of pulls. Each takes an emulated guest 0.2 seconds of CPU time, and on a
/// busy machine up to a second.
const PULLS: Beat = Beat {
    interval: Duration::from_secs(2),
    timeout: Duration::from_secs(2),
};
/// The command that runs what takes minutes.
const SOAK: &str = "make guest-soak";
const MAIN_PID: &str = "systemctl show -P MainPID virtfleet-agent";

/// A stage with one guest, whose agent the collector pulls.
fn one_guest(scene: &Scene) -> Result<(Stage, Guest, Machine)> {
    let stage = Stage::small_at(PULLS)?;
    let (who, machine) = settle(scene, &stage, 1, UUID)?;
    real::until_identified(&stage, &who)?;
    Ok((stage, who, machine))
}

fn settle(scene: &Scene, stage: &Stage, number: u8, uuid: &str) -> Result<(Guest, Machine)> {
    let who = real::tenant(stage, number, uuid)?;
    real::place(stage, &who, &stage.plan.hosts[0].name)?;
    let machine = real::installed(scene, &real::vm(&who))?;
    real::begin(&machine, stage, &who)?;
    Ok((who, machine))
}

/// What the agent answers over a connection of its own.
fn ask(stage: &Stage, who: &Guest, path: &str) -> Result<String> {
    let client = stage.authority.client_config(&stage.authority.collector()?)?;
    let answer = Client::tls(who.address, client, SOON)?.get(path)?;
    Ok(answer.ok()?.text()?.to_owned())
}

fn report(stage: &Stage, who: &Guest) -> Result<Value> {
    serde_json::from_str(&ask(stage, who, "/v1/report")?).context("the report")
}

fn metric(stage: &Stage, who: &Guest, name: &str) -> Result<Option<f64>> {
    let page = ask(stage, who, "/metrics")?;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().context("a metric's value"))
        .transpose()
}

fn until_up(stage: &Stage, who: &Guest) -> Result<Value> {
    stage.until_vm_within(SOON, who, "the agent is up", |vm| vm["agent"]["status"] == "up")
}

fn pauses(report: &Value) -> Vec<Value> {
    let items = report["sections"]["clock"]["items"].as_array();
    items
        .into_iter()
        .flatten()
        .filter(|item| item["kind"] == "pause")
        .cloned()
        .collect()
}

#[test]
fn tier4_a_migration_is_followed_and_its_pause_is_measured() {
    play(
        "tier4_a_migration_is_followed_and_its_pause_is_measured",
        |scene| {
            let (stage, who, machine) = one_guest(scene)?;
            eventually(SOON, "a first look at the RTC", || {
                let count = metric(&stage, &who, "virtfleet_guest_pauses_total")?;
                ensure!(count == Some(0.0), "{count:?} pauses");
                Ok(())
            })?;
            let before = machine.run(&format!("cat /proc/sys/kernel/random/boot_id; {MAIN_PID}"))?;

            let there = stage.plan.hosts[1].clone();
            let begun = Instant::now();
            machine.migrate(Duration::from_secs(8))?;
            let longest = begun.elapsed().as_secs_f64();
            real::place(&stage, &who, &there.name)?;
            let moved = Instant::now();
            stage.until_vm_within(SOON, &who, "the VM's new infra node", |vm| {
                vm["infraNode"] == *there.name && vm["zone"] == *there.zone
            })?;
            println!("the view followed after {:?}", moved.elapsed());
            ensure!(moved.elapsed() < PROMPT, "{:?}", moved.elapsed());
            until_up(&stage, &who)?;

            let pause = eventually(SOON, "the pause in the report", || {
                let report = report(&stage, &who)?;
                let pauses = pauses(&report);
                ensure!(pauses.len() == 1, "{:#}", report["sections"]["clock"]);
                Ok(pauses[0].clone())
            })?;
            let number = |key: &str| pause[key].as_f64().with_context(|| format!("{key} of {pause:#}"));
            let (length, resolution) = (number("lengthSeconds")?, number("resolutionSeconds")?);
            println!("stood still for 8 to {longest:.2} s; the agent says {length:.2} s ± {resolution:.2} s");
            ensure!(pause["source"] == "rtc", "{pause:#}");
            ensure!(
                (8.0 - resolution..=longest + resolution).contains(&length),
                "{pause:#}"
            );
            ensure!(resolution < 5.0, "{pause:#}");
            ensure!(metric(&stage, &who, "virtfleet_guest_pauses_total")? == Some(1.0));
            let after = machine.run(&format!("cat /proc/sys/kernel/random/boot_id; {MAIN_PID}"))?;
            ensure!(
                before == after,
                "another boot or another process: {before} / {after}"
            );
            stage.until_vm_within(SOON, &who, "the collector's finding", |vm| {
                let list = vm["findingsList"].as_array().into_iter().flatten();
                list.into_iter()
                    .any(|finding| finding["id"] == "guest/guest-paused")
            })?;

            // One that is shorter than the resolution need not be seen. If it is, its length is
            // right within the resolution.
            let begun = Instant::now();
            machine.migrate(Duration::ZERO)?;
            let longest = begun.elapsed().as_secs_f64();
            until_up(&stage, &who)?;
            measure(Duration::from_secs(11), || Ok(()))?;
            let report = report(&stage, &who)?;
            let all = pauses(&report);
            println!(
                "stood still for at most {longest:.2} s; {} pauses in all",
                all.len()
            );
            match all.as_slice() {
                [_] => {}
                [_, second] => {
                    let length = second["lengthSeconds"].as_f64().unwrap_or_default();
                    ensure!(length <= longest + resolution, "{second:#}");
                }
                _ => anyhow::bail!("{all:#?}"),
            }
            let steps = &report["sections"]["clock"];
            ensure!(!steps.to_string().contains("suspend"), "{steps:#}");
            Ok(())
        },
    );
}

#[test]
fn tier4_an_agent_that_is_killed_or_hangs_comes_back_and_outlives_a_collector() {
    let test = "tier4_an_agent_that_is_killed_or_hangs_comes_back_and_outlives_a_collector";
    play(test, |scene| {
        let (mut stage, who, machine) = one_guest(scene)?;
        let new = killed(&stage, &who, &machine)?;

        // No collector asks for a while; the next one finds the same process.
        stage.take_collector()?.terminate(STAGE_TIMEOUT)?;
        stage.start_collector(PULLS)?;
        until_up(&stage, &who)?;
        ensure!(machine.run(MAIN_PID)? == new, "the agent did not sit it out");
        hangs(&stage, &who, &machine)
    });
}

/// systemd replaces a killed agent. Returns its process.
fn killed(stage: &Stage, who: &Guest, machine: &Machine) -> Result<String> {
    let old = machine.run(MAIN_PID)?;
    machine.run(&format!("kill -9 {old}"))?;
    let begun = Instant::now();
    let new = eventually(SOON, "another main process", || {
        let new = machine.run(MAIN_PID)?;
        ensure!(new != old && new != "0", "{new}");
        Ok(new)
    })?;
    eventually(SOON, "the agent answers again", || ask(stage, who, "/v1/report"))?;
    until_up(stage, who)?;
    println!("{old} was killed, {new} answers after {:?}", begun.elapsed());
    Ok(new)
}

/// The watchdog ends an agent that hangs, and none that is healthy.
fn hangs(stage: &Stage, who: &Guest, machine: &Machine) -> Result<()> {
    machine.write_file(
        "/etc/systemd/system/virtfleet-agent.service.d/test.conf",
        b"[Service]\nWatchdogSec=6\nTimeoutAbortSec=3\n",
        "0644",
    )?;
    machine.run("systemctl daemon-reload && systemctl restart virtfleet-agent")?;
    until_up(stage, who)?;
    let old = machine.run(MAIN_PID)?;
    // A sign of life later than the first watchdog's end shows that a healthy agent outlives it.
    machine.run_until(
        "start=$(systemctl show -P ExecMainStartTimestampMonotonic virtfleet-agent)
         alive=$(systemctl show -P WatchdogTimestampMonotonic virtfleet-agent)
         [ $alive -gt $((start + 6500000)) ]",
        "a sign of life after the first watchdog's end",
    )?;
    ensure!(machine.run(MAIN_PID)? == old, "a healthy agent was ended");
    machine.run(&format!("kill -STOP {old}"))?;
    let begun = Instant::now();
    eventually(STAGE_TIMEOUT, "another main process", || {
        let new = machine.run(MAIN_PID)?;
        ensure!(new != old && new != "0", "{new}");
        Ok(())
    })?;
    println!("back after {:?}", begun.elapsed());
    let log = machine.journal("virtfleet-agent")?;
    ensure!(log.contains("Failed with result 'watchdog'"), "{log}");
    eventually(SOON, "the agent answers again", || ask(stage, who, "/v1/report"))?;
    until_up(stage, who).map(drop)
}

/// Every number below a key that starts with `age`.
fn ages(value: &Value, found: &mut Vec<f64>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key.starts_with("age") {
                    found.extend(value.as_f64());
                }
                ages(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| ages(item, found)),
        _ => {}
    }
}

#[test]
fn tier4_a_clock_that_jumps_is_reported_and_heals() {
    play("tier4_a_clock_that_jumps_is_reported_and_heals", |scene| {
        let (mut stage, who, machine) = one_guest(scene)?;
        let pid = machine.run(MAIN_PID)?;
        for jump in ["+ 2 days", "- 4 days", "+ 2 days"] {
            machine.run(&format!("date -s \"@$(($(date +%s) {}))\"", seconds(jump)))?;
            // A connection of its own: certificates are looked at again.
            let report = report(&stage, &who)?;
            let mut found = Vec::new();
            ages(&report, &mut found);
            ensure!(
                found.iter().all(|age| (0.0..86_400_000.0).contains(age)),
                "{jump}: {found:?} in {report:#}"
            );
            until_up(&stage, &who)?;
        }
        eventually(SOON, "the steps are counted", || {
            let steps = metric(&stage, &who, "virtfleet_guest_clock_steps_total")?;
            ensure!(steps >= Some(1.0), "{steps:?}");
            Ok(())
        })?;

        // Before the certificates' first day.
        machine.run("date -s @94694400")?;
        stage.take_collector()?.terminate(STAGE_TIMEOUT)?;
        stage.start_collector(PULLS)?;
        let vm = stage.until_vm_within(SOON, &who, "the handshake fails", |vm| {
            vm["agent"]["status"] != "up" && vm["agent"]["failure"]["class"] == "tls"
        })?;
        println!("{:#}", vm["agent"]);
        let told = vm["agent"].to_string();
        ensure!(told.contains("clock"), "{told}");
        println!(
            "{}",
            machine.run("journalctl -u virtfleet-agent --no-pager | tail -n 5")?
        );
        println!(
            "{}",
            machine
                .sh("/opt/virtfleet/bin/virtfleet-agent doctor | grep -i clock")?
                .stdout
        );
        machine.set_clock()?;
        until_up(&stage, &who)?;
        ensure!(machine.run(MAIN_PID)? == pid, "the agent was ended");
        let log = machine.journal("virtfleet-agent")?;
        ensure!(!log.to_lowercase().contains("panic"), "{log}");
        Ok(())
    });
}

fn seconds(jump: &str) -> String {
    jump.replace("2 days", "172800").replace("4 days", "345600")
}

#[test]
fn tier4_a_full_disk_stops_nothing_and_truncates_nothing() {
    play("tier4_a_full_disk_stops_nothing_and_truncates_nothing", |scene| {
        let (stage, who, machine) = one_guest(scene)?;
        machine.run("cd /root/virtfleet && cp virtfleet-agent other && printf x >>other")?;
        machine.run(
            "cd /var; n=0; for size in 512M 128M 32M 8M 1M 64K 4K; do
             while fallocate -l $size full$n 2>/dev/null; do n=$((n + 1)); done; rm -f full$n; done
             ! head -c 9000 /dev/zero 2>/dev/null >/var/more; df /var >&2",
        )?;
        let pid = machine.run(MAIN_PID)?;
        let sums = "find /opt/virtfleet /etc/virtfleet /etc/systemd/system /etc/udev/rules.d /etc/passwd /etc/group \
                    /var/lib/virtfleet -type f -exec sha256sum {} + | LC_ALL=C sort -k2; ls -A /opt/virtfleet/bin";
        let before = machine.run(sums)?;

        let pass = machine.sh(
            "systemctl start virtfleet-reconcile; echo $?; systemctl show -P Result virtfleet-reconcile",
        )?;
        ensure!(pass.stdout == "0\nsuccess\n", "a pass: {}", pass.stdout);
        let report = report(&stage, &who)?;
        println!("{:#}", report["sections"]["provision"]);
        let install = machine.sh("/root/virtfleet/other install")?;
        println!("install: {} {}{}", install.code, install.stdout, install.stderr);
        ensure!(install.code != 0, "{}", install.stdout);
        ensure!(
            install.stderr.contains("/opt/virtfleet/bin/virtfleet-agent")
                && install.stderr.contains("No space"),
            "{}",
            install.stderr
        );
        let after = machine.run(sums)?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        ensure!(machine.run(MAIN_PID)? == pid);
        // It answers now; what the collector shows may be older.
        ask(&stage, &who, "/metrics")?;
        until_up(&stage, &who)?;
        // A restart needs no space either.
        machine.run("systemctl restart virtfleet-agent")?;
        until_up(&stage, &who)?;
        ask(&stage, &who, "/metrics")?;

        machine.run("rm -f /var/full* /var/more && /root/virtfleet/other install")?;
        let sum =
            machine.run("sha256sum </root/virtfleet/other; sha256sum </opt/virtfleet/bin/virtfleet-agent")?;
        let mut sum = sum.lines();
        ensure!(sum.next() == sum.next(), "with space again it is another one");
        eventually(SOON, "the new agent answers", || ask(&stage, &who, "/metrics"))?;
        Ok(())
    });
}

#[test]
fn tier4_tight_memory_ends_the_pod_and_not_the_agent() {
    play("tier4_tight_memory_ends_the_pod_and_not_the_agent", |scene| {
        let (stage, who, machine) = one_guest(scene)?;
        let pid = machine.run(MAIN_PID)?;
        ensure!(machine.run(&format!("cat /proc/{pid}/oom_score_adj"))? == "-998");
        // Less to fill: an emulated guest zeroes some 20 MiB a second.
        machine.balloon(448 * MIB)?;
        let hog = "a = [bytearray(b'x') * (1 << 24) for _ in range(999)]";
        machine.run(&format!(
            "systemd-run --unit hog -p OOMScoreAdjust=1000 python3 -c \"{hog}\""
        ))?;
        let begun = Instant::now();
        eventually(Duration::from_mins(1), "the hog is ended", || {
            let result = machine.run("systemctl show -P Result hog")?;
            ensure!(result == "oom-kill", "{result}");
            Ok(())
        })?;
        println!("the hog was ended after {:?}", begun.elapsed());
        ensure!(machine.run(MAIN_PID)? == pid, "the agent was ended");
        until_up(&stage, &who)?;
        let killed = metric(&stage, &who, "node_vmstat_oom_kill")?;
        ensure!(killed >= Some(1.0), "{killed:?} in node_vmstat_oom_kill");
        Ok(())
    });
}

#[test]
fn tier4_two_guests_with_one_uuid_are_a_finding() {
    let test = "tier4_two_guests_with_one_uuid_are_a_finding";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    play(test, |scene| {
        let stage = Stage::small_at(PULLS)?;
        let (one, _first) = settle(scene, &stage, 1, UUID)?;
        let (two, _second) = settle(scene, &stage, 2, UUID)?;
        for who in [&one, &two] {
            stage.until_vm_within(SOON, who, "its agent is up", |vm| {
                vm["agent"]["status"] == "up" && vm["guest"]["kernel"].is_string()
            })?;
        }
        let list = eventually(SOON, "findings of both", || {
            let list = stage.json(&format!("/api/v1/findings?namespace={}", one.cluster))?;
            let about = |id: &str| {
                let items = list["items"].as_array().into_iter().flatten();
                items.filter(|item| item["id"] == id).count()
            };
            // Each guest says what the platform gave it, so neither is blamed for what it says.
            ensure!(
                about("duplicate-firmware-uuid") == 2 && about("duplicate-claimed-uuid") == 0,
                "{list:#}"
            );
            Ok(list)
        })?;
        for item in list["items"].as_array().into_iter().flatten() {
            println!("{} {}: {}", item["id"], item["subject"], item["message"]);
        }
        for (who, other) in [(&one, &two), (&two, &one)] {
            let vm = stage.json(&format!("/api/v1/vms/{}/{}", who.cluster, who.name))?;
            let targets = stage.json("/sd")?;
            let said = targets.to_string();
            ensure!(said.contains(&who.address.to_string()), "{said}");
            ensure!(who.address != other.address && who.name != other.name);
            // Who it is was decided by the address and the certificate, not by the UUID.
            let address = vm["agent"]["address"].as_str();
            ensure!(
                vm["name"] == *who.name && address == Some(&who.address.to_string()),
                "{vm:#}"
            );
        }
        Ok(())
    });
}

#[test]
fn tier4_prometheus_scrapes_a_real_guest() {
    let test = "tier4_prometheus_scrapes_a_real_guest";
    let program = match skip::need(4, test, parts::prometheus()) {
        Ok(Some(program)) => program,
        Ok(None) => return,
        Err(error) => panic!("{error:#}"),
    };
    play(test, |scene| {
        let (stage, who, machine) = one_guest(scene)?;
        let (_prometheus, address) = prometheus::start(&stage, program.clone())?;
        // Each on its own wait: the guest and the fleet view are two jobs, and a scrape may miss
        // its second.
        let until = |what: &str, promql: &str, label: &str, expected: &str| {
            eventually(STAGE_TIMEOUT, what, || {
                let found = prometheus::query(address, promql, label)?;
                ensure!(
                    found.contains_key(expected),
                    "{expected} is not in {found:?} of {promql}"
                );
                Ok(())
            })
        };
        let up = format!("up{{job=\"node\",name=\"{}\"}} == 1", who.name);
        until("the guest is scraped", &up, "instance", &who.name)?;
        let uname = format!("node_uname_info{{instance=\"{}\"}}", who.name);
        for (label, command) in [("nodename", "uname -n"), ("release", "uname -r")] {
            until(command, &uname, label, &machine.run(command)?)?;
        }
        let zone = "sum by (zone) (node_memory_MemTotal_bytes{name=\"real-1\"} * on (cluster, namespace, name) \
                    group_left (zone) virtfleet_vm_placement_info)";
        until("the zone joins", zone, "zone", &stage.plan.hosts[0].zone)?;
        Ok(())
    });
}
