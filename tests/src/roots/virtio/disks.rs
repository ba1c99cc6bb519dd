//! Disks.

use anyhow::Result;
use virtfleet_agent_core::virtio::{
    Features, Kind,
    features::{blk, scsi},
};

use super::{
    super::files::{attributes, put},
    device::Virtio,
    interrupts::Interrupts,
    seats::Seats,
};

/// Controller of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    /// virtio-blk.
    Blk(Virtio),
    /// A separate virtio-scsi controller.
    Scsi(Virtio),
    /// NVMe.
    Nvme,
    /// A controller with this driver, e.g. `ahci`.
    Emulated(&'static str),
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The controller.
    pub behind: Behind,
    /// Its hardware queues.
    pub queues: u32,
    /// Its serial.
    pub serial: &'static str,
    /// `write back` or `write through`.
    pub write_cache: &'static str,
    /// Content of the sysfs file `scheduler`.
    pub scheduler: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it is read-only.
    pub read_only: bool,
}

impl Default for Disk {
    /// A virtio-blk disk with one queue.
    fn default() -> Self {
        let bits = [
            blk::SEG_MAX,
            blk::BLK_SIZE,
            blk::FLUSH,
            blk::CONFIG_WCE,
            blk::DISCARD,
        ];
        Self {
            behind: Behind::Blk(Virtio::with(&bits)),
            queues: 1,
            serial: "data",
            write_cache: "write back",
            scheduler: "[none] mq-deadline",
            bytes: 20 << 30,
            read_only: false,
        }
    }
}

impl Disk {
    /// A disk on virtio-scsi, with so many queues.
    pub fn scsi(queues: u32) -> Self {
        Self {
            behind: Behind::Scsi(Virtio::with(&[scsi::HOTPLUG, scsi::CHANGE])),
            queues,
            ..Self::default()
        }
    }
    /// A disk on an emulated controller, e.g. `ahci`.
    pub fn emulated(driver: &'static str) -> Self {
        Self {
            behind: Behind::Emulated(driver),
            ..Self::default()
        }
    }
    /// An NVMe disk, with so many queues.
    pub fn nvme(queues: u32) -> Self {
        Self {
            behind: Behind::Nvme,
            queues,
            ..Self::default()
        }
    }
    /// Its virtio device, for changes.
    pub fn virtio(&mut self) -> Option<&mut Virtio> {
        match &mut self.behind {
            Behind::Blk(virtio) | Behind::Scsi(virtio) => Some(virtio),
            Behind::Nvme | Behind::Emulated(_) => None,
        }
    }
}

/// Counters of names used so far.
#[derive(Default)]
pub(super) struct Names {
    blk: usize,
    scsi: usize,
    nvme: usize,
}

pub(super) fn write(
    disk: &Disk,
    names: &mut Names,
    online: &[u32],
    seats: &mut Seats,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let (name, folder, device) = match &disk.behind {
        Behind::Blk(virtio) => {
            let mut virtio = *virtio;
            if disk.queues > 1 {
                virtio.features = Features(virtio.features.0 | 1 << blk::MQ);
            }
            let seat = seats.virtio(Kind::BLOCK, "virtio_blk", &virtio)?;
            let queues: Vec<String> = (0..disk.queues).map(|queue| format!("req.{queue}")).collect();
            interrupts.virtio(&seat, virtio.lines, &queues);
            let name = letters("vd", &mut names.blk);
            let folder = format!("{}/block/{name}", seat.folder);
            (name, folder, seat.name)
        }
        Behind::Scsi(virtio) => {
            let seat = seats.virtio(Kind::SCSI, "virtio_scsi", virtio)?;
            let mut queues = vec!["control", "event"];
            queues.extend((0..disk.queues).map(|_| "request"));
            interrupts.virtio(&seat, virtio.lines, &queues);
            below_host(&seat.folder, names, seats)?
        }
        Behind::Emulated(driver) => {
            let seat = seats.pci(driver)?;
            interrupts.other(&seat, &format!("{driver}[{}]", seat.address), 0);
            below_host(&format!("{}/ata1", seat.folder), names, seats)?
        }
        Behind::Nvme => {
            let seat = seats.pci("nvme")?;
            let controller = format!("nvme{}", names.nvme);
            names.nvme += 1;
            for queue in 0..=disk.queues {
                interrupts.other(&seat, &format!("{controller}q{queue}"), queue as usize);
            }
            let folder = format!("{}/nvme/{controller}/{controller}n1", seat.folder);
            (format!("{controller}n1"), folder, String::new())
        }
    };
    let up = if device.is_empty() {
        "..".to_owned()
    } else {
        format!("../../../{device}")
    };
    seats.link(&format!("{folder}/device"), &up)?;
    seats.link(
        &format!("sys/block/{name}"),
        &format!("../{}", folder.trim_start_matches("sys/")),
    )?;
    put(&seats.dir, format!("{folder}/serial"), disk.serial)?;
    attributes(
        &seats.dir,
        &folder,
        &[
            ("size", &(disk.bytes / 512).to_string()),
            ("ro", if disk.read_only { "1" } else { "0" }),
            ("inflight", "       0        0"),
            ("cache_type", disk.write_cache),
            ("hidden", "0"),
        ],
    )?;
    attributes(
        &seats.dir,
        &format!("{folder}/queue"),
        &[
            ("nr_requests", "256"),
            ("scheduler", disk.scheduler),
            ("write_cache", disk.write_cache),
            ("discard_max_bytes", "2147483136"),
            ("rotational", "0"),
        ],
    )?;
    for queue in 0..disk.queues {
        let ours = online.iter().filter(|cpu| *cpu % disk.queues == queue);
        let cpus: Vec<String> = ours.map(u32::to_string).collect();
        let folder = format!("{folder}/mq/{queue}");
        attributes(
            &seats.dir,
            &folder,
            &[("cpu_list", &cpus.join(", ")), ("nr_tags", "256")],
        )?;
    }
    Ok(())
}

/// Adds a disk below a SCSI host: returns its name, its folder, and the name of its device.
fn below_host(above: &str, names: &mut Names, seats: &Seats) -> Result<(String, String, String)> {
    let host = names.scsi;
    let name = letters("sd", &mut names.scsi);
    let address = format!("{host}:0:0:0");
    let device = format!("{above}/host{host}/target{host}:0:0/{address}");
    seats.link(
        &format!("{device}/driver"),
        "../../../../../../../bus/scsi/drivers/sd",
    )?;
    let folder = format!("{device}/block/{name}");
    Ok((name, folder, address))
}

/// `vda` to `vdz`, then `vdaa` and so on.
fn letters(prefix: &str, count: &mut usize) -> String {
    let at = *count;
    *count += 1;
    let letter = |at: usize| char::from(b'a' + u8::try_from(at % 26).unwrap_or_default());
    match at / 26 {
        0 => format!("{prefix}{}", letter(at)),
        more => format!("{prefix}{}{}", letter(more - 1), letter(at)),
    }
}
