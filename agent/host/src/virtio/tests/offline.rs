//! Counts of offline CPUs, and recognition of emulated devices.

use super::*;

#[test]
fn interrupts_of_offline_cpus_are_counted() {
    let guest = Guest::new();
    let landed = || {
        guest
            .machine()
            .device("virtio2")
            .unwrap()
            .vector(25)
            .unwrap()
            .landed
            .clone()
    };
    assert_eq!(landed(), [(0, 100), (2, 7)]);
    guest.put("sys/kernel/irq/25/per_cpu_count", "99,50,6,0,0,0,0,8\n");
    assert_eq!(landed(), [(0, 100), (1, 50), (2, 7), (7, 8)]);
    guest.put("sys/kernel/irq/25/per_cpu_count", "99,50,6,0,0\n");
    assert_eq!(landed(), [(0, 100), (2, 7)], "a truncated text");
}

#[test]
fn smt_and_random_numbers_of_the_cpus() {
    let guest = Guest::new();
    let cpus = guest.machine().cpus;
    assert_eq!((cpus.smt, cpus.random), (None, None));
    guest.put("sys/devices/system/cpu/smt/control", "forceoff\n");
    guest.put("proc/cpuinfo", "flags\t\t: fpu\n");
    let cpus = guest.machine().cpus;
    assert_eq!(
        (cpus.smt.as_deref(), cpus.random),
        (Some("forceoff"), Some(false))
    );
}

#[test]
fn an_emulated_device_is_recognized_by_its_subsystem_vendor() {
    let guest = Guest::new();
    let pci = |address: &str, vendor: &str, driver: &str| {
        let folder = format!("sys/devices/pci0000:00/{address}");
        guest.put(&format!("{folder}/subsystem_vendor"), vendor);
        guest.link(&format!("{folder}/driver"), &format!("x/{driver}"));
        guest.link(
            &format!("sys/bus/pci/devices/{address}"),
            &format!("../../../devices/pci0000:00/{address}"),
        );
        folder
    };
    for (number, vendor, driver) in [
        (1, "0x1af4\n", "igb"),
        (2, "0x8086\n", "igb"),
        (3, "0x8086\n", "e1000e"),
    ] {
        let folder = pci(&format!("0000:00:1{number}.0"), vendor, driver);
        guest.put(&format!("{folder}/net/en{number}/mtu"), "1500\n");
        guest.link(&format!("{folder}/net/en{number}/device"), "../..");
        guest.link(
            &format!("sys/class/net/en{number}"),
            &format!("{}/net/en{number}", folder.replace("sys/", "../../")),
        );
    }
    for (name, number, vendor) in [("sdx", 5, "0x1028\n"), ("sdy", 6, "0x1af4\n")] {
        let folder = pci(&format!("0000:00:1{number}.0"), vendor, "megaraid_sas");
        guest.put(&format!("{folder}/host0/target0/block/{name}/size"), "8\n");
        guest.link(&format!("{folder}/host0/target0/block/{name}/device"), "../..");
        guest.link(
            &format!("sys/block/{name}"),
            &format!("{}/host0/target0/block/{name}", folder.replace("sys/", "../")),
        );
    }
    let machine = guest.machine();
    let kinds: Vec<NicKind> = machine.nics.iter().take(3).map(|nic| nic.kind).collect();
    assert_eq!(kinds, [NicKind::Emulated, NicKind::Function, NicKind::Emulated]);
    let disk = |name: &str| machine.disks.iter().find(|disk| disk.name == name).unwrap().kind;
    assert_eq!((disk("sdx"), disk("sdy")), (DiskKind::Other, DiskKind::Emulated));
}
