//! Hot-plug, resize and unplug of devices in a running guest.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{
    accel::Accel,
    content,
    disk::{Bus, Disk},
    part::{self, Part},
    running::Guest,
    say,
    vm::{Network, Nic},
};
use crate::wait::eventually;

/// Timeout until the guest has detected a device.
const DETECTION_TIMEOUT: Duration = Duration::from_mins(1);
/// Time after which a device that the guest has not detected is inspected. A busy machine needs
/// five seconds.
const INTERRUPT_LOST_AFTER: Duration = Duration::from_secs(20);
/// Switches on each PCIe slot that holds a device and is off, and prints its name.
const SWITCH_ON: &str = "for slot in /sys/bus/pci/slots/*; do [ \"$(cat \"$slot/adapter\" \"$slot/power\" | xargs)\" != '1 0' ] || \
                         { echo \"${slot##*/}\"; echo 1 >\"$slot/power\"; }; done";

impl Guest {
    /// A number that is unique for this guest.
    pub(super) fn next_number(&self) -> u32 {
        let mut state = self.state();
        state.count += 1;
        state.count
    }

    /// Plugs a disk in and waits until the guest's kernel has read from it and udev has settled.
    pub fn plug_disk(&self, disk: &Disk) -> Result<()> {
        let id = part::disk_id(&disk.name);
        ensure!(
            !self.state().parts.iter().any(|part| part.id == id),
            "{} has a disk {} already",
            self.vm().name,
            disk.name
        );
        let number = self.next_number();
        let file = self.places().file(&format!("{}-{number}.img", disk.name));
        content::disk(&disk.content, &file).with_context(|| format!("disk {}", disk.name))?;
        let spare = if disk.bus == Bus::Virtio {
            self.free_port()?
        } else {
            0
        };
        let part = part::disk(self.vm(), disk, content::file(&disk.content, &file), spare);
        self.plug_disk_part(&part)?;
        self.run("udevadm settle").map(drop)
    }

    /// Plugs in a prepared part and waits until the guest's kernel has read from it.
    ///
    /// Under emulation the interrupt of a PCIe port is sometimes lost (seen once in some thousand
    /// plugs): the slot holds the device, and the kernel leaves it off. Then the slot is switched
    /// on by hand, as an admin would. Any other reason fails.
    pub(super) fn plug_disk_part(&self, part: &Part) -> Result<()> {
        self.plug(part)?;
        self.state().parts.push(part.clone());
        if self.accel() == Accel::Kvm || self.until_read(part, INTERRUPT_LOST_AFTER).is_ok() {
            return self.until_read(part, DETECTION_TIMEOUT);
        }
        let switched = self
            .run(SWITCH_ON)
            .context("the guest hangs after a disk was plugged in")?;
        say(&format!(
            "{} did not detect {}; slots that were occupied and off: {switched:?}",
            self.vm().name,
            part.id
        ));
        self.until_read(part, DETECTION_TIMEOUT)
    }

    /// Waits until the guest's kernel has read from a disk.
    fn until_read(&self, part: &Part, deadline: Duration) -> Result<()> {
        eventually(deadline, &format!("the guest to read from {}", part.id), || {
            let stats = self.state().qmp()?.call("query-blockstats", json!({}))?;
            // A device is identified by its id, a child of a device by its path.
            let inside = format!("/machine/peripheral/{}/", part.id);
            let of_part = |stat: &&Value| {
                stat["qdev"]
                    .as_str()
                    .is_some_and(|qdev| qdev == part.id || qdev.starts_with(&inside))
            };
            let stat = stats.as_array().into_iter().flatten().find(of_part);
            let reads = stat.and_then(|stat| stat["stats"]["rd_operations"].as_u64());
            ensure!(reads > Some(0), "no read yet");
            Ok(())
        })
    }

    fn plug(&self, part: &Part) -> Result<()> {
        let mut state = self.state();
        let qmp = state.qmp()?;
        for node in &part.nodes {
            qmp.call("blockdev-add", node.clone())?;
        }
        if let Some(network) = &part.network {
            qmp.call("netdev_add", network.clone())?;
        }
        qmp.call("device_add", part.device.clone()).map(drop)
    }

    fn free_port(&self) -> Result<u32> {
        let state = self.state();
        (0..self.vm().spare_ports)
            .find(|port| state.parts.iter().all(|part| part.port != Some(*port)))
            .with_context(|| {
                format!(
                    "{}: all spare ports are taken; Vm::spare_ports gives more",
                    self.vm().name
                )
            })
    }

    /// Unplugs a disk and waits until the guest has released it. Deletes its content.
    pub fn unplug_disk(&self, name: &str) -> Result<()> {
        self.heal(name)?;
        self.unplug(&part::disk_id(name))
    }

    fn unplug(&self, id: &str) -> Result<()> {
        let mut state = self.state();
        let at = state
            .parts
            .iter()
            .position(|part| part.id == id)
            .with_context(|| format!("{} has no {id} that could be unplugged", self.vm().name))?;
        let qmp = state.qmp()?;
        qmp.call("device_del", json!({"id": id}))?;
        // QEMU reports the removal of a vCPU only by that of its interrupt controller.
        let controller = format!("/machine/peripheral/{id}/lapic");
        let gone = |data: &Value| data["device"] == id || data["path"] == *controller;
        qmp.wait_event("DEVICE_DELETED", DETECTION_TIMEOUT, gone)
            .with_context(|| format!("the guest does not release {id}"))?;
        let part = state.parts.remove(at);
        let qmp = state.qmp()?;
        for node in part.nodes.iter().rev() {
            qmp.call("blockdev-del", json!({"node-name": node["node-name"]}))?;
        }
        if let Some(network) = &part.network {
            qmp.call("netdev_del", json!({"id": network["id"]}))?;
        }
        for node in &part.nodes {
            let file = node["filename"].as_str().map(Path::new);
            // Content shared with other guests is not removed.
            if let Some(file) = file.filter(|file| file.starts_with(self.folder())) {
                std::fs::remove_file(file).with_context(|| format!("remove {}", file.display()))?;
            }
        }
        Ok(())
    }

