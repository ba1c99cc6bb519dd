//! The main job, end to end with the real programs on loopback: manifests and agents in, the joined
//! truth out.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use virtfleet_tests::{
    scrape::Client,
    sim::{self, Fault, Options},
    stage::{Beat, STAGE_TIMEOUT, Stage},
    this_machine, wait,
};

fn stage(guests: usize, faults: &[(Fault, usize)]) -> Stage {
    let options = Options {
        guests,
        hosts: 4,
        zones: 2,
        clusters: 2,
        faults: faults.to_vec(),
        ..Options::default()
    };
    Stage::new(options).unwrap()
}

fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

/// The messages of findings with this id, wherever they are about.
fn findings(stage: &Stage, id: &str) -> Vec<String> {
    let list = stage.json("/api/v1/findings").unwrap();
    let with_id = items(&list).iter().filter(|finding| finding["id"] == id);
    with_id
        .map(|finding| finding["message"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_vm_is_joined_with_its_placement() {
    let mut stage = stage(12, &[]);
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(12).unwrap();
    // A busy machine answers one pull late.
    let list = wait::eventually(STAGE_TIMEOUT, "nothing is found about any VM", || {
        let list = stage.json("/api/v1/vms")?;
        let clean = items(&list).iter().all(|vm| vm["findings"] == 0);
        anyhow::ensure!(clean, "{list:#}");
        Ok(list)
    })
    .unwrap();
    assert_eq!(list["partial"], false);
    for (guest, vm) in stage.plan.guests.iter().map(|guest| {
        let vm = items(&list)
            .iter()
            .find(|vm| vm["name"] == *guest.name && vm["namespace"] == *guest.cluster);
        (guest, vm.unwrap())
    }) {
        let host = &stage.plan.hosts[guest.host];
        for (field, expected) in [
            ("cluster", &guest.cluster),
            ("userNode", &guest.name),
            ("infraNode", &host.name),
            ("zone", &host.zone),
            ("region", &stage.plan.region),
        ] {
            assert_eq!(vm[field], **expected, "{field} of {}", guest.name);
        }
        assert_eq!(vm["state"], "running", "{vm:#}");
    }
    let detail = stage.until_vm(&stage.plan.guests[0], "identity is confirmed", |vm| {
        vm["identity"]
            .as_object()
            .is_some_and(|checks| checks.values().any(|c| c["verdict"] == "confirmed"))
    });
    assert!(detail.unwrap()["report"]["sections"].is_object());
    for verb in [
        &["vms"][..],
        &["vms", "-o", "wide"],
        &["hosts"],
        &["clusters"],
        &["vms", "-o", "yaml"],
    ] {
        let text = stage.ctl().unwrap().args(verb).text(STAGE_TIMEOUT).unwrap();
        let expected = if verb == ["hosts"] {
            "infra-01"
        } else {
            "cluster-a"
        };
        assert!(text.contains(expected), "{verb:?}: {text}");
    }
}

#[test]
fn a_moved_vm_is_seen_on_its_new_host_within_two_seconds() {
    let mut stage = stage(4, &[]);
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(4).unwrap();
    let guest = stage.plan.guests[1].clone();
    let mut delays = Vec::new();
    let mut last = None;
    // Several times: a machine that is busy adds seconds to one or the other.
    for step in 1..=3 {
        let host = stage.plan.hosts[(guest.host + step) % stage.plan.hosts.len()].clone();
        stage.move_to(&guest, &host.name).unwrap();
        let moved = Instant::now();
        let vm = stage
            .until_vm(&guest, "it has moved", |vm| vm["infraNode"] == *host.name)
            .unwrap();
        delays.push(moved.elapsed());
        last = Some((host, vm));
    }
    let (host, vm) = last.unwrap();
    let shortest = delays.iter().min().unwrap();
    assert!(*shortest < Duration::from_secs(2), "{delays:?}");
    assert_eq!(vm["zone"], *host.zone);
    let placement = format!("name=\"{}\"", guest.name);
    let page = stage.text("/metrics/fleet").unwrap();
    let lines: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("virtfleet_vm_placement_info{") && line.contains(&placement))
        .filter(|line| line.contains(&format!("namespace=\"{}\"", guest.cluster)))
        .collect();
    assert_eq!(lines.len(), 1, "exactly one placement: {lines:?}");
    assert!(lines[0].contains(&format!("infra_node=\"{}\"", host.name)));
}

#[test]
fn each_agent_that_misbehaves_is_named_with_its_reason_and_disturbs_no_other() {
    let classes = [
        (Fault::Silent, "timeout"),
        (Fault::Endless, "too_large"),
        (Fault::HugeReport, "too_large"),
        (Fault::WrongCa, "tls"),
        (Fault::WrongVm, "wrong_vm"),
        (Fault::Http500, "http"),
        (Fault::Garbage, "malformed"),
        (Fault::Echo, "malformed"),
        (Fault::Sections, "too_large"),
        (Fault::Continue, "too_large"),
        (Fault::Redirect, "http"),
        (Fault::Headers, "too_large"),
        (Fault::Late, "timeout"),
    ];
    let guests = 18;
    let mut stage = stage(guests, &classes.map(|(fault, _)| (fault, 1)));
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(guests - classes.len()).unwrap();
    for (fault, class) in classes {
        let guest = stage
            .plan
            .guests
            .iter()
            .find(|guest| guest.fault == Some(fault))
            .unwrap();
        let what = format!("{fault:?} is {class}");
        // An exposition without end stops at the time-out when it comes slowly, and at the size
        // when it comes fast.
        let expected = |vm: &Value| {
            let got = &vm["agent"]["failure"]["class"];
            got == class || (fault == Fault::Endless && got == "timeout")
        };
        let vm = stage.until_vm(guest, &what, expected).unwrap();
        assert_eq!(vm["agent"]["status"], "silent");
        assert_eq!(vm["state"], "running", "the VM is not to blame");
        let message = vm["agent"]["failure"]["message"].as_str().unwrap();
        assert!(
            (20..=512).contains(&message.len()) && !message.contains(char::is_control),
            "one clear line: {message}"
        );
    }
    stage.until_up(guests - classes.len()).unwrap();
    // The targets for Prometheus contain no agent whose certificate is not verified.
    let list = stage.json("/sd").unwrap();
    let named: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["targets"][0])
        .collect();
    for guest in &stage.plan.guests {
        let doubtful = [Fault::Silent, Fault::WrongCa, Fault::WrongVm].map(Some);
        if doubtful.contains(&guest.fault) {
            assert!(
                !named.contains(&&Value::from(guest.address.to_string())),
                "{guest:?} in {named:?}"
            );
        } else if guest.fault.is_none() {
            assert!(
                named.contains(&&Value::from(guest.address.to_string())),
                "{guest:?} in {named:?}"
            );
        }
    }
    let page = stage.text("/metrics").unwrap();
    for class in [
        "ok",
        "timeout",
        "too_large",
        "tls",
        "wrong_vm",
        "http",
        "malformed",
    ] {
        let name = format!("virtfleet_collector_pulls_total{{result=\"{class}\"}} ");
        let line = page
            .lines()
            .find(|line| line.starts_with(&name))
            .unwrap_or_else(|| panic!("{name}\n{page}"));
        assert!(!line.ends_with(" 0"), "{line}");
    }
    // A busy machine answers one pull late.
    wait::eventually(STAGE_TIMEOUT, "who is up and who is not", || {
        let fleet = stage.text("/metrics/fleet")?;
        let lines = fleet.lines().filter(|line| line.starts_with("virtfleet_vm_up{"));
        let count = |value: &str| lines.clone().filter(|line| line.ends_with(value)).count();
        let counts = (count(" 1"), count(" 0"));
        anyhow::ensure!(counts == (guests - classes.len(), classes.len()), "{counts:?}");
        Ok(())
    })
    .unwrap();
    let log = stage.take_collector().unwrap().log();
    let longest = log.lines().map(str::len).max().unwrap_or(0);
    assert!(longest < 4096, "a line of {longest} bytes in the log");
}

#[test]
fn a_broken_manifest_is_named_with_its_line_and_the_last_good_state_stays() {
    let mut stage = stage(4, &[]);
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(4).unwrap();
    let guest = stage.plan.guests[0].clone();
    let file = stage.manifest(&guest);
    let good = fs::read_to_string(&file).unwrap();
    for (broken, line) in [
        ("kind: [\n", ":2"),
        ("", "empty"),
        ("kind: Node\na: 1\na: 2\n", ":3"),
    ] {
        fs::write(&file, broken).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        let is_named = || {
            let list = stage.json("/api/v1/findings").unwrap();
            let messages = items(&list).iter().map(|finding| finding["message"].to_string());
            messages
                .into_iter()
                .any(|message| message.contains(name) && message.contains(line))
        };
        wait::until(STAGE_TIMEOUT, &format!("{broken:?} is named"), is_named).unwrap();
        assert_eq!(
            items(&stage.json("/api/v1/vms").unwrap()).len(),
            4,
            "nothing is gone"
        );
        assert_eq!(
            stage.json("/api/v1/vms").unwrap()["partial"],
            true,
            "absence proves nothing now"
        );
        fs::write(&file, &good).unwrap();
        let whole = || stage.json("/api/v1/vms").unwrap()["partial"] == false;
        wait::until(STAGE_TIMEOUT, "it is whole again", whole).unwrap();
    }
    fs::remove_file(&file).unwrap();
    let gone = || items(&stage.json("/api/v1/vms").unwrap()).len() == 3;
    wait::until(STAGE_TIMEOUT, "a removed file removes its VM", gone).unwrap();
}

#[test]
fn odd_objects_are_findings_and_nothing_else_stops() {
    let mut stage = stage(4, &[]);
    let [first, second] = [stage.plan.guests[0].clone(), stage.plan.guests[2].clone()];
    let host = stage.plan.hosts[0].name.clone();
    let twin = sim::Guest {
        firmware: first.firmware,
        ..second.clone()
    };
    fs::write(stage.manifest(&second), sim::vmi(&twin, &host)).unwrap();
    let other = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web, namespace: default }\n";
    stage.write_manifest("infra/deployment.yaml", other).unwrap();
    let bare = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: { name: bare, namespace: cluster-a }\n";
    stage.write_manifest("infra/bare.yaml", bare).unwrap();
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(4).unwrap();

    let twins = findings(&stage, "duplicate-firmware-uuid");
    assert_eq!(twins.len(), 2, "one for each: {twins:?}");
    assert!(
        twins.iter().any(|message| message.contains(&first.name)),
        "{twins:?}"
    );
    assert_eq!(findings(&stage, "vmi-without-status").len(), 1);
    let list = stage.json("/api/v1/findings").unwrap();
    let named = items(&list).iter().any(|finding| {
        let message = finding["message"].as_str().unwrap();
        message.contains("deployment.yaml:1") && message.contains("Deployment")
    });
    assert!(named, "{list:#}");
    let vm = stage.json("/api/v1/vms/cluster-a/bare").unwrap();
    assert_eq!(
        (&vm["state"], &vm["agent"]["status"]),
        (&"unknown".into(), &"off".into())
    );
    // The twin's own UUID is another than its manifest says.
    let mismatch = || !findings(&stage, "identity-uuid-mismatch").is_empty();
    wait::until(STAGE_TIMEOUT, "the mismatch is found", mismatch).unwrap();
}

