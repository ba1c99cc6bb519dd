//! An image into which `packaging/guest-image/bake.sh` has put the agent: a VM boots it, user-data
//! brings settings and certificates, and the agent is there without a download.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    bins,
    guest::{Guest as Machine, Image, Scene, Seed, Suite, needs, play},
    pki,
    process::Launch,
    real::{self, AGENT, GUEST_TIMEOUT},
    sim::Guest,
    skip,
    stage::Stage,
    wait::eventually,
};

use crate::{expressions::root, guest_lifecycle::kit};

/// User-data with the settings and certificates of `who`, and without the agent.
fn user_data(stage: &Stage, folder: &Path, who: &Guest) -> Result<String> {
    let identity = stage.authority.agent(&who.cluster, &who.name, &who.uid)?;
    pki::write(folder, "agent", &stage.authority, &identity)?;
    let input = folder.join("delivery.yaml");
    let text = "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\n\
                tls: { certificate: agent.pem, key: agent.key, clientCA: ca.pem }\n";
    fs::write(&input, text).context("write the delivery")?;
    real::render("cloud-init", &input, &[])
}

/// The first boot of a VM with a baked image begins.
pub(crate) fn start(scene: &Scene, stage: &Stage, who: &Guest) -> Result<Machine> {
    let baked = scene.path().join("baked.qcow2");
    Launch::new(root().join("packaging/guest-image/bake.sh"))
        .arg(Image::find(Suite::Trixie)?.file("root.img"))
        .arg(bins::static_agent()?)
        .arg(&baked)
        .text(GUEST_TIMEOUT)?;
    let folder = scene.path().join("delivery");
    fs::create_dir_all(&folder).context("a folder for the delivery")?;
    let seed = Seed::no_cloud(&who.name).user_data(user_data(stage, &folder, who)?);
    scene.start_image(&real::vm(who).seed(seed), &baked, "qcow2")
}

#[test]
fn tier4_a_baked_image_has_the_agent_from_its_first_boot_on() {
    let test = "tier4_a_baked_image_has_the_agent_from_its_first_boot_on";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        if skip::need(4, test, needs(Suite::Trixie))?.is_none() {
            return Ok(());
        }
        let (stage, who) = kit::stage()?;
        let machine = start(scene, &stage, &who)?;
        machine.wait_cloud_init()?;
        real::until_identified(&stage, &who)?;
        let failed = machine.run("systemctl list-units --failed --no-legend --plain 'virtfleet*'")?;
        ensure!(failed.is_empty(), "{failed}");
        let wanted = machine.run("cat /var/lib/virtfleet/delivery/wanted")?;
        ensure!(
            !wanted.contains("sha256"),
            "user-data asks for an agent: {wanted}"
        );
        let order = machine.run(
            "p=$(systemctl show -P ExecMainExitTimestampMonotonic virtfleet-provision)
            a=$(systemctl show -P ExecMainStartTimestampMonotonic virtfleet-agent)
            [ $p -gt 0 ] && [ $p -lt $a ] && echo provisioned first",
        )?;
        ensure!(order == "provisioned first", "{order}");
        // The system bus may answer too late while a boot goes on.
        eventually(GUEST_TIMEOUT, "doctor finds nothing wrong", || {
            let doctor = machine.sh(&format!("{AGENT} doctor"))?;
            ensure!(doctor.code == 0, "{}", doctor.stdout);
            Ok(())
        })
    });
}
