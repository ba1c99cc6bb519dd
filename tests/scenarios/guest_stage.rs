//! The stage of real guests, tried on itself.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use virtfleet_tests::{
    guest::{self, Disk, Golden, Guest, Image, Io, MIB, Network, Scene, Seed, Start, Suite, UUID, Vm},
    ports,
    process::Launch,
    skip, wait,
};

const SOON: Duration = Duration::from_secs(30);
/// The command that runs what takes minutes.
const SOAK: &str = "make guest-soak";

/// What udev calls the disk with this serial.
fn by_id(guest: &Guest, link: &str) -> Result<String> {
    guest.run(&format!("basename $(readlink -e /dev/disk/by-id/{link})"))
}

fn bytes(guest: &Guest, device: &str) -> Result<u64> {
    Ok(guest
        .run(&format!("blockdev --getsize64 /dev/{device}"))?
        .parse()?)
}

#[test]
fn tier4_a_restored_guest_is_a_kubevirt_vm_that_answers() {
    guest::play("tier4_a_restored_guest_is_a_kubevirt_vm_that_answers", |scene| {
        let folder = scene.path().join("tools");
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/tool"), "#!/bin/sh\necho it runs\n").unwrap();
        let from = ports::free_on("127.77.0.1".parse()?)?;
        let mirror = TcpListener::bind("127.0.0.1:0")?;
        let vm = Vm::new("one")
            .disk(Disk::blank("data", 64 * MIB).serial("serial-1"))
            .disk(Disk::blank("plain", 32 * MIB).read_only())
            .disk(Disk::blank("alias", 16 * MIB).scsi())
            .disk(Disk::blank("scsi", 16 * MIB).scsi().serial("serial-2"))
            .disk(Disk::downward_metrics("<metrics/>\n"))
            .disk(Disk::folder("tools", &folder, "tools"))
            .forward(from, 9100)
            .mirror(80, mirror.local_addr()?);
        let guest = scene.start(&vm, Start::Booted)?;
        commands_and_files(&guest, &folder)?;
        firmware(&guest)?;
        disks(&guest)?;
        networks(&guest, from, mirror)
    });
}

/// As after a power cut of this machine.
#[test]
fn tier4_a_snapshot_that_does_not_restore_is_made_again() {
    let test = "tier4_a_snapshot_that_does_not_restore_is_made_again";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    guest::play(test, |scene| {
        drop(scene.start(&Vm::new("first"), Start::Booted)?);
        let image = Image::find(Suite::Trixie)?;
        // The most recently used one.
        let newest = guest::goldens(&image)?.first().map(Golden::name).unwrap();
        let state = image.goldens().join(newest).join("state");
        fs::write(&state, "not the memory of a guest")?;
        let second = scene.start(&Vm::new("second"), Start::Booted)?;
        ensure!(second.run("echo here")? == "here");
        ensure!(
            fs::metadata(&state)?.len() > MIB,
            "the snapshot was not made again"
        );
        Ok(())
    });
}

fn commands_and_files(guest: &Guest, folder: &Path) -> Result<()> {
    let output = guest.sh("echo out; echo err >&2; exit 7")?;
    assert_eq!(
        (output.code, &*output.stdout, &*output.stderr),
        (7, "out\n", "err\n")
    );
    let error = format!("{:#}", guest.run("echo why >&2; exit 3").unwrap_err());
    assert!(error.contains("exit code 3") && error.contains("why"), "{error}");
    let error = format!(
        "{:#}",
        guest.sh_within("sleep 60", Duration::from_secs(1)).unwrap_err()
    );
    assert!(error.contains("sleep 60"), "{error}");
    assert_eq!(guest.run("echo still there")?, "still there");

    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    guest.write_file("/srv/new/it's", &binary, "0640")?;
    assert_eq!(guest.run("stat -c %a \"/srv/new/it's\"")?, "640");
    assert_eq!(guest.read_file("/srv/new/it's")?, binary);
    fs::write(folder.join("more"), "text").unwrap();
    guest.copy_in(folder, "/opt/tools")?;
    assert_eq!(
        guest.run("cat /opt/tools/more; ls /opt/tools; ls -d /tmp/tmp.* 2>/dev/null || true")?,
        "textbin\nmore"
    );

    let before = host_now();
    let time = guest.run("date +%s")?.parse::<i64>()?;
    let after = host_now();
    assert!(
        (before - 2..=after + 2).contains(&time),
        "{time} in the guest between {before} and {after} of the host"
    );
    Ok(())
}

fn host_now() -> i64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs().cast_signed())
}

