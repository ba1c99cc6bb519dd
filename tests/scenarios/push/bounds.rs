//! Peers that waste connections: what they hold is bounded, and honest agents are joined meanwhile.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use virtfleet_tests::{sim::enrol::AgentSpec, stage::STAGE_TIMEOUT, wait};

use super::kit::PushKit;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(STAGE_TIMEOUT)).unwrap();
    stream
}

/// A connection from this address.
fn from(source: IpAddr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(source, 0)).unwrap();
        socket.connect(to).await.unwrap()
    });
    stream.into_std().unwrap()
}

/// Connects repeatedly, until it is dropped.
struct Flood {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(source: IpAddr, to: SocketAddr) -> Self {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // Closed connections keep their ports for a minute, so there must not be too many.
            let pause = Duration::from_millis(5);
            while ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                drop(from(source, to));
            }
        });
        Self {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// Waits until the collector has closed a connection.
fn until_closed(stream: &mut TcpStream) {
    let mut received = [0; 4096];
    loop {
        match stream.read(&mut received) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
                return;
            }
        }
    }
}

#[test]
fn a_peer_that_never_handshakes_or_is_slow_is_closed() {
    let kit = PushKit::new(1, ", handshakeTimeout: 1s");
    let mut silent = connect(kit.ingest);
    let mut slow = connect(kit.ingest);
    // The collector is the client: it sends its ClientHello first.
    let mut first = [0; 5];
    silent.read_exact(&mut first).unwrap();
    assert_eq!(first[..2], [0x16, 0x03], "a TLS handshake record");
    // The head of a record of 16 KiB, and nothing more.
    slow.write_all(&[0x16, 0x03, 0x03, 0x40, 0x00, 0x02]).unwrap();
    until_closed(&mut silent);
    until_closed(&mut slow);
    wait::until(STAGE_TIMEOUT, "both are counted", || {
        kit.results("timeout") + kit.results("tls") >= 2
    })
    .unwrap();
    let none = || kit.metric("connections_open") == 0;
    wait::until(STAGE_TIMEOUT, "none is open", none).unwrap();
}

#[test]
fn a_peer_that_sends_something_else_is_closed_at_once() {
    let kit = PushKit::new(1, "");
    let mut other = connect(kit.ingest);
    other
        .write_all(b"GET / HTTP/1.1\r\nhost: collector\r\n\r\n")
        .unwrap();
    until_closed(&mut other);
    kit.until_closed("tls");
}

#[test]
fn one_address_has_few_connections_and_honest_agents_are_joined() {
    let kit = PushKit::new(
        3,
        ", maxUnverified: 32, maxUnverifiedPerPeer: 16, handshakeTimeout: 30s",
    );
    let held: Vec<_> = (0..200).map(|_| connect(kit.ingest)).collect();
    wait::until(STAGE_TIMEOUT, "the others are refused", || {
        kit.results("full") + kit.results("too_fast") >= 184
    })
    .unwrap();
    let held_open = || kit.metric("connections_open") == 16;
    wait::until(
        STAGE_TIMEOUT,
        "as many as one address may have are open",
        held_open,
    )
    .unwrap();
    let guests = kit.kit.stage.plan.guests.clone();
    let _agents: Vec<_> = guests.iter().map(|guest| kit.push(guest)).collect();
    kit.kit.stage.until_up(3).unwrap();
    drop(held);
}

#[test]
fn many_addresses_that_fill_the_table_do_not_keep_honest_agents_out() {
    let kit = PushKit::new(
        2,
        ", maxUnverified: 8, maxUnverifiedPerPeer: 4, handshakeTimeout: 30s",
    );
    let foreign = |last: u8| from(Ipv4Addr::new(127, 0, 1, last).into(), kit.ingest);
    let held: Vec<_> = (1..=3).flat_map(|last| [(); 4].map(|()| foreign(last))).collect();
    wait::until(STAGE_TIMEOUT, "the table is full", || kit.results("full") >= 4).unwrap();
    let guests = kit.kit.stage.plan.guests.clone();
    let _agents: Vec<_> = guests.iter().map(|guest| kit.push(guest)).collect();
    kit.kit.stage.until_up(2).unwrap();
    drop(held);
}

#[test]
fn a_vm_that_connects_at_full_speed_is_slowed_down_and_others_are_joined() {
    let kit = PushKit::new(2, "");
    let (attacker, honest) = (kit.kit.guest(0), kit.kit.guest(1));
    let started = Instant::now();
    let flood = Flood::start(attacker.address.ip(), kit.ingest);
    wait::until(STAGE_TIMEOUT, "it is slowed down", || {
        kit.results("too_fast") >= 50
    })
    .unwrap();
    let handshakes = kit.results("tls") + kit.results("connect") + kit.results("timeout");
    // A burst of 10, and 4 a second.
    let admitted = 10 + started.elapsed().as_millis() / 250;
    assert!(u128::from(handshakes) <= admitted, "{handshakes} of {admitted}");
    let _agent = kit.push(&honest);
    kit.until_way(&honest, "push");
    drop(flood);
}

/// An agent and every other process of its guest have one address.
#[test]
fn connections_that_a_process_holds_do_not_keep_the_agent_of_the_same_vm_out() {
    let kit = PushKit::new(1, ", maxUnverifiedPerPeer: 4, handshakeTimeout: 1m");
    let guest = kit.kit.guest(0);
    let held: Vec<_> = (0..4).map(|_| from(guest.address.ip(), kit.ingest)).collect();
    wait::until(STAGE_TIMEOUT, "all places of the address are taken", || {
        kit.metric("connections_open") == 4
    })
    .unwrap();
    let _agent = kit.push(&guest);
    kit.until_way(&guest, "push");
    drop(held);
}

#[test]
fn a_vm_behind_a_relay_that_connects_at_full_speed_leaves_room_for_others() {
    let kit = PushKit::new(2, "");
    let relay = kit.relay();
    let (attacker, honest) = (kit.kit.guest(0), kit.kit.guest(1));
    let too_fast = "virtfleet_relay_connections_total{direction=\"push\",result=\"too_fast\"}";
    let flood = Flood::start(attacker.address.ip(), relay.forward);
    wait::until(STAGE_TIMEOUT, "the relay slows it down", || {
        relay.metric(too_fast) >= 1.0
    })
    .unwrap();
    let disk = kit.enrolled(&honest);
    let spec = AgentSpec::honest(&honest).unwrap().pushing(relay.forward);
    let _agent = kit.run(spec.with_disk(disk));
    kit.until_way(&honest, "push");
    assert_eq!(kit.results("too_fast"), 0, "the collector admits the relay");
    drop(flood);
}
