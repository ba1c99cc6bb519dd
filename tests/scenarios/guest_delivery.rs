//! The delivery in guests that boot: user-data as `virtfleetctl render` prints it, the agent from a
//! mirror or a disk, and the guest in the collector's view. Then the same again with the power cut.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    delivered::Delivery,
    guest::{Seed, Start, Suite, needs, play},
    real::{self, From},
    skip,
    wait::eventually,
};

/// What `vms -o wide` shows of the VM, by column.
fn wide(delivery: &Delivery) -> Result<Vec<String>> {
    let text = delivery
        .stage
        .ctl()?
        .args(["vms", "-o", "wide"])
        .text(real::GUEST_TIMEOUT)?;
    let mut lines = text.lines();
    let header = lines.next().context("no header")?;
    let row = lines
        .find(|line| line.split_whitespace().nth(1) == Some(&delivery.who.name))
        .with_context(|| text.clone())?;
    let starts: Vec<usize> = header
        .split_whitespace()
        .filter_map(|name| header.find(&format!(" {name}")).or_else(|| header.find(name)))
        .collect();
    ensure!(starts.is_sorted(), "{header}");
    let cell = |at: usize| row.get(starts[at]..starts.get(at + 1).copied().unwrap_or(row.len()));
    Ok((0..starts.len())
        .map(|at| cell(at).unwrap_or_default().trim().to_owned())
        .collect())
}

/// The command that runs what takes minutes.
const SOAK: &str = "make guest-soak";

/// What a first boot must lead to, whatever the suite, the datasource and the source of the agent;
/// and what must hold `then`, given the end state.
fn first_boot(
    test: &str,
    suite: Suite,
    seed: fn(&str) -> Seed,
    from: From,
    then: fn(&Delivery, &str) -> Result<()>,
) {
    play(test, |scene| {
        if skip::need(4, test, needs(suite))?.is_none() {
            return Ok(());
        }
        let start = Start::BeforeCloudInit;
        let delivery = Delivery::begin_at(real::PULLS, scene, suite, seed, from, start)?;
        let machine = &delivery.machine;
        machine.wait_cloud_init()?;
        let (shown, end_state) = delivery.done()?;
        let host = &delivery.stage.plan.hosts[0];
        ensure!(
            shown["infraNode"] == *host.name && shown["zone"] == *host.zone,
            "{shown:#}"
        );
        let os = match suite {
            Suite::Bookworm => "Debian GNU/Linux 12 (bookworm)",
            Suite::Trixie => "Debian GNU/Linux 13 (trixie)",
        };
        let kernel = machine.run("uname -r")?;
        let disks = if from == From::Disk { "3" } else { "2" };
        let row = wide(&delivery)?;
        for cell in [&*host.name, &*host.zone, os, &*kernel, "2", disks, "1"] {
            ensure!(row.iter().any(|there| there == cell), "{cell} is not in {row:?}");
        }
        let memory = row.iter().find(|cell| cell.contains("Mi/"));
        ensure!(memory.is_some(), "no memory in {row:?}");
        // Provisioning was over before cloud-init went on, and kubelet waits for it however it is
        // started.
        machine.run("systemctl daemon-reload && systemctl start kubelet")?;
        let order = machine.run(
            "systemctl show -p After kubelet | grep -c -E 'virtfleet-provision.*|virtfleet-dns.*' && \
             systemctl show -P ActiveState kubelet && \
             p=$(systemctl show -P ExecMainExitTimestampMonotonic virtfleet-provision) && \
             k=$(systemctl show -P ExecMainStartTimestampMonotonic kubelet) && [ $p -gt 0 ] && [ $p -lt $k ]",
        )?;
        ensure!(order.ends_with("active"), "{order}");
        // The agent's own examination finds nothing wrong. The system bus may answer too late while
        // systemd reloads and starts units.
        eventually(real::GUEST_TIMEOUT, "doctor finds nothing wrong", || {
            let doctor = machine.sh(&format!("{} doctor", real::AGENT))?;
            ensure!(doctor.code == 0, "{}", doctor.stdout);
            Ok(())
        })?;
        then(&delivery, &end_state)
    });
}

