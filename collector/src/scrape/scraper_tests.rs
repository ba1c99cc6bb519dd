//! Tests of the scraper for VMs that cannot be dialled and for pulls that panic.

use std::net::SocketAddr;

use tokio::net::{TcpSocket, TcpStream};
use virtfleet_collector_core::{
    dial::{DialRules, DialTarget},
    facts::{Fact, InventoryEvent, Phase, Vmi},
    pull_result::{FailureClass, FailurePoint},
    view::AgentStatus,
    way::{AgentWay, RelayWay},
};
use virtfleet_runtime::tls::{ClientTls, ClientTlsPaths};

use super::*;
use crate::{fleet::FleetRead as _, leader::LeaseView, scrape::PullLimits};

fn key() -> VmKey {
    VmKey {
        namespace: "ns".parse().unwrap(),
        name: "a".parse().unwrap(),
    }
}

/// A scraper of one running VM that has no address.
fn scraper() -> Scraper {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
    let (certificate, private) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&private, made.signing_key.serialize_pem()).unwrap();
    let tls = ClientTls::new(ClientTlsPaths {
        ca: certificate.clone(),
        certificate,
        key: private,
    });
    let limits = PullLimits {
        timeout: Duration::from_secs(1),
        report_bytes: 1,
        metrics_bytes: 1,
    };
    let fleet = Fleet::new(DialRules::default(), || jiff::Timestamp::UNIX_EPOCH);
    let vmi = Vmi {
        has_status: true,
        phase: Phase::Running,
        ..Vmi::new(key())
    };
    fleet.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(vmi))));
    Scraper {
        schedule: Schedule::new(Duration::from_secs(30), Instant::now()),
        limiter: PullLimiter::new(1),
        starting: StartingVms::default(),
        enroller: None,
        slow: Duration::from_secs(1),
        interval: Duration::from_secs(30),
        pushed: Arc::new(PushedAgents::new(Duration::from_mins(10))),
        push_leadership: None,
        states: HashMap::new(),
        running: JoinSet::new(),
        running_vms: HashMap::new(),
        fleet: Arc::new(fleet),
        puller: Puller::new(Arc::new(tls.unwrap()), "d", limits),
        metrics: PullMetrics::register(&mut prometheus_client::registry::Registry::default()),
    }
}

/// Takes the VM from the schedule, as the loop does when it is due.
fn take(scraper: &mut Scraper) -> Instant {
    let later = Instant::now() + Duration::from_secs(30);
    scraper.schedule.take(later).unwrap().1
}

#[tokio::test]
async fn a_vm_that_cannot_be_dialled_is_silent_and_retried() {
    let mut scraper = scraper();
    scraper.update_target(&key());
    let due = take(&mut scraper);
    scraper.start_pull(key(), due);
    assert!(scraper.states[&key()].silent, "so that it is logged once");
    assert!(scraper.schedule.next().is_some());
}

#[tokio::test]
async fn a_standby_does_not_know_whether_an_agent_that_it_cannot_reach_is_silent() {
    let lease = LeaseView {
        name: "virtfleet/virtfleet-collector".into(),
        holder: Some("collector-x7k_00ff".into()),
    };
    for (leadership, is_silent) in [
        (WriteAccess::standby_of(lease), false),
        (WriteAccess::fixed(true), true),
    ] {
        let mut scraper = scraper();
        scraper.push_leadership = Some(leadership);
        scraper.update_target(&key());
        let due = take(&mut scraper);
        scraper.start_pull(key(), due);
        assert_eq!(scraper.states[&key()].silent, is_silent);
        let status = scraper.fleet.snapshot().vms[&key()].agent.status;
        assert_eq!(status == AgentStatus::Silent, is_silent, "{status:?}");
        assert!(scraper.schedule.next().is_some());
    }
}

#[tokio::test]
async fn a_panic_affects_one_pull_only() {
    let mut scraper = scraper();
    scraper.update_target(&key());
    take(&mut scraper);
    let pull = scraper.running.spawn(async { panic!("a bug") });
    scraper.running_vms.insert(pull.id(), key());
    let joined = scraper.running.join_next_with_id().await.unwrap();
    assert_eq!(scraper.schedule.next(), None, "it is still marked as running");
    scraper.joined(joined);
    assert!(scraper.schedule.next().is_some() && scraper.running_vms.is_empty());
}

/// A guest whose kernel accepts connections, and one that no packet reaches.
#[tokio::test]
async fn a_timeout_says_whether_the_connection_was_accepted() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let target = DialTarget {
        key: key(),
        uid: None,
        vm_uid: None,
        address: listener.local_addr().unwrap(),
        way: AgentWay::Direct,
    };
    let timeout = Duration::from_millis(200);
    // The kernel accepts it, and no program reads from it.
    let accepted = scraper()
        .puller
        .pull(&target, None, timeout)
        .await
        .outcome
        .unwrap_err();
    assert_eq!(
        (accepted.class, accepted.point),
        (FailureClass::Timeout, Some(FailurePoint::Agent)),
        "{accepted:?}"
    );
    assert!(accepted.message().contains("TLS handshake"), "{accepted:?}");
    let _queued = fill_queue(target.address).await;
    let dropped = scraper()
        .puller
        .pull(&target, None, timeout)
        .await
        .outcome
        .unwrap_err();
    assert_eq!(
        (dropped.class, dropped.point),
        (FailureClass::Timeout, None),
        "{dropped:?}"
    );
}

/// Fills the queue of connections of a listener: the kernel drops further ones, as a firewall does,
/// and as a network does whose machine is gone.
async fn fill_queue(address: SocketAddr) -> Vec<TcpStream> {
    let mut queued = Vec::new();
    let timeout = Duration::from_millis(200);
    while let Ok(stream) = tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        queued.push(stream.unwrap());
    }
    queued
}

/// The machine of a relay is gone, so nothing answers at its address. Nothing is wrong with the VM.
#[tokio::test]
async fn a_relay_that_does_not_answer_is_told_from_a_guest_that_does_not() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let relay = listener.local_addr().unwrap();
    let target = DialTarget {
        key: key(),
        uid: None,
        vm_uid: None,
        address: "10.0.0.5:10911".parse().unwrap(),
        way: AgentWay::Relay(RelayWay {
            cluster: "a".parse().unwrap(),
            address: relay.to_string().parse().unwrap(),
            allow: Arc::new(["127.0.0.0/8".parse().unwrap()]),
            pull_interval: None,
        }),
    };
    let pull = async |connect_timeout: Duration| {
        let ended = scraper().puller.pull(&target, None, connect_timeout).await;
        ended.outcome.unwrap_err()
    };
    // It accepts the connection, and may wait for the VM.
    let accepted = pull(Duration::from_millis(200)).await;
    assert_eq!(
        (accepted.class, accepted.point),
        (FailureClass::Timeout, None),
        "{accepted:?}"
    );
    let _queued = fill_queue(relay).await;
    // Of the connection, and of the whole pull.
    for connect_timeout in [Duration::from_millis(200), Duration::MAX] {
        let gone = pull(connect_timeout).await;
        assert_eq!(
            (gone.class, gone.point),
            (FailureClass::Timeout, Some(FailurePoint::Relay)),
            "{gone:?}"
        );
        assert!(gone.message().contains("connecting to the relay"), "{gone:?}");
    }
}
