//! Enrolment of real guests (decision 0029): rendered user-data without a secret, a real collector
//! that dials the VM, and the key when the VM is migrated, rebooted, created again or cloned.

mod kit;
mod port;

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    guest::{Guest as Machine, Suite, UUID, needs, play},
    real::{self, AGENT},
    sim::Guest,
    skip,
};

use kit::{StoredKey, World};

/// The command that runs what takes minutes.
const SOAK: &str = "make guest-soak";
/// The firmware UUID of the VM that is created again, and of the clone.
const SECOND_UUID: &str = "3b1f6f0a-7c55-4b0e-8a49-0d5c7be1a902";
const BOOT_ID: &str = "cat /proc/sys/kernel/random/boot_id";

#[test]
fn tier4_a_guest_enrols_without_a_secret_and_a_vm_created_again_gets_another_key() {
    let test = "tier4_a_guest_enrols_without_a_secret_and_a_vm_created_again_gets_another_key";
    play(test, |scene| {
        let world = World::new(scene)?;
        let who = world.guest(1, UUID)?;
        let user_data = real::pool_user_data(&world.stage, scene, "")?;
        world.has_no_secret(&user_data, &who)?;
        let vm = World::vm(scene, &who, Suite::Trixie, &user_data)?;
        let (machine, joined) = world.first_boot(scene, &who, &vm)?;
        let first = StoredKey::of(&machine)?;
        world.key_never_left(&machine, &user_data)?;

        is_migrated(&world, &who, &machine, &joined)?;
        is_rebooted(&world, &who, &machine, &joined, &first)?;
        is_created_again(&world, &who, &machine, &first)
    });
}

#[test]
fn tier4_a_clone_discards_the_key_and_enrols_as_itself() {
    let test = "tier4_a_clone_discards_the_key_and_enrols_as_itself";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    play(test, |scene| {
        let world = World::new(scene)?;
        let (who, twin) = (world.guest(1, UUID)?, world.guest(2, SECOND_UUID)?);
        let user_data = real::pool_user_data(&world.stage, scene, "")?;
        let vm = World::vm(scene, &who, Suite::Trixie, &user_data)?;
        let (machine, joined) = world.first_boot(scene, &who, &vm)?;
        let first = StoredKey::of(&machine)?;
        machine.power_off()?;

        world.place(&twin, 1)?;
        let clone = World::vm(scene, &twin, Suite::Trixie, &user_data)?;
        let clone = scene.start_clone(&clone, &machine)?;
        let (other, _) = world.until_joined(&twin)?;
        clone.wait_agent(kit::GUEST_TIMEOUT)?;
        is_replaced(&clone, &first)?;
        ensure!(
            other["enrolment"]["keySha256"] != joined["enrolment"]["keySha256"],
            "{other:#}"
        );

        // The original goes on beside its clone.
        machine.boot_to_agent()?;
        let boot = machine.run(BOOT_ID)?;
        let after = world.until(&who, "the original is pulled again", |vm| {
            vm["guest"]["bootId"] == *boot && vm["agent"]["status"] == "up"
        })?;
        ensure!(
            after["enrolment"]["serial"] == joined["enrolment"]["serial"]
                && StoredKey::of(&machine)? == first,
            "the original has another certificate: {after:#}"
        );
        ensure!(world.issued()? == 2, "one of them was enrolled twice");
        Ok(())
    });
}

#[test]
fn tier4_a_debian_12_guest_enrols_from_a_config_drive() {
    let test = "tier4_a_debian_12_guest_enrols_from_a_config_drive";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    play(test, |scene| {
        if skip::need(4, test, needs(Suite::Bookworm))?.is_none() {
            return Ok(());
        }
        let world = World::new(scene)?;
        let who = world.guest(1, UUID)?;
        let user_data = real::pool_user_data(&world.stage, scene, "")?;
        let vm = World::vm(scene, &who, Suite::Bookworm, &user_data)?;
        let (machine, joined) = world.first_boot(scene, &who, &vm)?;
        let first = StoredKey::of(&machine)?;
        world.key_never_left(&machine, &user_data)?;
        is_rebooted(&world, &who, &machine, &joined, &first)
    });
}

/// A live migration changes the infra node and the pod's address. Key and certificate stay, and
/// nothing is issued.
fn is_migrated(world: &World, who: &Guest, machine: &Machine, before: &Value) -> Result<()> {
    let target = world.pod_address(who)?;
    machine.migrate(Duration::from_millis(500))?;
    let moved = Guest {
        address: target.address,
        ..who.clone()
    };
    world.place(&moved, 1)?;
    let host = &world.stage.plan.hosts[1].name;
    let after = world.until(who, "it is pulled on the other infra node", |vm| {
        vm["infraNode"] == **host
            && vm["agent"]["address"] == *target.address.to_string()
            && vm["agent"]["status"] == "up"
    })?;
    for name in ["keySha256", "serial"] {
        ensure!(
            after["enrolment"][name] == before["enrolment"][name],
            "{name} has changed: {after:#}"
        );
    }
    ensure!(world.issued()? == 1, "it was enrolled again");
    world.place(who, 1)
}

/// A reboot keeps key and certificate. A process that wants the port from early boot on does not
/// get it, nor when the agent is stopped.
fn is_rebooted(
    world: &World,
    who: &Guest,
    machine: &Machine,
    before: &Value,
    first: &StoredKey,
) -> Result<()> {
    port::prepare(machine)?;
    // As Kubermatic's bootstrap does; and the boot takes half the time.
    machine.run("touch /etc/cloud/cloud-init.disabled && sync")?;
    machine.power_off()?;
    machine.boot_to_agent()?;
    let boot = machine.run(BOOT_ID)?;
    let after = world.until(who, "it is pulled after the reboot", |vm| {
        vm["guest"]["bootId"] == *boot && vm["agent"]["status"] == "up"
    })?;
    ensure!(
        after["enrolment"]["serial"] == before["enrolment"]["serial"],
        "another certificate: {after:#}"
    );
    ensure!(world.issued()? == 1, "it was enrolled again");
    ensure!(
        StoredKey::of(machine)? == *first,
        "another key or certificate on the disk"
    );
    port::was_not_taken(machine)
}

/// A VM that is deleted and created again on its disk gets a key of its own. The certificate before
/// is refused.
fn is_created_again(world: &World, who: &Guest, machine: &Machine, first: &StoredKey) -> Result<()> {
    machine.power_off()?;
    world.delete(who)?;
    let again = Guest {
        uid: "4ea1c1de-0000-4000-8000-00000000a9a1".to_owned(),
        firmware: SECOND_UUID.parse()?,
        ..who.clone()
    };
    world.place(&again, 0)?;
    machine.boot_with_uuid(SECOND_UUID)?;
    let (vm, _) = world.until_joined(&again)?;
    machine.wait_agent(kit::GUEST_TIMEOUT)?;
    ensure!(world.issued()? == 2, "it was not enrolled once: {vm:#}");
    is_replaced(machine, first)?;
    machine.cut_power();
    world.old_certificate_is_refused(&again, first)
}

/// The agent has replaced its key and certificate, and reports it.
fn is_replaced(machine: &Machine, first: &StoredKey) -> Result<()> {
    let now = StoredKey::of(machine)?;
    ensure!(
        now.pkcs8 != first.pkcs8 && now.certificate != first.certificate,
        "the key was kept"
    );
    let report = machine.run(&format!("{AGENT} report"))?;
    ensure!(
        report.contains("certificate-key-replaced"),
        "no finding: {report}"
    );
    Ok(())
}
