//! Derives a device's queues from the names of its interrupt handlers.
//!
//! virtio over PCI names them (kernel: `drivers/virtio/virtio_pci_common.c`):
//!
//! | name | serves |
//! |---|---|
//! | `virtio0-config` | configuration changes; from Linux 6.11 on also control and administration queues, if there are not enough vectors |
//! | `virtio0-virtqueues` | all queues |
//! | `virtio0` | everything: a legacy interrupt (INTx), or a memory-mapped device (`virtio_mmio.c`) |
//! | `virtio0-` and the driver's name for the queue | that queue |
//!
//! Drivers' names for queues: `input.0`, `output.0` (net), `req.0` (blk), `control`, `event` and
//! one `request` per queue (scsi), `input` and `output` per port (console), `input` (rng), `rx`,
//! `tx`, `event` (vsock), `hiprio`, `requests.0` (fs), `inflate`, `deflate`, `stats`,
//! `free_page_vq`, `reporting_vq` (balloon), `avq.4` (administration). Queues without a handler
//! (net's `control`, blk's `req_poll.0`) are not visible.

use std::collections::BTreeMap;

use super::{Device, Queue, Role, Sharing, Vector};

/// Maximum number of queues per role; a device has at most 65,536 in all, and drivers use fewer
/// than this.
pub const MAX_QUEUES: u32 = 4096;

/// Events that a handler serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serves {
    Configuration,
    Queues,
    Everything,
    /// A queue; without a number if the driver sets none.
    Queue(Role, Option<u32>),
}

/// Parses a handler's name: the device, and what it serves. `None` if it is not of a virtio device.
pub fn handler(name: &str) -> Option<(&str, Serves)> {
    let (device, what) = name.split_once('-').unwrap_or((name, ""));
    let number = device.strip_prefix("virtio")?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let serves = match what {
        "" if name.len() == device.len() => Serves::Everything,
        "" => return None,
        "config" => Serves::Configuration,
        "virtqueues" => Serves::Queues,
        queue => {
            let (word, index) = match queue.rsplit_once('.') {
                Some((word, digits)) => match digits.parse() {
                    Ok(index) => (word, Some(index)),
                    Err(_) => (queue, None),
                },
                None => (queue, None),
            };
            Serves::Queue(role(word), index)
        }
    };
    Some((device, serves))
}

/// Role for the driver's name of a queue.
fn role(word: &str) -> Role {
    match word {
        "input" | "rx" => Role::Input,
        "output" | "tx" => Role::Output,
        "req" | "request" | "requests" => Role::Request,
        "control" | "controlq" => Role::Control,
        "event" => Role::Event,
        other => Role::Other(other.to_owned()),
    }
}

impl Device {
    /// Sets the interrupts, each with its handlers' names for this device, and adds the queues that
    /// they name.
    pub fn take_vectors(&mut self, vectors: Vec<Vector>) {
        self.sharing = Sharing::Unknown;
        self.queues.clear();
        let mut next: BTreeMap<Role, u32> = BTreeMap::new();
        for vector in &vectors {
            match handler(&vector.name) {
                Some((_, Serves::Everything)) => self.sharing = Sharing::Intx,
                Some((_, Serves::Queues)) => self.sharing = Sharing::Shared,
                Some((_, Serves::Queue(role, index))) => {
                    if self.sharing == Sharing::Unknown {
                        self.sharing = Sharing::Own;
                    }
                    // Queues with equal names appear in their order.
                    let unnumbered = next.entry(role.clone()).or_default();
                    let index = index.unwrap_or(*unnumbered);
                    *unnumbered = unnumbered.saturating_add(1);
                    if index < MAX_QUEUES {
                        self.queues.push(Queue {
                            role,
                            index,
                            irq: Some(vector.irq),
                        });
                    }
                }
                Some((_, Serves::Configuration)) | None => {}
            }
        }
        self.vectors = vectors;
        self.sort_queues();
    }

    /// Adds the queues of a role up to `count` that another source shows. A shared vector serves
    /// them, too.
    pub fn add_queues(&mut self, role: &Role, count: u32) {
        let shared = self.shared_vector();
        for index in 0..count.min(MAX_QUEUES) {
            let known = self
                .queues
                .iter()
                .any(|queue| queue.role == *role && queue.index == index);
            if !known {
                self.queues.push(Queue {
                    role: role.clone(),
                    index,
                    irq: shared,
                });
            }
        }
        self.sort_queues();
    }

