//! A process without privileges that wants the agent's port, from early boot on.

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::guest::Guest as Machine;

const PROGRAM: &str = "/usr/local/bin/take-port";
/// Tries every address and option. `once` exits with 0 if it listens on the port; `always` goes on
/// until it does, and counts its rounds. Exits with 2 if it cannot even listen on a free port.
const SCRIPT: &str = r#"#!/usr/bin/perl
use strict;
use Socket qw(:DEFAULT inet_pton);
sub listens {
    my ($family, $address, $port, $option) = @_;
    socket(my $socket, $family, SOCK_STREAM, 0) or return;
    setsockopt($socket, SOL_SOCKET, $option, 1);
    my $host = inet_pton($family, $address);
    my $name = $family == AF_INET ? pack_sockaddr_in($port, $host) : pack_sockaddr_in6($port, $host);
    return bind($socket, $name) && listen($socket, 1) ? $socket : undef;
}
listens(AF_INET, "127.0.0.1", 10921, SO_REUSEADDR) or exit 2;
for (my $round = 1; ; $round++) {
    for my $option (SO_REUSEADDR, SO_REUSEPORT) {
        for my $address ("::", "::1", "0.0.0.0", "127.0.0.1", "127.0.0.9", "10.0.2.15") {
            my $taken = listens($address =~ /:/ ? AF_INET6 : AF_INET, $address, 10911, $option);
            exit 0 if $taken;
        }
    }
    exit 1 if $ARGV[0] eq "once";
    open(my $count, ">", "/run/take-port/new") or exit 3;
    print $count $round;
    close $count;
    rename("/run/take-port/new", "/run/take-port/rounds") or exit 3;
    select(undef, undef, undef, 0.02);
}
"#;
/// Starts as early as any service does whose unit does not say otherwise: after sysinit.target.
const UNIT: &str = "[Unit]
DefaultDependencies=no
After=sysinit.target
[Service]
User=nobody
RuntimeDirectory=take-port
ExecStart=/usr/local/bin/take-port always
[Install]
WantedBy=multi-user.target
";

/// Lets the process start at the next boots.
pub(crate) fn prepare(machine: &Machine) -> Result<()> {
    machine.write_file(PROGRAM, SCRIPT.as_bytes(), "0755")?;
    machine.write_file("/etc/systemd/system/take-port.service", UNIT.as_bytes(), "0644")?;
    // As `systemctl enable`, without its reload.
    machine
        .run("cd /etc/systemd/system && mkdir -p multi-user.target.wants && ln -s ../take-port.service multi-user.target.wants/")
        .map(drop)
}

/// Checks that the process has not got the port in this boot, which it wanted before the agent was
/// there, and does not get it while the agent is stopped. Leaves the agent stopped.
pub(crate) fn was_not_taken(machine: &Machine) -> Result<()> {
    let text = machine.run(
        "systemctl show -P ActiveEnterTimestampMonotonic virtfleet-agent.socket; for unit in take-port virtfleet-agent; do \
         systemctl show -P ExecMainStartTimestampMonotonic $unit; done; cat /run/take-port/rounds; echo; \
         systemctl is-active take-port",
    )?;
    let lines: Vec<&str> = text.lines().collect();
    let times: Vec<u64> = lines.iter().take(3).map_while(|line| line.parse().ok()).collect();
    ensure!(
        times.len() == 3 && times[0] > 0 && times.is_sorted(),
        "socket, impostor and agent have not started in this order: {text}"
    );
    let rounds: u32 = lines
        .get(3)
        .and_then(|line| line.parse().ok())
        .with_context(|| text.clone())?;
    ensure!(
        rounds > 10 && lines.last() == Some(&"active"),
        "the impostor has ended: {text}"
    );
    eprintln!(
        "the port was not taken in {rounds} rounds, the first {} ms before the agent",
        (times[2] - times[1]) / 1000
    );
    machine.run("systemctl stop take-port virtfleet-agent")?;
    let once = machine.sh(&format!(
        "setpriv --reuid=65534 --regid=65534 --clear-groups {PROGRAM} once"
    ))?;
    ensure!(once.code == 1, "while the agent is stopped: {once:?}");
    Ok(())
}
