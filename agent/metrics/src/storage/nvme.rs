//! `nvme`: NVMe controllers and their namespaces, from `/sys/class/nvme`.

use std::path::Path;

use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Files of a controller with their labels.
const FILES: [(&str, &str); 5] = [
    ("firmware_rev", "firmware_revision"),
    ("model", "model"),
    ("serial", "serial"),
    ("state", "state"),
    ("cntlid", "cntlid"),
];

/// A value of a namespace.
type Value = fn(&Namespace) -> Option<u64>;

struct Nvme {
    controllers: Devices<Controller>,
    buffer: Box<AttributeBuffer>,
}

struct Controller {
    files: [Attribute; FILES.len()],
    labels: [String; FILES.len()],
    namespaces: Devices<Namespace>,
}

struct Namespace {
    /// node_exporter's namespace ID: the last number of its name.
    id: String,
    used: Attribute,
    size: Attribute,
    block_size: Attribute,
    ana_state: Attribute,
    ana_state_now: String,
    used_now: Option<u64>,
    size_now: Option<u64>,
    block_size_now: Option<u64>,
}

impl Controller {
    fn new(path: &Path) -> Self {
        Self {
            files: FILES.map(|(file, _)| Attribute::new(path.join(file))),
            labels: Default::default(),
            namespaces: Devices::new(path),
        }
    }

    fn read(&mut self, buffer: &mut AttributeBuffer, skipped: &mut Skipped) {
        for (label, file) in self.labels.iter_mut().zip(&mut self.files) {
            label.clear();
            if let Ok(text) = file.read(buffer) {
                label.push_str(&text);
            }
        }
        let refreshed = self.namespaces.refresh(
            |name| namespace_id(name).is_some(),
            |name, path| Namespace {
                id: namespace_id(name).unwrap_or_default().to_owned(),
                used: Attribute::new(path.join("nuse")),
                size: Attribute::new(path.join("size")),
                block_size: Attribute::new(path.join("queue/logical_block_size")),
                ana_state: Attribute::new(path.join("ana_state")),
                ana_state_now: String::new(),
                used_now: None,
                size_now: None,
                block_size_now: None,
            },
        );
        match refreshed {
            Err(error) if error.is_missing() => return,
            done => skipped.take(done),
        };
        for namespace in self
            .namespaces
            .all()
            .iter_mut()
            .map(|namespace| &mut namespace.kept)
        {
            namespace.used_now = namespace.used.number(buffer).ok().flatten();
            namespace.size_now = namespace.size.number(buffer).ok().flatten();
            namespace.block_size_now = namespace.block_size.number(buffer).ok().flatten();
            namespace.ana_state_now.clear();
            let state = namespace.ana_state.read(buffer);
            namespace
                .ana_state_now
                .push_str(state.as_deref().unwrap_or("unknown"));
        }
    }
}

/// The last number of `nvme0n1`. `None` for other names, such as the paths `nvme0c0n1` below a
/// multipath device.
fn namespace_id(name: &str) -> Option<&str> {
    let (controller, id) = name.strip_prefix("nvme")?.split_once('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(controller) && is_number(id)).then_some(id)
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Nvme {
        controllers: Devices::new(context.roots.sys("class/nvme")),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Nvme {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        match self
            .controllers
            .refresh(|_| true, |_, path| Controller::new(path))
        {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("this kernel has no NVMe driver loaded"));
            }
            done => done?,
        };
        let mut skipped = Skipped::default();
        for controller in self.controllers.all() {
            controller.kept.read(&mut self.buffer, &mut skipped);
        }
        let mut family = page.family(
            "node_nvme_info",
            "Properties of an NVMe controller, always 1.",
            MetricType::Gauge,
        );
        for controller in self.controllers.all() {
            let mut labels = [("device", controller.name.as_str()); FILES.len() + 1];
            for (at, ((_, label), value)) in FILES.iter().zip(&controller.kept.labels).enumerate() {
                labels[at + 1] = (label, value);
            }
            family.sample(&labels, 1.0);
        }
        let mut family = page.family(
            "node_nvme_namespace_info",
            "Properties of an NVMe namespace, always 1.",
            MetricType::Gauge,
        );
        for controller in self.controllers.all() {
            for namespace in controller.kept.namespaces.all().iter().map(|it| &it.kept) {
                let labels = [
                    ("device", controller.name.as_str()),
                    ("nsid", &namespace.id),
                    ("ana_state", &namespace.ana_state_now),
                ];
                family.sample(&labels, 1.0);
            }
        }
        let families: [(&str, &str, Value); 4] = [
            (
                "node_nvme_namespace_capacity_bytes",
                "Capacity of an NVMe namespace in bytes: number of blocks times block size.",
                |it| it.size_now?.checked_mul(it.block_size_now?),
            ),
            (
                "node_nvme_namespace_size_bytes",
                "Size of an NVMe namespace in bytes.",
                |it| it.size_now?.checked_mul(it.block_size_now?),
            ),
            (
                "node_nvme_namespace_used_bytes",
                "Used space of an NVMe namespace in bytes.",
                |it| it.used_now?.checked_mul(it.block_size_now?),
            ),
            (
                "node_nvme_namespace_logical_block_size_bytes",
                "Size of a logical block of an NVMe namespace in bytes.",
                |it| it.block_size_now,
            ),
        ];
        for (name, help, value) in families {
            let mut family = page.family(name, help, MetricType::Gauge);
            for controller in self.controllers.all() {
                for namespace in controller.kept.namespaces.all().iter().map(|it| &it.kept) {
                    if let Some(value) = value(namespace) {
                        let labels = [("device", controller.name.as_str()), ("nsid", &namespace.id)];
                        family.sample(&labels, value as f64);
                    }
                }
            }
        }
        skipped.end()
    }
}