fn firmware(guest: &Guest) -> Result<()> {
    let read = guest.run(
        "cd /sys/class/dmi/id; cat sys_vendor product_name product_family product_uuid; cat /etc/machine-id; cloud-init status",
    )?;
    let machine = UUID.replace('-', "");
    assert_eq!(
        read,
        format!("KubeVirt\nNone\nKubeVirt\n{UUID}\n{machine}\nstatus: done")
    );
    Ok(())
}

fn disks(guest: &Guest) -> Result<()> {
    let data = by_id(guest, "virtio-serial-1")?;
    assert_eq!((data.as_str(), bytes(guest, &data)?), ("vdc", 64 * MIB));
    assert_eq!(guest.run("cat /sys/block/vdd/ro /sys/block/vdd/serial")?, "1");
    assert_eq!(
        bytes(guest, &by_id(guest, "scsi-0QEMU_QEMU_HARDDISK_drive-ua-alias")?)?,
        16 * MIB
    );
    assert_eq!(
        bytes(guest, &by_id(guest, "scsi-0QEMU_QEMU_HARDDISK_serial-2")?)?,
        16 * MIB
    );
    assert_eq!(
        guest.run("head -c 4 /dev/vde; blockdev --getsize64 /dev/vde")?,
        "mvbd262144"
    );
    assert_eq!(
        guest.run("tail -c +17 /dev/vde | head -c 10; blockdev --getro /dev/vde")?,
        "<metrics/>1"
    );
    let tools =
        "mkdir /tools && mount -L tools /tools && /tools/bin/tool 2>&1 || sh /tools/bin/tool; umount /tools";
    assert!(guest.run(tools)?.ends_with("it runs"));
    guest
        .run("mkfs.ext4 -q /dev/vdc && mount /dev/vdc /mnt && echo kept >/mnt/file && umount /mnt")
        .map(drop)
}

/// The host reaches the guest's port, the guest the mirror, and neither anything else.
fn networks(guest: &Guest, from: std::net::SocketAddr, mirror: TcpListener) -> Result<()> {
    guest.write_file(
        "/root/answer.py",
        b"import socket\ns = socket.create_server(('', 9100))\nwhile True:\n    c, _ = s.accept()\n    c.sendall(b'from the guest')\n    c.close()\n",
        "0644",
    )?;
    guest.run("systemd-run --quiet python3 /root/answer.py")?;
    let answer = wait::eventually(SOON, "an answer from the guest", || {
        let mut text = String::new();
        let mut stream = TcpStream::connect(from)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.read_to_string(&mut text)?;
        ensure!(!text.is_empty(), "nothing");
        Ok(text)
    })?;
    assert_eq!(answer, "from the guest");

    let server = thread::spawn(move || {
        let (mut stream, _) = mirror.accept().unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).unwrap();
        stream
            .write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nhere")
            .unwrap();
    });
    assert_eq!(guest.run("curl -sS -m 20 http://10.0.2.100/file")?, "here");
    server.join().unwrap();
    let outside = guest.sh("ip route show default; curl -sS -m 2 http://10.0.2.2:22")?;
    assert!(outside.code != 0 && outside.stdout.is_empty(), "{outside:?}");
    Ok(())
}

#[test]
fn tier4_devices_come_grow_fail_and_go() {
    guest::play("tier4_devices_come_grow_fail_and_go", |scene| {
        let guest = scene.start(&Vm::new("one"), Start::Booted)?;
        for (disk, link) in [
            (Disk::blank("blk", 64 * MIB).serial("hot-blk"), "virtio-hot-blk"),
            (
                Disk::blank("scsi", 64 * MIB).scsi().serial("hot-scsi"),
                "scsi-0QEMU_QEMU_HARDDISK_hot-scsi",
            ),
        ] {
            guest.plug_disk(&disk)?;
            let name = if link.starts_with("virtio") { "blk" } else { "scsi" };
            let device = by_id(&guest, link)?;
            guest.resize(name, 128 * MIB)?;
            let grown = format!("[ $(cat /sys/block/{device}/size) = {} ]", 128 * MIB / 512);
            guest.run_until(&grown, "the new size")?;
            faults(&guest, name, &device)?;
            guest.unplug_disk(name)?;
            guest.run_until(&format!("! test -e /dev/{device}"), "that the disk is gone")?;
        }
        let mac = guest.plug_nic(1)?;
        guest.unplug_nic(&mac)?;
        guest.run_until(
            &format!("! grep -q {mac} /sys/class/net/*/address"),
            "that the NIC is gone",
        )?;
        Ok(())
    });
}

