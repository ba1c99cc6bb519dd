//! The real relay in its pod, between a client at the collector and listeners at the other ends.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
};

use virtfleet_collector_core::connect_head::{self, ConnectRequest};
use virtfleet_tests::{
    bins,
    policy::{self, NODE, PolicyScene, Reach},
    process::Launch,
    scrape::Client,
    skip,
    stage::STAGE_TIMEOUT,
};

use super::{
    RELAY,
    cluster::{Tenants, kkp_deny},
    matrix,
};

fn address(scene: &PolicyScene, host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(scene.address(host).unwrap(), port)
}

fn listen(scene: &PolicyScene, host: &str, port: u16) -> TcpListener {
    let address = address(scene, host, port);
    let listener = scene.network(host).unwrap().run(|| TcpListener::bind(address));
    listener.unwrap().unwrap()
}

fn connect(scene: &PolicyScene, client: &str, address: SocketAddr) -> TcpStream {
    let dial = || TcpStream::connect_timeout(&address, STAGE_TIMEOUT);
    let stream = scene.network(client).unwrap().run(dial).unwrap().unwrap();
    stream.set_read_timeout(Some(STAGE_TIMEOUT)).unwrap();
    stream
}

/// Requests a connection to a VM, and returns the relay's answer with the connection.
fn through_the_relay(scene: &PolicyScene, vm: SocketAddr) -> (String, TcpStream) {
    let mut stream = connect(scene, "collector", address(scene, "relay", 10915));
    let request = connect_head::write_request(&ConnectRequest {
        destination: vm,
        pull_interval: None,
    });
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    (String::from_utf8(answer).unwrap(), stream)
}

/// Sends bytes both ways between a client and what the listener accepts.
fn exchange(client: &mut TcpStream, listener: &TcpListener) {
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(STAGE_TIMEOUT)).unwrap();
    client.write_all(b"question").unwrap();
    let mut received = [0; 8];
    server.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"question");
    server.write_all(b"answer").unwrap();
    let mut received = [0; 6];
    client.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"answer");
}

#[test]
fn tier2_the_real_relay_works_in_both_directions_where_the_collector_reaches_no_vm() {
    let test = "tier2_the_real_relay_works_in_both_directions_where_the_collector_reaches_no_vm";
    if skip::need(2, test, policy::needs()).unwrap().is_none() {
        return;
    }
    let tenants = Tenants::Together;
    let mut places = tenants.places();
    // The relay and the listeners of this test take their places.
    for place in &mut places {
        place.ports.clear();
    }
    let mut scene = PolicyScene::new(places).unwrap();
    let before = [tenants.policies(RELAY), kkp_deny()].concat();
    scene.apply(&before).unwrap();
    let agent = listen(&scene, "vm-a", 10911);
    let collector = listen(&scene, "collector", 10913);
    let folder = tempfile::tempdir().unwrap();
    // The arguments that ship, with an address in place of the collector's name.
    let ingest = address(&scene, "collector", 10913);
    let mut relay = Launch::new(bins::collector().unwrap())
        .in_namespace(scene.network("relay").unwrap().name())
        .args(tenants.manifest("relay.yaml").arguments().unwrap())
        .arg(format!("--forward.collector={ingest}"))
        .start(folder.path())
        .unwrap();
    relay.wait_for_line("relaying", STAGE_TIMEOUT).unwrap();

    // Without pull.yaml the VM does not accept the relay.
    let vm = address(&scene, "vm-a", 10911);
    let (answer, _) = through_the_relay(&scene, vm);
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");

    // Only the relay, not the collector, as the comments of both files say.
    let only_relay = |name: &str| {
        let mut policies = tenants.policies(&[name]);
        let policy = &mut policies[0];
        let mut rules = policy.ingress.iter_mut().chain(&mut policy.egress);
        rules.next().unwrap()[0].peers.remove(0);
        policies
    };
    let vms = [only_relay("pull.yaml"), only_relay("push-egress.yaml")].concat();
    scene.apply(&[before, vms].concat()).unwrap();
    matrix::check_each(&scene, &["collector vm-a:10911"], Reach::IngressDenied);
    matrix::check_each(&scene, &["vm-a collector:10913"], Reach::EgressDenied);
    let (answer, mut stream) = through_the_relay(&scene, vm);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    exchange(&mut stream, &agent);
    let mut stream = connect(&scene, "vm-a", address(&scene, "relay", 10913));
    exchange(&mut stream, &collector);

    // kubelet's probes come from the node; Prometheus reads the metrics; others reach neither.
    let probes = address(&scene, "relay", 10914);
    for (client, path) in [(NODE, "/readyz"), ("prometheus", "/metrics")] {
        let get = || Client::plain(probes, STAGE_TIMEOUT)?.get(path)?.ok();
        scene.network(client).unwrap().run(get).unwrap().unwrap();
    }
    matrix::check_each(&scene, &["foreign relay:10914"], Reach::IngressDenied);
    assert!(relay.terminate(STAGE_TIMEOUT).unwrap().success());
}