#[test]
fn a_silent_agent_and_a_stopped_vm_are_distinguished() {
    let mut stage = stage(3, &[]);
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(3).unwrap();
    let [stopped, moved] = [stage.plan.guests[0].clone(), stage.plan.guests[1].clone()];
    let manifest = fs::read_to_string(stage.manifest(&stopped)).unwrap();
    fs::write(
        stage.manifest(&stopped),
        manifest.replace("phase: Running", "phase: Succeeded"),
    )
    .unwrap();
    let manifest = fs::read_to_string(stage.manifest(&moved)).unwrap();
    let nobody = manifest.replace(&moved.address.ip().to_string(), "127.99.99.99");
    fs::write(stage.manifest(&moved), nobody).unwrap();
    stage
        .until_vm(&stopped, "it is off", |vm| {
            vm["state"] == "succeeded" && vm["agent"]["status"] == "off"
        })
        .unwrap();
    let silent = |vm: &Value| vm["state"] == "running" && vm["agent"]["failure"]["class"] == "connect";
    stage.until_vm(&moved, "it is silent", silent).unwrap();
    let list = stage.json("/sd").unwrap();
    let targets = list
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["targets"].as_array().unwrap().clone());
    let targets: Vec<_> = targets.collect();
    assert!(
        !targets.contains(&stopped.address.to_string().into()),
        "{targets:?}"
    );
}

