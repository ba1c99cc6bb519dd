//! VMs behind a relay: pulled through it by the real collector, and a relay that lies, limits or
//! stops.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    time::Duration,
};

use nix::sys::signal::Signal;
use virtfleet_tests::{
    bins,
    install::shipped,
    ports,
    process::{Launch, Process},
    scrape::Client,
    sim::Options,
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

mod lying;
mod namespaces;

/// A running relay.
pub(crate) struct Relay {
    process: Process,
    pub(crate) connect: SocketAddr,
    pub(crate) forward: SocketAddr,
    probes: SocketAddr,
}

impl Relay {
    /// Starts a relay that allows loopback addresses with this port as destinations.
    pub(crate) fn start(folder: &Path, port: u16, flags: &[&str]) -> Self {
        let [connect, forward, probes] = [(); 3].map(|()| ports::free().unwrap());
        let process = Launch::new(bins::collector().unwrap())
            .args(["relay", "--connect.allow-cidrs=127.0.0.0/8"])
            .arg(format!("--connect.port={port}"))
            .arg(format!("--connect.address={connect}"))
            .arg(format!("--forward.address={forward}"))
            .arg(format!("--probe.address={probes}"))
            .args(flags)
            .start(folder);
        let mut process = process.unwrap();
        process.wait_for_line("relaying", STAGE_TIMEOUT).unwrap();
        Self {
            process,
            connect,
            forward,
            probes,
        }
    }

    /// A metric of the relay; `name` with its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = Client::plain(self.probes, STAGE_TIMEOUT).unwrap().get("/metrics");
        let page = page.unwrap().ok().unwrap();
        let line = page
            .text()
            .unwrap()
            .lines()
            .find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {}", page.text().unwrap()))
            .trim()
            .parse()
            .unwrap()
    }
}

/// Sets the relay of a user cluster in a folder of manifests.
fn set_relay(manifests: &Path, cluster: &str, relay: &str) -> std::io::Result<()> {
    let path = manifests.join("clusters").join(cluster).join("cluster.yaml");
    let text = fs::read_to_string(&path)?;
    let (text, _) = text.split_once("  relay:").unwrap_or((&text, ""));
    let new = path.with_extension("new");
    fs::write(&new, format!("{text}  relay:\n    address: \"{relay}\"\n"))?;
    fs::rename(new, path)
}

pub(crate) fn put_behind(stage: &Stage, cluster: &str, relay: SocketAddr) {
    set_relay(&stage.manifests(), cluster, &relay.to_string()).unwrap();
}

fn stage(guests: usize, clusters: usize) -> Stage {
    Stage::new(Options {
        guests,
        hosts: 2,
        zones: 2,
        clusters,
        ..Options::default()
    })
    .unwrap()
}

#[test]
fn vms_of_a_user_cluster_are_pulled_through_its_relay() {
    let mut stage = stage(4, 2);
    let relay = Relay::start(stage.path(), stage.own_address().port(), &[]);
    put_behind(&stage, "cluster-a", relay.connect);
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(4).unwrap();
    let guest = |cluster: &str| {
        let mut guests = stage.plan.guests.iter();
        guests.find(|guest| guest.cluster == cluster).unwrap().clone()
    };
    let (behind, direct) = (guest("cluster-a"), guest("cluster-b"));
    let way = |vm: &serde_json::Value| vm["agent"]["way"].clone();
    let vm = stage.until_vm(&behind, "it is up", |vm| vm["agent"]["status"] == "up");
    assert_eq!(
        way(&vm.unwrap()),
        serde_json::json!({ "kind": "relay", "cluster": "cluster-a", "address": relay.connect.to_string() })
    );
    let vm = stage.until_vm(&direct, "it is up", |vm| vm["agent"]["status"] == "up");
    assert_eq!(way(&vm.unwrap()), serde_json::json!({ "kind": "direct" }));
    assert!(relay.metric("virtfleet_relay_from_vms_bytes_total{direction=\"pull\"}") > 1000.0);
    // A pull that took too long closes its connection, and the next one opens another.
    let open = || relay.metric("virtfleet_relay_connections_open{direction=\"pull\"}") >= 1.0;
    wait::until(STAGE_TIMEOUT, "a connection is kept", open).unwrap();
    let ctl = |guest: &virtfleet_tests::sim::Guest| {
        let name = format!("{}/{}", guest.cluster, guest.name);
        stage
            .ctl()
            .unwrap()
            .args(["vm", &name])
            .text(STAGE_TIMEOUT)
            .unwrap()
    };
    let text = ctl(&behind);
    assert!(text.contains("relay of UserCluster cluster-a"), "{text}");
    let text = ctl(&direct);
    assert!(text.contains("direct: no relay is configured"), "{text}");
    // Prometheus' page takes the same way.
    let before = relay.metric("virtfleet_relay_from_vms_bytes_total{direction=\"pull\"}");
    let path = format!("/vm/{}/{}/metrics", behind.cluster, behind.name);
    let page = wait::eventually(STAGE_TIMEOUT, "the page is there", || stage.text(&path));
    assert!(page.unwrap().contains("node_memory_MemTotal_bytes"));
    assert!(relay.metric("virtfleet_relay_from_vms_bytes_total{direction=\"pull\"}") > before);

    // Kept connections do not delay the end.
    let (folder, port) = (stage.path().to_owned(), stage.own_address().port());
    let status = relay.process.terminate(Duration::from_secs(5)).unwrap();
    assert!(status.success(), "{status}");
    let silent = |vm: &serde_json::Value| vm["agent"]["status"] == "silent";
    let vm = stage.until_vm(&behind, "it is silent", silent).unwrap();
    let failure = vm["agent"]["failure"]["message"].as_str().unwrap();
    assert!(
        failure.starts_with("through the relay of UserCluster cluster-a (127.0.0.1:"),
        "{failure}"
    );
    stage.until_up(2).unwrap();
    let relay = Relay::start(&folder, port, &[]);
    put_behind(&stage, "cluster-a", relay.connect);
    stage.until_up(4).unwrap();
}

