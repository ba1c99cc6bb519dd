//! Tier 1: the simulated fleet does what it says, each fault too. What it proves is leant on by
//! every scenario with a fleet.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    io::Read as _,
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::ClientConfig;
use virtfleet_tests::{
    bins,
    pki::Authority,
    ports,
    process::Launch,
    scrape::{Answer, Client},
    sim::{Fault, Fleet, Guest, Options, Plan},
};
use virtfleet_wire::{
    exposition::{Line, parse_line},
    report::{GuestReport, MAX_REPORT_BYTES},
};

const SOON: Duration = Duration::from_secs(30);

struct World {
    plan: Plan,
    authority: Authority,
    client: Arc<ClientConfig>,
    _fleet: Fleet,
}

impl World {
    fn new(faults: &[(Fault, usize)]) -> Self {
        let port = ports::free().unwrap().port();
        let plan = Plan::new(&Options {
            port,
            guests: 20,
            faults: faults.to_vec(),
            ..Options::default()
        })
        .unwrap();
        let authority = Authority::new("test").unwrap();
        let fleet = Fleet::start(&plan, &authority).unwrap();
        let client = authority.client_config(&authority.collector().unwrap()).unwrap();
        Self {
            plan,
            authority,
            client,
            _fleet: fleet,
        }
    }

    fn guest(&self, fault: Fault) -> &Guest {
        self.plan
            .guests
            .iter()
            .find(|guest| guest.fault == Some(fault))
            .unwrap()
    }

    fn get(&self, address: SocketAddr, path: &str, deadline: Duration) -> anyhow::Result<Answer> {
        Client::tls(address, Arc::clone(&self.client), deadline)?.get(path)
    }
}

#[test]
fn a_guest_answers_with_its_own_page_and_report() {
    let world = World::new(&[]);
    for guest in world.plan.healthy() {
        let mut client = Client::tls(guest.address, Arc::clone(&world.client), SOON).unwrap();
        let page = client.get("/metrics").unwrap().ok().unwrap();
        let nodename = format!("nodename=\"{}\"", guest.name);
        let text = page.text().unwrap();
        assert!(text.contains(&nodename), "{}", guest.name);
        for line in text.lines() {
            assert!(!matches!(parse_line(line).unwrap(), Line::Blank), "{line}");
        }
        let first = GuestReport::from_json(&client.get("/v1/report").unwrap().ok().unwrap().body).unwrap();
        let second = GuestReport::from_json(&client.get("/v1/report").unwrap().ok().unwrap().body).unwrap();
        assert_eq!(
            first.identity.smbios_uuid.unwrap().value,
            guest.firmware.to_string()
        );
        assert_eq!((first.seq + 1, first.boot_id), (second.seq, second.boot_id));
        let zipped = client
            .get_with("/metrics", &[("accept-encoding", "gzip")])
            .unwrap()
            .ok()
            .unwrap();
        let mut plain = String::new();
        flate2::read::GzDecoder::new(&*zipped.body)
            .read_to_string(&mut plain)
            .unwrap();
        assert!(zipped.body.len() * 3 < plain.len() && plain.contains(&nodename));
        assert_eq!(client.get("/nowhere").unwrap().status.as_u16(), 404);
    }
}

#[test]
fn only_clients_with_a_certificate_are_answered() {
    let world = World::new(&[]);
    let address = world.plan.guests[0].address;
    Client::plain(address, SOON).unwrap().get("/metrics").unwrap_err();
    let stranger = Authority::new("stranger").unwrap();
    // In TLS 1.3 a client learns only from the first answer that its certificate was refused.
    let config = world
        .authority
        .client_config(&stranger.collector().unwrap())
        .unwrap();
    let answer = Client::tls(address, config, SOON).and_then(|mut client| client.get("/metrics"));
    answer.unwrap_err();
}

