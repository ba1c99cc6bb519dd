//! The delivery in guests that boot: user-data as `virtfleetctl render` prints it, the agent from a mirror or a disk, and the
//! guest in the collector's view.

use virtfleet_tests::{
    guest::{Disk, Scene, Seed, Start, Suite, play},
    real::{self, From, Mirror},
    sim::Options,
    stage::{Beat, Stage},
};

fn stage() -> anyhow::Result<Stage> {
    let mut stage = Stage::new(Options {
        guests: 1,
        hosts: 2,
        zones: 2,
        clusters: 1,
        ..Options::default()
    })?;
    stage.start_collector(Beat::default())?;
    Ok(stage)
}

/// What a first boot must lead to, whatever the suite, the datasource and the source of the agent.
fn first_boot(scene: &Scene, suite: Suite, seed: fn(&str) -> Seed, from: From) -> anyhow::Result<()> {
    let stage = stage()?;
    let who = real::tenant(&stage, 1, virtfleet_tests::guest::UUID)?;
    let host = stage.plan.hosts[0].clone();
    real::place(&stage, &who, &host.name)?;
    let folder = real::agent_folder(scene.path())?;
    let input = real::input(&stage, scene, &who, &[from], "", "")?;
    let user_data = real::render("cloud-init", &input, &[])?;
    let mirror = Mirror::of(&folder, scene.path())?;
    let mut vm = real::vm(&who)
        .suite(suite)
        .seed(seed(&who.name).user_data(user_data));
    match from {
        From::Mirror => vm = vm.mirror(80, mirror.address),
        From::Disk => vm = vm.disk(Disk::folder("agent", &folder, real::DISK_LABEL).read_only()),
    }
    let machine = scene.start(&vm, Start::BeforeCloudInit)?;
    machine.wait_cloud_init()?;
    let seen = real::until_heard(&stage, &who)?;
    anyhow::ensure!(
        seen["infraNode"] == *host.name && seen["zone"] == *host.zone,
        "{seen:#}"
    );
    println!("{seen:#}");
    let wide = stage
        .ctl()?
        .args(["vms", "-o", "wide"])
        .text(real::GUEST_PATIENCE)?;
    println!("{wide}");
    println!("{}", real::end_state(&machine)?);
    println!("{}", machine.sh("systemctl --failed; journalctl -b -u 'virtfleet*' --no-pager; cat /var/log/cloud-init-output.log; virtfleet-agent doctor")?.stdout);
    Ok(())
}

#[test]
fn tier4_a_no_cloud_first_boot_of_debian_13_with_a_mirror() {
    play(
        "tier4_a_no_cloud_first_boot_of_debian_13_with_a_mirror",
        |scene| first_boot(scene, Suite::Trixie, Seed::no_cloud, From::Mirror),
    );
}