#[test]
fn the_real_agent_of_this_machine_is_pulled_and_identified() {
    let mut stage = stage(2, &[]);
    let own = this_machine::as_guest(&stage).unwrap();
    let host = stage.plan.hosts[own.host].clone();
    stage
        .write_manifest("infra/this-machine.yaml", &sim::vmi(&own, &host.name))
        .unwrap();
    stage.start_agent(&own, "").unwrap();
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(3).unwrap();
    // Where there is no SMBIOS, or only root may read it, the machine-id confirms.
    let is_identified = |vm: &Value| {
        let checks = &vm["identity"];
        ["smbiosUuid", "machineId"]
            .iter()
            .any(|field| checks[field]["verdict"] == "confirmed")
    };
    // A collector that comes too late on a busy machine counts as failed in that report.
    let whole = |vm: &Value| {
        vm["agent"]["status"] == "up"
            && vm["guest"]["kernel"].is_string()
            && vm["guest"]["metrics"]["failedCollectors"] == 0
            && is_identified(vm)
    };
    let vm = stage
        .until_vm(&own, "its agent is up and identified", whole)
        .unwrap();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(vm["guest"]["kernel"], kernel.trim());
    let total = vm["guest"]["metrics"]["memoryTotalBytes"].as_f64().unwrap();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let kib: f64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((total - kib * 1024.0).abs() < 1.0, "{total} and {kib} KiB");
    assert_eq!(vm["zone"], *host.zone);
}

