//! The agent's port: sockets that systemd passes, and the port that it holds.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
};

use anyhow::{Result, ensure};
use hyper::StatusCode;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use virtfleet_tests::{
    bins,
    dns::NetNs,
    enrolment::EnrolmentClient,
    guest::Suite,
    machine::{Machine, Options, Root, play},
    pki::Authority,
    process::{Launch, Process},
};

use crate::agent_stage::{AgentStage, SOON};

/// Starts the agent with a socket, as systemd does.
fn start_with(stage: &AgentStage, socket: &TcpListener) -> Process {
    fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let script = "exec 3<&\"$0\"; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let launch = Launch::new("bash")
        .args(["-c", script])
        .arg(socket.as_raw_fd().to_string())
        .arg(bins::agent().unwrap())
        .arg("run");
    let mut agent = stage.home.with_paths(launch).start(stage.folder.path()).unwrap();
    fcntl(socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    agent.wait_for_line("serving", SOON).unwrap();
    agent
}

#[test]
fn a_passed_socket_is_served_and_the_port_stays_held() {
    let stage = AgentStage::new();
    let socket = TcpListener::bind(stage.home.address).unwrap();
    let is_taken = || TcpListener::bind(stage.home.address).is_err();
    for _ in 0..2 {
        let agent = start_with(&stage, &socket);
        assert_eq!(stage.connect().get("/healthz").unwrap().status, StatusCode::OK);
        assert!(is_taken());
        agent.terminate(SOON).unwrap();
        assert!(is_taken(), "also while the agent does not run");
    }
}

#[test]
fn a_passed_socket_on_all_addresses_serves_only_the_listeners() {
    let mut stage = AgentStage::new();
    let socket = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    stage.home.address = SocketAddr::from(([127, 0, 0, 1], port));
    stage.configure_tls("clients: []");
    let _agent = start_with(&stage, &socket);
    stage.connect().get("/healthz").unwrap().ok().unwrap();
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], port));
    TcpStream::connect(elsewhere).unwrap();
    assert!(EnrolmentClient::connect(elsewhere, &stage.collector(), SOON).is_err());
}

#[test]
fn a_passed_socket_without_a_listener_is_closed_with_a_warning() {
    let stage = AgentStage::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let agent = start_with(&stage, &socket);
    stage.connect().get("/healthz").unwrap().ok().unwrap();
    assert!(
        agent.log().contains("no listener of the settings uses"),
        "{}",
        agent.log()
    );
}

const SETTINGS: &str = "server: {listeners: [{name: default, address: \"[::]:10911\", plain: false}], tls: \
                        {enrolment: true, clientCA: /etc/virtfleet/ca.pem}}";
/// Exits with 0 if a user without privileges can listen on the port.
const IMPOSTOR: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups python3 -c 'import socket\n\
for family, address in ((socket.AF_INET6, \"::\"), (socket.AF_INET, \"0.0.0.0\"), (socket.AF_INET, \"127.0.0.1\")):\n\
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):\n\
        s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, option, 1)\n\
        try: s.bind((address, 10911)); s.listen(1); exit(0)\n\
        except OSError: pass\n\
exit(1)'";
/// Connects, and exits with 0 once the other side closes the connection or 2 s have passed.
const CONNECT: &str = "timeout 2 python3 -c 'import socket; s = socket.create_connection((\"127.0.0.1\", 10911)); \
                       s.recv(1)' || true";

fn the_port_is_held(root: &Root) -> Result<()> {
    let network = NetNs::new()?;
    let clients = Authority::new("clients")?;
    let options = Options::default()
        .agent(SETTINGS)
        .file("/etc/virtfleet/ca.pem", &clients.pem());
    let machine = Machine::boot(root, &network, options)?;
    let is_held = || -> Result<()> {
        let (code, text) = machine.try_sh(IMPOSTOR)?;
        ensure!(code == 1, "an impostor listens: {code}: {text}");
        Ok(())
    };
    let state = |unit: &str| machine.sh(&format!("systemctl show -P ActiveState {unit}"));
    machine.until_sh(
        SOON,
        "systemctl is-active virtfleet-agent.service virtfleet-agent.socket",
    )?;
    is_held()?;
    // The socket came before everything that waits for sysinit.target.
    machine.sh(
        "a=$(systemctl show -P ActiveEnterTimestampMonotonic virtfleet-agent.socket); \
         b=$(systemctl show -P ActiveEnterTimestampMonotonic sysinit.target); test \"$a\" -lt \"$b\"",
    )?;
    let files = machine.sh("stat -c '%a %U' /var/lib/virtfleet-agent /var/lib/virtfleet-agent/key.der")?;
    ensure!(files == "700 virtfleet\n600 virtfleet\n", "{files}");
    let (_, doctor) = machine.try_sh("virtfleet-agent doctor")?;
    ensure!(doctor.contains("waiting for"), "{doctor}");
    let key = machine.sh("sha256sum /var/lib/virtfleet-agent/key.der")?;

    machine.sh("systemctl stop virtfleet-agent.service")?;
    is_held()?;
    for _ in 0..2 {
        machine.sh(CONNECT)?;
    }
    ensure!(
        state("virtfleet-agent.service")? == "inactive\n",
        "a connection started the agent"
    );
    is_held()?;
    machine.sh("systemctl start virtfleet-agent.service")?;
    ensure!(
        machine.sh("sha256sum /var/lib/virtfleet-agent/key.der")? == key,
        "another key"
    );

    // Wrong settings: the agent ends with code 78, and no connection starts it.
    machine.sh("rm /etc/virtfleet/agent.d/*.yaml; systemctl restart virtfleet-agent.service || true")?;
    machine.until_sh(
        SOON,
        "test \"$(systemctl show -P ExecMainStatus virtfleet-agent.service)\" = 78",
    )?;
    for _ in 0..2 {
        machine.sh(CONNECT)?;
    }
    ensure!(
        state("virtfleet-agent.service")? == "failed\n",
        "a connection started the agent"
    );
    is_held()?;
    ensure!(state("virtfleet-agent.socket")? == "active\n");
    Ok(())
}

#[test]
fn tier2_systemd_holds_the_port_before_and_without_the_agent() {
    let test = "tier2_systemd_holds_the_port_before_and_without_the_agent";
    for suite in [Suite::Bookworm, Suite::Trixie] {
        play(test, suite, the_port_is_held).unwrap();
    }
}

/// An agent of before this unit holds the port itself.
fn an_upgrade(root: &Root) -> Result<()> {
    let network = NetNs::new()?;
    let mut machine = Machine::boot(root, &network, Options::default().agent(""))?;
    machine.sh("systemctl mask --now virtfleet-agent.socket; systemctl restart virtfleet-agent.service")?;
    let by_itself =
        "systemctl is-active virtfleet-agent.service && ! systemctl is-active virtfleet-agent.socket";
    machine.until_sh(SOON, by_itself)?;
    machine.sh("systemctl unmask virtfleet-agent.socket; systemctl daemon-reload; systemctl enable virtfleet-agent.socket")?;
    // As the package and `install` do.
    machine.sh("systemctl restart virtfleet-agent.service")?;
    let both = "systemctl is-active virtfleet-agent.service virtfleet-agent.socket";
    machine.until_sh(SOON, both)?;
    machine.reboot()?;
    machine.until_sh(SOON, both)?;
    Ok(())
}

#[test]
fn tier2_an_upgrade_opens_the_socket() {
    play("tier2_an_upgrade_opens_the_socket", Suite::Trixie, an_upgrade).unwrap();
}