/// In Debian 12: under emulation the kernel of Debian 13 makes no room for vCPUs that are not there
/// at its boot.
#[test]
fn tier4_vcpus_come_move_along_and_go() {
    let test = "tier4_vcpus_come_move_along_and_go";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    guest::play(test, |scene| {
        if skip::need(4, test, guest::needs(Suite::Bookworm))?.is_none() {
            return Ok(());
        }
        let guest = scene.start(&Vm::new("one").suite(Suite::Bookworm), Start::Booted)?;
        assert_eq!((guest.plug_cpu()?, &*guest.run("nproc")?), (2, "3"));
        guest.plug_disk(&Disk::blank("data", 16 * MIB).serial("data"))?;
        guest.migrate(Duration::ZERO)?;
        assert_eq!(
            guest.run("nproc; ls /dev/disk/by-id/virtio-data")?,
            "3\n/dev/disk/by-id/virtio-data"
        );
        guest.unplug_disk("data")?;
        guest.unplug_cpu()?;
        assert_eq!(guest.run("nproc")?, "2");
        Ok(())
    });
}

fn faults(guest: &Guest, name: &str, device: &str) -> Result<()> {
    let read = format!("dd if=/dev/{device} of=/dev/null bs=4k count=1 iflag=direct");
    let write = format!("dd if=/dev/zero of=/dev/{device} bs=4k count=1 oflag=direct");
    let sync = format!("sync /dev/{device}");
    let works = |script: &str| -> Result<bool> { Ok(guest.sh(script)?.code == 0) };
    guest.fail(name, &[Io::Read])?;
    assert_eq!(
        [works(&read)?, works(&write)?],
        [false, true],
        "{name}: reads fail"
    );
    guest.fail(name, &[Io::Write])?;
    assert_eq!(
        [works(&read)?, works(&write)?],
        [true, false],
        "{name}: writes fail"
    );
    guest.fail(name, &[Io::Flush])?;
    let buffered = format!("dd if=/dev/zero of=/dev/{device} bs=4k count=1 conv=fsync");
    assert_eq!(
        [works(&read)?, works(&buffered)?],
        [true, false],
        "{name}: flushes fail"
    );
    guest.heal(name)?;
    assert_eq!(
        [works(&read)?, works(&write)?, works(&sync)?],
        [true; 3],
        "{name}: healed"
    );
    Ok(())
}

#[test]
fn tier4_a_guest_goes_on_elsewhere_and_boots_after_a_power_cut() {
    let test = "tier4_a_guest_goes_on_elsewhere_and_boots_after_a_power_cut";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    guest::play(test, |scene| {
        let vm = Vm::new("one")
            .disk(Disk::blank("data", 64 * MIB).serial("data"))
            .network(Network::Enclosed);
        let guest = scene.start(&vm, Start::Booted)?;
        enclosed(scene, &guest)?;
        let boot = guest.run("cat /proc/sys/kernel/random/boot_id")?;
        guest
            .run("mkfs.ext4 -q /dev/vdc && mkdir /data && mount /dev/vdc /data && echo before >/data/file")?;
        let first = guest.qemu()?;
        guest.migrate(Duration::from_secs(3))?;
        ensure!(guest.qemu()? != first, "another QEMU");
        assert_eq!(
            guest.run("cat /data/file /proc/sys/kernel/random/boot_id")?,
            format!("before\n{boot}")
        );
        guest.run(
            "echo synced >/root/file && sync /root/file && echo after >>/data/file && sync /data/file",
        )?;
        ensure!(
            guest.cost()? > Duration::ZERO && guest.resident()? > 100 * MIB,
            "what QEMU costs"
        );

        guest.cut_power();
        let error = guest.run("true").unwrap_err();
        ensure!(format!("{error:#}").contains("does not run"), "{error:#}");
        guest.boot_to_agent()?;
        let again = guest.run("cat /proc/sys/kernel/random/boot_id")?;
        ensure!(again != boot, "a boot of its own");
        assert_eq!(
            guest.run("cat /root/file; mount /dev/vdc /data && cat /data/file")?,
            "synced\nbefore\nafter"
        );
        guest.power_off()
    });
}

