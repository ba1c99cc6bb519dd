//! Which machines get the agent: one delivery for several kinds of machines, and systems that are
//! too old.

use std::fs;

use super::{
    guest::{COMMAND_TIMEOUT, Guest},
    sources::needs,
};

const RECORD: &str = "root/var/lib/virtfleet/delivery/installed";

/// Renders an input with a binary for each of these machines: its name, and the file.
fn deliver(guest: &Guest, machines: &[(&str, &str)]) {
    let lines = machines.iter().map(|(machine, file)| {
        let url = guest.at(file);
        format!(
            "    {machine}: {{ file: {file}, sources: [{{ url: \"file://{}\" }}] }}\n",
            url.display()
        )
    });
    let machines = lines.collect::<Vec<_>>().concat();
    guest.deliver_agent(&format!("  version: 1.2.3\n  machines:\n{machines}"), "");
}

#[test]
fn tier2_each_kind_of_machine_gets_its_own_binary() {
    let test = "tier2_each_kind_of_machine_gets_its_own_binary";
    if !needs(test, &["dash", "bash"]) {
        return;
    }
    for shell in ["dash", "bash"] {
        let guest = Guest::new().shell(shell);
        let own = guest.machine();
        let other = if own == "x86_64" { "aarch64" } else { "x86_64" };
        guest.write("other", "a program of another machine");
        deliver(&guest, &[(other, "other"), (&own, "source")]);
        let ran = guest.boot();
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        assert!(guest.has_agent(), "{}", ran.said);
        // The agent's record names the sum for this machine, so a manual upgrade stays.
        let record = guest.text(RECORD);
        let wanted = format!("wanted {}\n", guest.sum("source"));
        assert!(record.contains(&wanted), "{record}");
        let before = guest.state();
        let ran = guest.boot();
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        assert_eq!(guest.state(), before, "the second boot changes nothing");

        // The same user-data on the other machine.
        guest.tool("uname", &format!("echo {other}"));
        let ran = guest
            .launch(shell)
            .arg(guest.at("boot"))
            .output(COMMAND_TIMEOUT)
            .unwrap();
        assert!(ran.status.success());
        let agent = "root/opt/virtfleet/bin/virtfleet-agent";
        assert!(!guest.has_agent() && guest.at(agent).exists());
        assert_eq!(guest.sum(agent), guest.sum("other"));
    }
}

#[test]
fn tier2_a_machine_without_a_binary_gets_one_clear_line_and_no_retry() {
    let test = "tier2_a_machine_without_a_binary_gets_one_clear_line_and_no_retry";
    if !needs(test, &["dash"]) {
        return;
    }
    let guest = Guest::new();
    guest.write("root/dev/console", "");
    guest.tool("uname", "echo riscv64");
    deliver(&guest, &[("aarch64", "source"), ("x86_64", "source")]);
    let ran = guest.boot();
    assert_eq!(ran.code, Some(0), "user-data never fails: {}", ran.said);
    let line = "virtfleet-delivery: this machine is riscv64, and user-data has the agent only for aarch64 x86_64 \
                (agent.machines): not installed\n";
    assert_eq!(guest.text("root/dev/console"), line, "{}", ran.said);
    assert!(!guest.has_agent());
    // systemd does not start a unit again that ends with this code.
    assert_eq!(guest.service().code, Some(69));
    let unit = fs::read_to_string(guest.at("root/etc/systemd/system/virtfleet-delivery.service")).unwrap();
    assert!(unit.contains("\nRestartPreventExitStatus=69\n"), "{unit}");
    let started = guest.calls().iter().any(|call| call.contains("start --no-block"));
    assert!(!started, "{:?}", guest.calls());
}

#[test]
fn tier2_a_system_with_an_older_systemd_is_refused_in_one_clear_line() {
    let test = "tier2_a_system_with_an_older_systemd_is_refused_in_one_clear_line";
    if !needs(test, &["dash", "bash"]) {
        return;
    }
    for shell in ["dash", "bash"] {
        let guest = Guest::new().shell(shell);
        guest.write("root/dev/console", "");
        // Enterprise Linux 8.
        guest.tool("systemctl", "echo 'systemd 239 (239-82.el8)'; echo '+PAM +AUDIT'");
        guest.deliver_the_source("");
        let ran = guest.boot();
        assert_eq!(ran.code, Some(0), "user-data never fails: {}", ran.said);
        let line = "virtfleet-delivery: this system has systemd 239, and the agent needs systemd 244 or newer: not \
                    installed\n";
        assert_eq!(guest.text("root/dev/console"), line, "{}", ran.said);
        assert!(!guest.has_agent());
        assert_eq!(guest.service().code, Some(69));
        guest.tool("systemctl", "echo 'systemd 244 (244.1)'");
        let ran = guest.boot();
        assert!(guest.has_agent(), "{}", ran.said);
    }
}