    /// Changes a disk's size in bytes and notifies the guest. The name of the root disk is `root`.
    pub fn resize(&self, name: &str, bytes: u64) -> Result<()> {
        let arguments = json!({"node-name": part::node_id(name), "size": bytes});
        self.state()
            .qmp()?
            .call("block_resize", arguments)
            .map(drop)
            .with_context(|| format!("resize {name} to {bytes} bytes"))
    }

    /// Plugs in a NIC with `queues` queue pairs and returns its MAC address. Not available on
    /// [`Network::Tap`].
    pub fn plug_nic(&self, queues: u32) -> Result<String> {
        ensure!(
            self.vm().network != Network::Tap,
            "a NIC on a tap device cannot be plugged in"
        );
        let number = self.next_number();
        let index = self.vm().nics.len() + usize::try_from(number)?;
        let nic = Nic {
            mac: format!("02:00:00:00:01:{number:02x}"),
            queues,
        };
        let spare = self.free_port()?;
        let part = part::spare_nic(self.vm(), index, &nic, None, spare);
        self.plug(&part)?;
        self.state().parts.push(part);
        self.run_until(
            &format!("grep -qi {} /sys/class/net/*/address", nic.mac),
            "the NIC",
        )?;
        Ok(nic.mac)
    }

    /// Unplugs the NIC with this MAC address, which must have been plugged in.
    pub fn unplug_nic(&self, mac: &str) -> Result<()> {
        let id = self
            .state()
            .parts
            .iter()
            .find(|part| part.device["mac"] == mac)
            .map(|part| part.id.clone());
        self.unplug(&id.with_context(|| format!("no NIC with {mac} was plugged in"))?)
    }

    /// Plugs in one more vCPU, brings it online and returns its number.
    pub fn plug_cpu(&self) -> Result<u32> {
        let socket = {
            let state = self.state();
            let plugged = state
                .parts
                .iter()
                .filter(|part| part.id.starts_with("cpu"))
                .count();
            self.vm().cpus + u32::try_from(plugged)?
        };
        ensure!(
            socket < self.vm().max_cpus,
            "{} may have {} vCPUs",
            self.vm().name,
            self.vm().max_cpus
        );
        let possible = self.run("cat /sys/devices/system/cpu/possible")?;
        let last = possible
            .rsplit(['-', ','])
            .next()
            .and_then(|last| last.parse::<u32>().ok());
        ensure!(
            last >= Some(socket),
            "the guest's kernel supports only the CPUs {possible} (under emulation, the kernel of Debian 13 supports those \
             that are present at its boot; Suite::Bookworm supports more)"
        );
        let part = part::cpu(self.accel(), socket);
        self.plug(&part)?;
        self.state().parts.push(part);
        let file = format!("/sys/devices/system/cpu/cpu{socket}/online");
        self.run_until(&format!("test -e {file}"), "the vCPU")?;
        self.run(&format!("[ $(cat {file}) = 1 ] || echo 1 > {file}"))?;
        Ok(socket)
    }

    /// Unplugs the vCPU that was plugged in last. Afterwards QEMU 10 under emulation can neither
    /// save nor migrate the guest.
    pub fn unplug_cpu(&self) -> Result<()> {
        let id = self
            .state()
            .parts
            .iter()
            .rfind(|part| part.id.starts_with("cpu"))
            .map(|part| part.id.clone());
        self.unplug(&id.context("no vCPU was plugged in")?)
    }

    /// Sets the memory that the balloon leaves to the guest, in bytes.
    pub fn balloon(&self, bytes: u64) -> Result<()> {
        let arguments = json!({"value": bytes});
        self.state().qmp()?.call("balloon", arguments).map(drop)
    }

    /// Waits in the guest until the command `test` succeeds; for up to a minute of the guest's
    /// clock.
    pub fn run_until(&self, test: &str, what: &str) -> Result<()> {
        self.run_until_within(test, what, DETECTION_TIMEOUT)
    }

    /// As [`Guest::run_until`], with a timeout. The loop runs in the guest: each probe from outside
    /// costs an emulated guest more than the condition that it waits for. For two seconds it probes
    /// every 200 ms, then every 500 ms: a probe starts programs, which takes an emulated CPU from
    /// that for which the test waits.
    pub fn run_until_within(&self, test: &str, what: &str, timeout: Duration) -> Result<()> {
        // The pauses alone take one and a half times the timeout: the few probes add less.
        let tries = timeout.as_secs() * 3;
        let script = format!(
            "n=0; until {test}; do n=$((n + 1)); [ $n -lt {tries} ] || exit 1; \
             if [ $n -le 10 ]; then sleep 0.2; else sleep 0.5; fi; done"
        );
        self.run_within(&script, timeout * 4)
            .map(drop)
            .with_context(|| format!("timeout in the guest while waiting for {what}"))
    }
}