#[test]
fn faults_are_as_they_are_described() {
    let faults: Vec<_> = Fault::ALL.iter().map(|&fault| (fault, 1)).collect();
    let world = World::new(&faults);
    // For answers that never come. What comes gets time, because the machine may be busy.
    let brief = Duration::from_millis(500);
    for &fault in Fault::ALL {
        let address = world.guest(fault).address;
        let get_briefly = |path| world.get(address, path, brief);
        let get = |path| world.get(address, path, SOON);
        match fault {
            Fault::Silent => {
                TcpStream::connect(address).unwrap();
                let error = get_briefly("/metrics").unwrap_err();
                assert!(error.to_string().contains("no answer in"), "{error}");
            }
            Fault::Endless => {
                get_briefly("/metrics").unwrap_err();
                get("/v1/report").unwrap().ok().unwrap();
            }
            Fault::HugeReport => {
                assert!(get("/v1/report").unwrap().body.len() > 10 * 1024 * 1024);
                get("/metrics").unwrap().ok().unwrap();
            }
            Fault::WrongCa => {
                let error = format!("{:#}", get("/metrics").unwrap_err());
                assert!(error.contains("UnknownIssuer"), "{error}");
            }
            // Who is dialled, and what a certificate's URI says of it, is the collector's business:
            // TLS itself is content.
            Fault::WrongVm => drop(get("/metrics").unwrap().ok().unwrap()),
            Fault::Http500 => assert_eq!(get("/metrics").unwrap().status.as_u16(), 500),
            Fault::Slow => drop(get_briefly("/metrics").unwrap_err()),
            Fault::Continue | Fault::Headers => drop(get_briefly("/metrics").unwrap_err()),
            Fault::Late => {
                get_briefly("/metrics").unwrap_err();
                get("/metrics").unwrap().ok().unwrap();
            }
            Fault::Redirect => assert_eq!(get("/metrics").unwrap().status.as_u16(), 302),
            Fault::Forge => {
                let page = get("/metrics").unwrap().ok().unwrap();
                assert!(page.text().unwrap().contains("\nvirtfleet_vm_placement_info{"));
            }
            Fault::Claims => {
                let report = get("/v1/report").unwrap().ok().unwrap().body;
                let report = GuestReport::from_json(&report).unwrap();
                let claimed = report.identity.smbios_uuid.unwrap().value;
                assert_eq!(claimed, world.plan.guests[0].firmware.to_string());
                assert!(!report.findings.is_empty());
            }
            Fault::Echo | Fault::Sections | Fault::Findings => {
                let report = get("/v1/report").unwrap().ok().unwrap().body;
                assert!(report.len() <= MAX_REPORT_BYTES, "{}", report.len());
                GuestReport::from_json(&report).unwrap_err();
            }
            Fault::Garbage => {
                let page = get("/metrics").unwrap().ok().unwrap();
                assert!(page.text().unwrap().lines().any(|line| parse_line(line).is_err()));
                GuestReport::from_json(&get("/v1/report").unwrap().body).unwrap_err();
            }
        }
    }
    for guest in world.plan.healthy() {
        world.get(guest.address, "/metrics", SOON).unwrap().ok().unwrap();
    }
}

#[test]
fn the_program_is_ready_when_it_says_so_and_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let port = ports::free().unwrap().port();
    let mut process = Launch::new(bins::fleet_sim().unwrap())
        .args([
            "--guests",
            "5",
            "--fault",
            "silent=1,garbage=2",
            "--port",
            &port.to_string(),
        ])
        .arg("--folder")
        .arg(folder.path().join("manifests"))
        .arg("--pki")
        .arg(folder.path().join("pki"))
        .start(folder.path())
        .unwrap();
    let line = process.wait_for_line("ready", SOON).unwrap();
    assert!(
        line.contains("5 guests on 6 hosts, 2 user clusters, 1 silent, 2 garbage"),
        "{line}"
    );
    assert!(
        folder
            .path()
            .join("manifests/infra/vmi-cluster-a-worker-0.yaml")
            .is_file()
    );
    assert!(folder.path().join("pki/collector.key").is_file());
    assert!(process.terminate(SOON).unwrap().success());

    let wrong = Launch::new(bins::fleet_sim().unwrap())
        .args([
            "--guests", "5", "--fault", "gone=1", "--folder", "/x", "--pki", "/x",
        ])
        .output(SOON)
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        String::from_utf8(wrong.stderr)
            .unwrap()
            .contains("there is no fault")
    );
}
