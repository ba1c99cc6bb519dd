//! The agent connects from within the sandbox of its unit, under a real systemd.

use anyhow::{Result, ensure};
use virtfleet_tests::{
    bins,
    dns::{NetNs, Resolver},
    guest::Suite,
    machine::{Machine, Options, Root, play},
    pki::Authority,
    skip, wait,
};

use crate::agent_stage::SOON;

const SETTINGS: &str = "server: {listeners: [{name: default, address: \"[::]:10911\", plain: false}], tls: \
                        {enrolment: true, clientCA: /etc/virtfleet/ca.pem}}\n\
                        push: {collector: \"localhost:10913\", after: 1s, tokenFile: /etc/virtfleet/token}";
/// Accepts connections and keeps them open.
const LISTEN: &str = "systemd-run --unit collector python3 -c 'import socket\n\
s = socket.create_server((\"127.0.0.1\", 10913)); held = []\n\
while True: held.append(s.accept())'";
/// Runs a program as a user without privileges.
const UNPRIVILEGED: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

/// What glibc would need to resolve names, in a root whose NSS modules are of another glibc.
const SEARCHED: &str = "rm -f /etc/resolv.conf; \
printf 'nameserver 127.0.0.1\\nsearch ns.svc.cluster.local\\noptions ndots:5\\n' >/etc/resolv.conf; \
echo 'hosts: files mymachines resolve [!UNAVAIL=return] myhostname dns' >/etc/nsswitch.conf; \
sed -i 's/localhost:10913/relay:10913/' /etc/virtfleet/agent.d/50-test.yaml; systemctl restart virtfleet-agent.service";

fn connects(root: &Root) -> Result<()> {
    let network = NetNs::new()?;
    let clients = Authority::new("clients")?;
    let options = Options::default()
        .agent(SETTINGS)
        .file("/etc/virtfleet/ca.pem", &clients.pem())
        .file("/etc/virtfleet/token", "vft1.a.b")
        .file("/etc/hosts", "127.0.0.1 localhost\n");
    let machine = Machine::boot(root, &network, options)?;
    let doctor = || machine.try_sh(&format!("{UNPRIVILEGED} virtfleet-agent doctor"));
    let says = |part: &str| {
        wait::eventually(SOON, part, || {
            let (_, doctor) = doctor()?;
            ensure!(doctor.contains(part), "{doctor}");
            Ok(())
        })
    };
    machine.until_sh(SOON, "systemctl is-active virtfleet-agent.service")?;
    machine.sh("chmod 0600 /etc/virtfleet/token; systemctl restart virtfleet-agent.service")?;
    // It resolves the name, and the kernel refuses.
    says("127.0.0.1:10913 refused the connection")?;
    says("/etc/virtfleet/token: permission denied")?;
    let file = machine.sh("stat -c '%a %U' /run/virtfleet-agent /run/virtfleet-agent/way.json")?;
    ensure!(file == "755 virtfleet\n644 virtfleet\n", "{file}");
    machine.sh(LISTEN)?;
    machine.sh("chgrp virtfleet /etc/virtfleet/token; chmod 0640 /etc/virtfleet/token")?;
    says("the agent connected to localhost:10913 (127.0.0.1:10913)")?;
    machine.sh("systemctl restart virtfleet-agent.service")?;
    says("the agent connected to localhost:10913 (127.0.0.1:10913)")?;
    let (_, doctor) = doctor()?;
    ensure!(!doctor.contains("the join token"), "the agent reads it: {doctor}");
    // Other users do not, and find it in no other file. The pattern does not match itself, should
    // the journal have it.
    let find = |user: &str| {
        let script = format!("{user} grep -rls -D skip 'vft1[.]a[.]b' /etc /run /tmp /var");
        machine.try_sh(&script)
    };
    let (_, found) = find("")?;
    ensure!(found == "/etc/virtfleet/token\n", "root: {found}");
    let (_, found) = find(UNPRIVILEGED)?;
    ensure!(found.is_empty(), "a user without privileges: {found}");
    // A name below a search domain, at a real nameserver.
    let known = "--address=/relay.ns.svc.cluster.local/127.0.0.1";
    let _nameserver = Resolver::dnsmasq(&network, "127.0.0.1", &[known])?;
    machine.sh(SEARCHED)?;
    says("the agent connected to relay:10913 (127.0.0.1:10913)")?;
    let maps = machine.sh("cat /proc/$(systemctl show -P MainPID virtfleet-agent.service)/maps")?;
    ensure!(!maps.contains("libnss_"), "{maps}");
    machine.sh("systemctl stop virtfleet-agent.service; test ! -e /run/virtfleet-agent")?;
    Ok(())
}

#[test]
fn tier4_the_static_agent_has_no_code_that_loads_nss_modules() {
    let test = "tier4_the_static_agent_has_no_code_that_loads_nss_modules";
    let Some(agent) = skip::need(4, test, bins::static_agent()).unwrap() else {
        return;
    };
    let bytes = std::fs::read(agent).unwrap();
    for part in ["libnss_", "nsswitch.conf", "getaddrinfo"] {
        let found = bytes.windows(part.len()).any(|window| window == part.as_bytes());
        assert!(
            !found,
            "{part}: getaddrinfo(3) or getpwnam(3) is linked, see decision 0033"
        );
    }
}

#[test]
fn tier2_the_agent_connects_within_its_sandbox_on_debian_13() {
    play(
        "tier2_the_agent_connects_within_its_sandbox_on_debian_13",
        Suite::Trixie,
        connects,
    )
    .unwrap();
}

#[test]
fn tier2_the_agent_connects_within_its_sandbox() {
    play(
        "tier2_the_agent_connects_within_its_sandbox",
        Suite::Bookworm,
        connects,
    )
    .unwrap();
}