/// What listens in the scene's namespace is reached, and nothing else.
fn enclosed(scene: &Scene, guest: &Guest) -> Result<()> {
    fs::write(scene.path().join("page"), "from the namespace").unwrap();
    let mut server = Launch::new("python3")
        .args([
            "-u",
            "-m",
            "http.server",
            "8080",
            "--bind",
            "127.0.0.1",
            "--directory",
        ])
        .arg(scene.path())
        .in_namespace(scene.namespace()?.name())
        .start(scene.path())?;
    server.wait_for_line("Serving", SOON)?;
    assert_eq!(
        guest.run("curl -sS -m 20 http://10.0.2.2:8080/page")?,
        "from the namespace"
    );
    let outside = guest.sh("ip route show default | cut -d ' ' -f 1-3; curl -sS -m 5 http://192.0.2.1/")?;
    assert!(
        outside.code != 0 && outside.stdout == "default via 10.0.2.2\n",
        "{outside:?}"
    );
    Ok(())
}

#[test]
fn tier4_a_first_boot_from_a_snapshot_reads_its_own_seed() {
    let test = "tier4_a_first_boot_from_a_snapshot_reads_its_own_seed";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    guest::play(test, |scene| {
        let user_data = "#cloud-config\nwrite_files:\n- path: /root/mine\n  content: |\n    ours\nruncmd:\n- [sh, -c, 'ls /dev/disk/by-id >/root/disks']\n";
        let vm = Vm::new("first")
            .seed(Seed::no_cloud("its-own").user_data(user_data))
            .disk(Disk::blank("data", 16 * MIB).serial("data"));
        let guest = scene.start(&vm, Start::BeforeCloudInit)?;
        guest.wait_cloud_init()?;
        guest.wait_agent(SOON)?;
        assert_eq!(guest.run("cat /root/mine; hostname")?, "ours\nits-own");
        assert!(guest.run("cat /root/disks")?.contains("virtio-data"));
        Ok(())
    });
}

#[test]
fn tier4_a_cold_boot_of_a_vm_with_everything() {
    let test = "tier4_a_cold_boot_of_a_vm_with_everything";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    guest::play(test, |scene| {
        if skip::need(4, test, guest::needs(Suite::Bookworm))?.is_none() {
            return Ok(());
        }
        let network = r#"{"links": [{"id": "nic", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:01"}],
            "networks": [{"id": "n", "link": "nic", "type": "ipv4", "ip_address": "10.0.2.15/24"}], "services": []}"#;
        let vm = Vm::new("all")
            .suite(Suite::Bookworm)
            .uuid("0c1f2d3e-0000-4000-8000-00000000abcd")
            .serial("serial, with a comma")
            .chassis("rack 4", "sku-1")
            .cpus(2, 3)
            .network(Network::Tap)
            .nic_queues(2)
            .seed(Seed::config_drive("all").network(network).iso())
            .metrics_port("<metrics>1</metrics>")
            .port("org.example.0")
            .firmware("opt/com.coreos/config", "{}")
            .kernel("virtfleet.word=1")
            .no_balloon()
            .disk(Disk::blank("data", 16 * MIB).serial("data"));
        let guest = scene.start(&vm, Start::Cold)?;
        guest.wait_cloud_init()?;
        guest.wait_agent(SOON)?;
        let smbios = guest.run("cd /sys/class/dmi/id; cat product_uuid product_serial chassis_asset_tag")?;
        assert_eq!(
            smbios,
            "0c1f2d3e-0000-4000-8000-00000000abcd\nserial, with a comma\nrack 4"
        );
        assert!(guest.run("hostname; cat /proc/cmdline")?.starts_with("all\n"));
        assert!(guest.run("cat /proc/cmdline")?.contains("virtfleet.word=1"));
        guest.run("modprobe qemu_fw_cfg")?;
        assert_eq!(
            guest.run("cat /sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw")?,
            "{}"
        );
        let metrics = "exec 3<>/dev/virtio-ports/org.github.vhostmd.1; printf 'GET /metrics/XML\\n\\n' >&3; head -n 1 <&3";
        assert_eq!(guest.run(metrics)?, "<metrics>1</metrics>");
        let interface = "nic=$(basename $(dirname $(grep -l 02:00:00:00:00:01 /sys/class/net/*/address)))";
        let queues = guest.run(&format!(
            "{interface}; ls /sys/class/net/$nic/queues; ip -br a show $nic"
        ))?;
        assert!(
            queues.contains("rx-1") && queues.contains("10.0.2.15/24"),
            "{queues}"
        );
        // The host's end of the tap, from the namespace.
        let namespace = scene.namespace()?.name().to_owned();
        guest.run("systemd-run --quiet python3 -m http.server 8000 --directory /etc/cloud")?;
        wait::eventually(SOON, "an answer over the tap device", || {
            Launch::new("curl")
                .args(["-sS", "-m", "5", "http://10.0.2.15:8000/cloud.cfg"])
                .in_namespace(&namespace)
                .text(SOON)
        })?;
        guest.power_off()
    });
}