    /// Interrupt of all queues, if they share one.
    pub fn shared_vector(&self) -> Option<u32> {
        let all = |serves: &Serves| matches!(serves, Serves::Queues | Serves::Everything);
        let mut vectors = self.vectors.iter();
        let found = vectors.find(|vector| handler(&vector.name).is_some_and(|(_, serves)| all(&serves)));
        found.map(|vector| vector.irq)
    }

    fn sort_queues(&mut self) {
        self.queues
            .sort_by(|one, other| (&one.role, one.index).cmp(&(&other.role, other.index)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vectors(names: &[&str]) -> Vec<Vector> {
        let vector = |(irq, name): (u32, &&str)| Vector {
            irq,
            name: (*name).to_owned(),
            ..Vector::default()
        };
        (40..).zip(names).map(vector).collect()
    }

    fn device(names: &[&str]) -> Device {
        let mut device = Device::default();
        device.take_vectors(vectors(names));
        device
    }

    fn queues(device: &Device) -> Vec<(Role, u32, Option<u32>)> {
        let queues = device.queues.iter();
        queues
            .map(|queue| (queue.role.clone(), queue.index, queue.irq))
            .collect()
    }

    #[test]
    fn handler_names_are_parsed() {
        let queue = |role, index| Some(("virtio12", Serves::Queue(role, index)));
        for (name, expected) in [
            ("virtio12", Some(("virtio12", Serves::Everything))),
            ("virtio12-config", Some(("virtio12", Serves::Configuration))),
            ("virtio12-virtqueues", Some(("virtio12", Serves::Queues))),
            ("virtio12-input.3", queue(Role::Input, Some(3))),
            ("virtio12-rx", queue(Role::Input, None)),
            ("virtio12-requests.1", queue(Role::Request, Some(1))),
            ("virtio12-avq.4", queue(Role::Other("avq".to_owned()), Some(4))),
            (
                "virtio12-control-i",
                queue(Role::Other("control-i".to_owned()), None),
            ),
            ("virtio12-a.b", queue(Role::Other("a.b".to_owned()), None)),
            ("virtio12-", None),
            ("virtio", None),
            ("virtio-config", None),
            ("virtiofs0", None),
            ("nvme0q1", None),
            ("", None),
        ] {
            assert_eq!(handler(name), expected, "{name}");
        }
    }

    #[test]
    fn queues_with_own_vectors() {
        let net = device(&[
            "virtio0-config",
            "virtio0-input.0",
            "virtio0-output.0",
            "virtio0-input.1",
            "virtio0-output.1",
        ]);
        assert_eq!(net.sharing, Sharing::Own);
        assert_eq!(
            queues(&net),
            [
                (Role::Input, 0, Some(41)),
                (Role::Input, 1, Some(43)),
                (Role::Output, 0, Some(42)),
                (Role::Output, 1, Some(44)),
            ]
        );
        assert_eq!(net.shared_vector(), None);
        let scsi = device(&[
            "virtio0-config",
            "virtio0-control",
            "virtio0-event",
            "virtio0-request",
            "virtio0-request",
        ]);
        assert_eq!(
            queues(&scsi),
            [
                (Role::Request, 0, Some(43)),
                (Role::Request, 1, Some(44)),
                (Role::Control, 0, Some(41)),
                (Role::Event, 0, Some(42)),
            ]
        );
    }

    #[test]
    fn shared_vectors_serve_added_queues() {
        let mut shared = device(&["virtio0-config", "virtio0-virtqueues"]);
        assert_eq!((shared.sharing, shared.queues.len()), (Sharing::Shared, 0));
        shared.add_queues(&Role::Request, 2);
        assert_eq!(
            queues(&shared),
            [(Role::Request, 0, Some(41)), (Role::Request, 1, Some(41))]
        );
        let mut line = device(&["virtio0"]);
        line.add_queues(&Role::Input, 1);
        assert_eq!((line.sharing, line.queues[0].irq), (Sharing::Intx, Some(40)));
        let mut own = device(&["virtio0-config", "virtio0-req.0"]);
        own.add_queues(&Role::Request, 2);
        assert_eq!(
            queues(&own),
            [(Role::Request, 0, Some(41)), (Role::Request, 1, None)]
        );
        assert_eq!(device(&["virtio0-config"]).sharing, Sharing::Unknown);
        assert_eq!(device(&[]), Device::default());
        own.add_queues(&Role::Request, u32::MAX);
        assert_eq!(own.queues.len(), MAX_QUEUES as usize);
    }

    proptest! {
        #[test]
        fn no_name_panics(names in proptest::collection::vec("(virtio[0-9]{0,12}(-[a-z._0-9]{0,14})?)|\\PC{0,30}", 0..20)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let device = device(&names);
            prop_assert!(device.queues.len() <= names.len());
        }
    }
}