/// Neither content nor time of any file of ours is another one after a second boot.
fn second_boot(delivery: &Delivery, before: &str) -> Result<()> {
    let machine = &delivery.machine;
    // The disks of the first boot are listed anew in each boot.
    let times = "find /opt/virtfleet /etc/virtfleet /var/lib/virtfleet /etc/systemd/system -type f \
                 ! -path /var/lib/virtfleet/journal/KNOWN -printf '%p %T@\\n' | sort";
    let written = machine.run(times)?;
    machine.run("sync")?;
    machine.power_off()?;
    machine.boot()?;
    machine.wait_cloud_init()?;
    let (_, after) = delivery.done()?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    let again = machine.run(times)?;
    ensure!(written == again, "before:\n{written}\nafter:\n{again}");
    Ok(())
}

#[test]
fn tier4_no_cloud_on_debian_13_with_a_mirror_and_a_second_boot_changes_nothing() {
    let test = "tier4_no_cloud_on_debian_13_with_a_mirror_and_a_second_boot_changes_nothing";
    first_boot(test, Suite::Trixie, Seed::no_cloud, From::Mirror, second_boot);
}

#[test]
fn tier4_config_drive_on_debian_12_with_a_disk() {
    let test = "tier4_config_drive_on_debian_12_with_a_disk";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    first_boot(test, Suite::Bookworm, Seed::config_drive, From::Disk, |_, _| {
        Ok(())
    });
}

#[test]
fn tier4_config_drive_on_debian_13_with_a_disk() {
    let test = "tier4_config_drive_on_debian_13_with_a_disk";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    first_boot(test, Suite::Trixie, Seed::config_drive, From::Disk, |_, _| Ok(()));
}

#[test]
fn tier4_no_cloud_on_debian_12_with_a_disk() {
    let test = "tier4_no_cloud_on_debian_12_with_a_disk";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    first_boot(test, Suite::Bookworm, Seed::no_cloud, From::Disk, |_, _| Ok(()));
}

#[test]
fn tier4_config_drive_on_debian_12_with_a_mirror() {
    let test = "tier4_config_drive_on_debian_12_with_a_mirror";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    first_boot(test, Suite::Bookworm, Seed::config_drive, From::Mirror, |_, _| {
        Ok(())
    });
}

/// The power is cut `after` this time from cloud-init's first stage on, or from where the console
/// has `shown` this; the next boot ends where an undisturbed first boot does.
fn power_cut(test: &str, suite: Suite, shown: Option<&str>, after: Duration) {
    play(test, |scene| {
        if skip::need(4, test, needs(suite))?.is_none() {
            return Ok(());
        }
        let delivery = Delivery::begin(scene, suite, Seed::no_cloud, From::Mirror, Start::BeforeCloudInit)?;
        let machine = &delivery.machine;
        if let Some(shown) = shown {
            machine.wait_console(shown, &[], real::GUEST_TIMEOUT)?;
        }
        virtfleet_tests::wait::measure(after, || Ok(()))?;
        machine.cut_power();
        machine.boot()?;
        let (_, state) = delivery.done()?;
        real::complete(&state)?;
        Ok(())
    });
}

#[test]
fn tier4_the_power_is_cut_in_the_local_stage() {
    let test = "tier4_the_power_is_cut_in_the_local_stage";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    power_cut(test, Suite::Trixie, None, Duration::from_millis(600));
}

#[test]
fn tier4_the_power_is_cut_in_the_init_stage() {
    let test = "tier4_the_power_is_cut_in_the_init_stage";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    power_cut(test, Suite::Trixie, None, Duration::from_millis(5_200));
}

#[test]
fn tier4_the_power_is_cut_in_the_delivery() {
    let test = "tier4_the_power_is_cut_in_the_delivery";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    power_cut(
        test,
        Suite::Trixie,
        // What cloud-init itself has written without a sync is durable by then: bootcmd has run in
        // the stage before.
        Some("running 'modules:config'"),
        Duration::from_millis(200),
    );
}
