//! Tier 3: of two collectors behind one Service, clients get the verdict of the leader only.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::ensure;
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use virtfleet_tests::{
    bins,
    cluster::{
        live::{Collector, WAIT_TIMEOUT},
        scene::Scene,
    },
    parts,
    process::Launch,
    skip, wait,
};

const VM: &str = "/api/v1/vms/prod/vm-1";

/// A Service: connections go to the collectors by turns.
struct Service {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Service {
    fn start(collectors: [SocketAddr; 2]) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let turn = Arc::clone(&connections);
        runtime.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = collectors[turn.fetch_add(1, Ordering::Relaxed) % 2];
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(to).await {
                        // The client sees whatever breaks a connection.
                        drop(copy_bidirectional(&mut client, &mut server).await);
                    }
                });
            }
        });
        Self {
            address,
            connections,
            _runtime: runtime,
        }
    }

    /// Which collector answers virtfleetctl, by the time since when it remembers the VM.
    fn answered_by(&self) -> u64 {
        let text = Launch::new(bins::ctl().unwrap())
            .env("VIRTFLEET_SERVER", format!("http://{}", self.address))
            .args(["vm", "prod/vm-1", "-o", "json"])
            .text(WAIT_TIMEOUT)
            .unwrap();
        let vm: Value = serde_json::from_str(&text).unwrap();
        vm["timelineSinceMs"].as_u64().unwrap()
    }
}

fn is_refused(standby: &Collector) -> anyhow::Result<()> {
    let refused = standby.json(VM).err();
    let refused = refused.map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refused.contains("not_leading"), "{refused}");
    Ok(())
}

#[test]
fn of_two_collectors_the_leader_alone_gives_verdicts_tier3() {
    let test = "of_two_collectors_the_leader_alone_gives_verdicts_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = Scene::new(&["prod"]).unwrap();
    scene.host("host-1", &[]).unwrap();
    scene.vmi("prod", "vm-1", "host-1").unwrap();
    scene.tenants[0].node("vm-1", &[]).unwrap();
    let leader = scene.collector("leader", "").unwrap();
    leader.until_ready().unwrap();
    leader.until_leads().unwrap();
    let standby = scene.collector("standby", "").unwrap();
    standby.until_ready().unwrap();
    wait::eventually(WAIT_TIMEOUT, "the standby refers to the leader", || {
        is_refused(&standby)
    })
    .unwrap();

    let service = Service::start([leader.api, standby.api]);
    let answered: BTreeSet<_> = (0..20).map(|_| service.answered_by()).collect();
    assert_eq!(answered.len(), 1, "{answered:?}");
    let connections = service.connections.load(Ordering::Relaxed);
    assert!(connections > 20, "{connections}: all reached the leader at once");

    leader.process.signal(Signal::SIGKILL).unwrap();
    standby.until_leads().unwrap();
    standby.json(VM).unwrap();
}
