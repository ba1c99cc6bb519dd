//! Idle connections, as any guest in the network can open them, keep no other client out of the
//! real programs.

use std::{fs, net::TcpStream};

use virtfleet_tests::{
    bins, ports,
    process::Launch,
    scrape::Client,
    sim::{Options, raise_file_limit},
    stage::{Beat, STAGE_TIMEOUT, Stage},
    this_machine,
};

#[test]
fn idle_connections_silence_neither_agent_nor_api_nor_probes() {
    raise_file_limit().unwrap();
    let options = Options {
        guests: 1,
        ..Options::default()
    };
    let mut stage = Stage::new(options).unwrap();
    let own = this_machine::as_guest(&stage).unwrap();
    stage.start_agent(&own, "").unwrap();
    let probes = ports::free().unwrap();
    let config = stage.path().join("collector.yaml");
    let settings = stage.collector_config(Beat::default());
    let with_probes = format!("server: {{ probeAddress: \"{probes}\",");
    fs::write(&config, settings.replace("server: {", &with_probes)).unwrap();
    let mut collector = Launch::new(bins::collector().unwrap())
        .arg("serve")
        .arg("--config")
        .arg(&config)
        .start(stage.path())
        .unwrap();
    for address in [stage.api, probes] {
        collector.wait_for_port(address, STAGE_TIMEOUT).unwrap();
    }

    let idle = |count: usize, address| -> Vec<TcpStream> {
        let open = |_| TcpStream::connect(address).unwrap();
        (0..count).map(open).collect()
    };
    let _held = [idle(190, own.address), idle(520, stage.api), idle(100, probes)];
    let tls = stage
        .authority
        .client_config(&stage.authority.collector().unwrap())
        .unwrap();
    for _ in 0..3 {
        for (address, path) in [
            (probes, "/healthz"),
            (probes, "/readyz"),
            (stage.api, "/healthz"),
            (stage.api, "/api/v1/vms"),
        ] {
            let answer = Client::plain(address, STAGE_TIMEOUT).unwrap().get(path).unwrap();
            assert_eq!(answer.status.as_u16(), 200, "{path}");
        }
        let mut agent = Client::tls(own.address, tls.clone(), STAGE_TIMEOUT).unwrap();
        agent.get("/v1/report").unwrap().ok().unwrap();
    }
    let others = Client::plain(probes, STAGE_TIMEOUT)
        .unwrap()
        .get("/api/v1/vms")
        .unwrap();
    assert_eq!(
        others.status.as_u16(),
        404,
        "the port of the probes has nothing else"
    );
}