#[test]
fn the_collector_stops_on_sigterm_while_agents_are_silent_and_somebody_waits() {
    let mut stage = stage(6, &[(Fault::Silent, 2)]);
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(4).unwrap();
    let mut collector = stage.take_collector().unwrap();
    let path = "/api/v1/vms?wait=1000000&timeout=30s";
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| stage.text(path));
        collector.wait_for_port(stage.api, STAGE_TIMEOUT).unwrap();
        collector.signal(Signal::SIGTERM).unwrap();
        let status = collector.wait(STAGE_TIMEOUT).unwrap();
        assert!(status.success(), "{status}");
        // Answered before the end, or refused because it came after; not left hanging.
        drop(waiting.join().unwrap());
    });
}

#[test]
fn the_agent_stopped_under_load_answers_what_it_has_begun_and_reports_success() {
    let mut stage = stage(1, &[]);
    let own = this_machine::as_guest(&stage).unwrap();
    stage.start_agent(&own, "").unwrap();
    let mut agent = stage.take_agent().unwrap();
    let tls = stage
        .authority
        .client_config(&stage.authority.collector().unwrap())
        .unwrap();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let scrapers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::tls(own.address, tls.clone(), STAGE_TIMEOUT).unwrap();
                    // Until the agent closes the connection; a page that has begun must be whole.
                    while let Ok(answer) = client.get("/metrics") {
                        let page = answer.ok().unwrap().text().unwrap().to_owned();
                        assert!(page.contains("node_scrape_collector_success") && page.ends_with('\n'));
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        wait::until(STAGE_TIMEOUT, "the load is on", || {
            answered.load(Ordering::Relaxed) > 50
        })
        .unwrap();
        agent.signal(Signal::SIGTERM).unwrap();
        let status = agent.wait(STAGE_TIMEOUT).unwrap();
        assert!(status.success(), "{status}\n{}", agent.log());
        for scraper in scrapers {
            scraper.join().unwrap();
        }
    });
    assert!(!agent.log().contains("did not end in time"), "{}", agent.log());
}
