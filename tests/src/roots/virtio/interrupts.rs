//! `/proc/interrupts`, `/proc/irq` and `msi_irqs`.
#![expect(clippy::format_push_string, reason = "written once, and easier to read so")]

use std::path::Path;

use anyhow::Result;

use super::{
    super::files::{attributes, put},
    device::Lines,
    kernel::Kernel,
    seats::Seat,
};

/// The first interrupt number of a device.
const FIRST: u32 = 24;
/// The interrupt line that devices without MSI share.
const LINE: u32 = 11;

/// Allocates interrupts.
pub(super) struct Interrupts {
    kernel: Kernel,
    online: Vec<u32>,
    rows: Vec<Row>,
    /// Devices on [`LINE`].
    on_line: Vec<String>,
}

struct Row {
    address: String,
    /// Its number within the device.
    entry: usize,
    name: String,
    /// Index of its target CPU among the online CPUs.
    goes: usize,
}

impl Interrupts {
    pub(super) fn new(kernel: Kernel, online: Vec<u32>) -> Self {
        Self {
            kernel,
            online,
            rows: Vec::new(),
            on_line: Vec::new(),
        }
    }

    /// Allocates a virtio device's interrupts. The queues of a pair, `input.3` and `output.3`, go
    /// to one CPU, as in the driver.
    pub(super) fn virtio(&mut self, seat: &Seat, lines: Lines, queues: &[impl AsRef<str>]) {
        match lines {
            Lines::None => {}
            Lines::Intx => self.on_line.push(seat.name.clone()),
            Lines::Shared => {
                for (entry, what) in ["config", "virtqueues"].into_iter().enumerate() {
                    self.add(seat, entry, format!("{}-{what}", seat.name), 0);
                }
            }
            Lines::Own => {
                self.add(seat, 0, format!("{}-config", seat.name), 0);
                for (entry, queue) in queues.iter().map(AsRef::as_ref).enumerate() {
                    let number = queue.rsplit_once('.').and_then(|(_, digits)| digits.parse().ok());
                    self.add(
                        seat,
                        entry + 1,
                        format!("{}-{queue}", seat.name),
                        number.unwrap_or(entry),
                    );
                }
            }
        }
    }

    /// Allocates a vector of that name for another device.
    pub(super) fn other(&mut self, seat: &Seat, name: &str, number: usize) {
        self.add(seat, number, name.to_owned(), number);
    }

    fn add(&mut self, seat: &Seat, entry: usize, name: String, goes: usize) {
        self.rows.push(Row {
            address: seat.address.clone(),
            entry,
            name,
            goes: goes % self.online.len().max(1),
        });
    }

    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        let mut text = "     ".to_owned();
        for cpu in &self.online {
            text += &format!("{:>11}", format!("CPU{cpu}"));
        }
        text.push('\n');
        if !self.on_line.is_empty() {
            let handlers = format!("{}, uhci_hcd:usb1", self.on_line.join(", "));
            text += &format!(
                "{:>4}:{}  IO-APIC  {LINE}-fasteoi   {handlers}\n",
                LINE,
                self.counts(0, 77)
            );
            self.aim(dir, LINE, 0)?;
        }
        for (irq, row) in (FIRST..).zip(&self.rows) {
            // Configuration interrupts never fire here.
            let count = if row.name.ends_with("-config") {
                0
            } else {
                1000 + irq
            };
            let chip = if self.kernel.named_chips {
                format!("PCI-MSIX-{} {:>3}-edge", row.address, row.entry)
            } else {
                format!("PCI-MSI {}-edge", irq * 16384 + u32::try_from(row.entry)?)
            };
            text += &format!(
                "{irq:>4}:{}  {chip}      {}\n",
                self.counts(row.goes, count),
                row.name
            );
            self.aim(dir, irq, row.goes)?;
            let folder = format!("sys/devices/pci0000:00/{}/msi_irqs", row.address);
            attributes(dir, &folder, &[(&irq.to_string(), "msix")])?;
        }
        text += &format!(
            " LOC:{}   Local timer interrupts\n ERR:          0\n",
            self.counts(0, 9)
        );
        put(dir, "proc/interrupts", text)
    }

    fn counts(&self, goes: usize, count: u32) -> String {
        let cell = |place| format!(" {:>10}", if place == goes { count } else { 0 });
        (0..self.online.len()).map(cell).collect()
    }

    fn aim(&self, dir: &Path, irq: u32, goes: usize) -> Result<()> {
        let folder = format!("proc/irq/{irq}");
        let cpu = self.online.get(goes).copied().unwrap_or_default().to_string();
        attributes(dir, &folder, &[("smp_affinity_list", &cpu)])?;
        if self.kernel.effective {
            attributes(dir, &folder, &[("effective_affinity_list", &cpu)])?;
        }
        Ok(())
    }
}