#[test]
fn a_destination_that_the_relay_does_not_allow_is_named() {
    let mut stage = stage(2, 2);
    let relay = Relay::start(stage.path(), 1, &[]);
    put_behind(&stage, "cluster-a", relay.connect);
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(1).unwrap();
    let guest = stage
        .plan
        .guests
        .iter()
        .find(|guest| guest.cluster == "cluster-a");
    let vm = stage.until_vm(guest.unwrap(), "it is refused", |vm| {
        vm["agent"]["failure"]["class"] == "not_allowed"
    });
    let message = vm.unwrap()["agent"]["failure"]["message"].to_string();
    assert!(
        message.contains("relay of UserCluster cluster-a") && message.contains("--connect.port"),
        "{message}"
    );
    let refused = "virtfleet_relay_connections_total{direction=\"pull\",result=\"not_allowed\"}";
    let counted = || relay.metric(refused) >= 1.0;
    wait::until(STAGE_TIMEOUT, "it is counted", counted).unwrap();
}

/// A TCP server that sends back what it receives, after the client ended its sending.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut received = Vec::new();
                stream.read_to_end(&mut received).unwrap();
                stream.write_all(&received).ok();
            });
        }
    });
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(STAGE_TIMEOUT)).unwrap();
    stream
}

#[test]
fn the_way_to_the_collector_is_a_plain_forward_with_limits() {
    let folder = tempfile::tempdir().unwrap();
    let collector = format!("--forward.collector={}", echo());
    let flags = [
        &collector,
        "--forward.max-connections-per-peer=2",
        "--idle-timeout=5s",
    ];
    let relay = Relay::start(folder.path(), 1, &flags);
    let of_result =
        |result: &str| format!("virtfleet_relay_connections_total{{direction=\"push\",result=\"{result}\"}}");
    let mut stream = connect(relay.forward);
    let sent = "x".repeat(100_000);
    stream.write_all(sent.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    let closed = || relay.metric(&of_result("closed")) > 0.0;
    wait::until(STAGE_TIMEOUT, "the end is counted", closed).unwrap();

    // Two silent clients have all slots of their address; the third is closed at once.
    let mut held = [connect(relay.forward), connect(relay.forward)];
    let mut third = connect(relay.forward);
    assert!(matches!(third.read(&mut [0]), Ok(0) | Err(_)));
    let full = || relay.metric(&of_result("full")) >= 1.0;
    wait::until(STAGE_TIMEOUT, "it is counted", full).unwrap();
    // They are closed in turn, because they send nothing.
    for stream in &mut held {
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    let idle = || relay.metric(&of_result("idle")) > 1.0;
    wait::until(STAGE_TIMEOUT, "both were idle", idle).unwrap();
    let free = || relay.metric("virtfleet_relay_connections_open{direction=\"push\"}") < 1.0;
    wait::until(STAGE_TIMEOUT, "their slots are free", free).unwrap();
}

#[test]
fn a_slow_client_of_the_relay_does_not_hold_a_slot() {
    let folder = tempfile::tempdir().unwrap();
    let mut relay = Relay::start(folder.path(), 1, &[]);
    let mut stream = connect(relay.connect);
    stream.write_all(b"CONNECT 127.").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 no request within"), "{answer}");
    // A client that has not sent its request does not delay the end.
    let mut unfinished = connect(relay.connect);
    let open = || relay.metric("virtfleet_relay_connections_open{direction=\"pull\"}") > 0.0;
    wait::until(STAGE_TIMEOUT, "it is accepted", open).unwrap();
    relay.process.signal(Signal::SIGTERM).unwrap();
    let mut answer = String::new();
    unfinished.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 the relay stops"), "{answer}");
    assert!(relay.process.wait(STAGE_TIMEOUT).unwrap().success());
}

#[test]
fn a_relay_that_lies_only_makes_its_own_vms_silent() {
    let lies = lying::Lie::ALL;
    // One more cluster, whose VMs are dialled directly.
    let clusters = lies.len() + 1;
    let mut stage = stage(clusters, clusters);
    let honest = stage
        .plan
        .guests
        .iter()
        .find(|guest| guest.cluster == "cluster-a");
    let honest = honest.unwrap().clone();
    let mut behind = Vec::new();
    for (index, &lie) in lies.iter().enumerate() {
        let letter = char::from(b'b' + u8::try_from(index).unwrap());
        let cluster = format!("cluster-{letter}");
        put_behind(&stage, &cluster, lying::start(lie, honest.address));
        let guest = stage.plan.guests.iter().find(|guest| guest.cluster == cluster);
        behind.push((lie, guest.unwrap().clone()));
    }
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(1).unwrap();
    for (lie, guest) in behind {
        let classes = lie.failures();
        let what = format!("{lie:?} is one of {classes:?}");
        let vm = stage.until_vm(&guest, &what, |vm| {
            let class = vm["agent"]["failure"]["class"].as_str();
            class.is_some_and(|class| classes.contains(&class))
        });
        let agent = vm.unwrap()["agent"].clone();
        assert_eq!(agent["status"], "silent", "{lie:?}");
        assert!(
            agent["verifiedMs"].is_null() && agent["lastSeenMs"].is_null(),
            "{agent}"
        );
        let message = agent["failure"]["message"].as_str().unwrap();
        let named = format!("through the relay of UserCluster {}", guest.cluster);
        assert!(message.starts_with(&named), "{lie:?}: {message}");
        assert!(
            message.len() <= 512 && !message.contains(char::is_control),
            "{message}"
        );
    }
    stage.until_up(1).unwrap();
    let vm = stage.until_vm(&honest, "the other one is up", |vm| vm["agent"]["status"] == "up");
    assert_eq!(vm.unwrap()["agent"]["way"]["kind"], "direct");
}

#[test]
fn the_packaged_relay_runs_with_the_least_rights() {
    let objects = shipped("relay.yaml").unwrap();
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let pod = &of_kind("Deployment")["spec"]["template"];
    let spec = &pod["spec"];
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        spec["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert!(
        spec["volumes"].is_null(),
        "it has no key, certificate or settings"
    );
    let container = &spec["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["capabilities"]["drop"], serde_json::json!(["ALL"]));

    let args = container["args"].as_array().unwrap().iter();
    let line = std::iter::once("virtfleet-collector").chain(args.map(|arg| arg.as_str().unwrap()));
    let parsed = virtfleet_collector::cli::command()
        .try_get_matches_from(line)
        .unwrap();
    let (_, parsed) = parsed.subcommand().unwrap();
    for (flag, port) in [("connect_address", "connect"), ("probe_address", "probes")] {
        let address = parsed.get_one::<SocketAddr>(flag).unwrap();
        let mut named = container["ports"].as_array().unwrap().iter();
        let named = named.find(|named| named["name"] == port).unwrap();
        assert_eq!(named["containerPort"], address.port(), "{port}");
    }
    let service = &of_kind("Service")["spec"];
    assert_eq!(service["selector"], pod["metadata"]["labels"]);
    assert_eq!(service["ports"][0]["port"], 10915);

    // A drain leaves one of its replicas, which are on different infra nodes if there are any.
    let own = serde_json::json!({ "matchLabels": pod["metadata"]["labels"] });
    let replicas = of_kind("Deployment")["spec"]["replicas"].as_u64();
    let budget = &of_kind("PodDisruptionBudget")["spec"];
    assert_eq!(
        (budget["maxUnavailable"].as_u64(), &budget["selector"]),
        (Some(1), &own)
    );
    assert!(replicas > Some(1), "{replicas:?}");
    let apart = &spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    let term = &apart["podAffinityTerm"];
    assert_eq!(term["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(term["labelSelector"], own);
}

#[test]
fn packaged_policies_allow_the_ways_and_nothing_else() {
    let collector = shipped("infra/deployment.yaml").unwrap();
    let collector = collector
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .unwrap();
    let relay = shipped("relay.yaml").unwrap();
    let of_kind = |kind: &str| relay.iter().find(|object| object["kind"] == kind).unwrap();
    let labels = &of_kind("Deployment")["spec"]["template"]["metadata"]["labels"];
    let from_collector = serde_json::json!({
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": collector["metadata"]["namespace"] } },
        "podSelector": { "matchLabels": collector["spec"]["template"]["metadata"]["labels"] },
    });
    let vms = serde_json::json!({ "podSelector": { "matchLabels": { "kubevirt.io": "virt-launcher" } } });

    let policy = &of_kind("NetworkPolicy")["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], *labels);
    assert_eq!(policy["policyTypes"], serde_json::json!(["Ingress", "Egress"]));
    let from_prometheus = serde_json::json!({
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "monitoring" } },
        "podSelector": { "matchLabels": { "app.kubernetes.io/name": "prometheus" } },
    });
    assert_eq!(
        policy["ingress"],
        serde_json::json!([
            { "from": [from_collector], "ports": [{ "protocol": "TCP", "port": "connect" }] },
            { "from": [from_prometheus], "ports": [{ "protocol": "TCP", "port": "probes" }] },
        ])
    );
    assert_eq!(
        policy["egress"],
        serde_json::json!([{ "to": [vms], "ports": [{ "protocol": "TCP", "port": 10911 }] }])
    );

    let pull = shipped("pull.yaml").unwrap();
    let policy = &pull[0]["spec"];
    assert_eq!(policy["podSelector"], vms["podSelector"]);
    let from_relay = serde_json::json!({ "podSelector": { "matchLabels": labels } });
    assert_eq!(
        policy["ingress"],
        serde_json::json!([{ "from": [from_collector, from_relay], "ports": [{ "protocol": "TCP", "port": 10911 }] }])
    );
}

#[test]
fn packaged_policies_of_push_open_one_port_to_relays_and_vms() {
    let collector = shipped("infra/deployment.yaml").unwrap();
    let of_collector = collector.iter().find(|object| object["kind"] == "Deployment");
    let of_collector = &of_collector.unwrap()["spec"]["template"]["metadata"]["labels"];
    let relay = shipped("relay.yaml").unwrap();
    let of_relay = relay.iter().find(|object| object["kind"] == "Deployment");
    let of_relay = &of_relay.unwrap()["spec"]["template"]["metadata"]["labels"];
    let objects = shipped("push.yaml").unwrap();
    let find = |kind: &str, name: &str| {
        let mut objects = objects.iter();
        let found = objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        &found.unwrap()["spec"]
    };
    let port = |number: u16| serde_json::json!([{ "protocol": "TCP", "port": number }]);
    let vms = serde_json::json!({ "matchLabels": { "kubevirt.io": "virt-launcher" } });

    for (name, labels) in [
        ("virtfleet-collector-ingest", of_collector),
        ("virtfleet-relay-push", of_relay),
    ] {
        assert_eq!(find("NetworkPolicy", name)["podSelector"]["matchLabels"], *labels);
    }
    let service = find("Service", "virtfleet-relay-push");
    assert_eq!(service["selector"], *of_relay);
    assert_eq!(service["ports"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&service["ports"][0]["port"], &service["ports"][0]["targetPort"]),
        (&10913.into(), &10913.into())
    );
    let policy = find("NetworkPolicy", "virtfleet-collector-ingest");
    assert_eq!(policy["policyTypes"], serde_json::json!(["Ingress"]));
    let anywhere =
        |pods: &serde_json::Value| serde_json::json!({ "namespaceSelector": {}, "podSelector": pods });
    let relays = serde_json::json!({ "matchLabels": of_relay });
    assert_eq!(
        policy["ingress"],
        serde_json::json!([{ "from": [anywhere(&relays), anywhere(&vms)], "ports": port(10913) }])
    );
    let policy = find("NetworkPolicy", "virtfleet-relay-push");
    assert_eq!(
        policy["ingress"],
        serde_json::json!([{ "from": [{ "podSelector": vms }], "ports": port(10913) }]),
        "only VMs of its own namespace"
    );
    assert_eq!(policy["egress"][0]["ports"], port(10913));
    assert_eq!(
        policy["egress"][0]["to"][0]["podSelector"]["matchLabels"],
        *of_collector
    );
    // The collector's default is the port of the policies.
    let ingest = virtfleet_collector::config::IngestSettings::default();
    assert_eq!(ingest.address.parse::<SocketAddr>().unwrap().port(), 10913);
}
