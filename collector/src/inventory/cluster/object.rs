//! An object of an API server, reduced while it is parsed to the fields that facts need, so that a
//! list of thousands of objects uses little memory.
//!
//! Parsing fails only for text that is not JSON, never for an object's content: one malformed
//! object must not hide all others. An object larger than any real one is kept in part and marked
//! as incomplete.
//!
//! Fields that are not listed here are never kept, logged or shown. Of annotations only the
//! project's own and those that name an operating system are kept, not `kubevirt.io/ignitiondata`,
//! whose Ignition config contains tokens, nor `last-applied-configuration`, which repeats it.

use std::{borrow::Cow, cell::Cell, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use virtfleet_collector_core::labels::owned::ANNOTATION;
use virtfleet_wire::layered::{Node, NodeValue};

use crate::inventory::read::{ANNOTATIONS as OS_ANNOTATIONS, Field};

#[derive(Debug, Clone)]
pub(super) struct Object {
    /// Name, namespace, UID, resourceVersion and generation.
    meta: ObjectMeta,
    body: Node,
    is_complete: bool,
}

/// Maximum bytes kept of one object. Real objects need some KiB.
pub(super) const MAX_KEPT_BYTES: usize = 128 << 10;
/// Estimated memory of a value beside its text.
const VALUE_OVERHEAD_BYTES: usize = 128;

impl Object {
    /// The object for the readers shared by folder and cluster.
    pub(super) fn field(&self) -> Field<'_> {
        Field::top(&self.body)
    }

    /// Whether no needed field was dropped because of [`MAX_KEPT_BYTES`].
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn resource_version(&self) -> Option<&str> {
        self.meta.resource_version.as_deref()
    }

    pub(super) fn uid(&self) -> Option<String> {
        self.meta.uid.clone()
    }

    pub(super) fn generation(&self) -> i64 {
        self.meta.generation.unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let room = Cell::new(Some(MAX_KEPT_BYTES));
        let body = Narrow(&OBJECT, &room).deserialize(deserializer)?;
        let text = |name: &str| text_at(&body, &["metadata", name]);
        let generation = value_at(&body, &["metadata", "generation"]).and_then(Value::as_i64);
        Ok(Self {
            meta: ObjectMeta {
                name: text("name"),
                namespace: text("namespace"),
                uid: text("uid"),
                resource_version: text("resourceVersion"),
                generation,
                ..ObjectMeta::default()
            },
            body,
            is_complete: room.get().is_some(),
        })
    }
}

fn value_at<'a>(node: &'a Node, path: &[&str]) -> Option<&'a Value> {
    let mut node = node;
    for name in path {
        let NodeValue::Mapping(entries) = &node.value else {
            return None;
        };
        node = &entries.iter().find(|(key, ..)| key == name)?.2;
    }
    match &node.value {
        NodeValue::Scalar(value) => Some(value),
        _ => None,
    }
}

fn text_at(node: &Node, path: &[&str]) -> Option<String> {
    value_at(node, path)?.as_str().map(str::to_owned)
}

impl Resource for Object {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }
    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }
    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }
    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        kind.api_version.as_str().into()
    }
    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The part of a value that is kept. For a list it applies to every item.
enum FieldMask {
    All,
    Only(&'static [(&'static str, FieldMask)]),
}
use FieldMask::{All, Only};

/// What is kept at a path of an object, given by the names of its fields.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptPart {
    Nothing,
    Listed,
    Everything,
}

#[cfg(test)]
pub(super) fn kept_part(names: &[String]) -> KeptPart {
    let mut mask = &OBJECT;
    for name in names {
        mask = match mask {
            All => return KeptPart::Everything,
            Only(fields) => match fields.iter().find(|(one, _)| one == name) {
                Some((_, mask)) => mask,
                None => return KeptPart::Nothing,
            },
        };
    }
    match mask {
        All => KeptPart::Everything,
        Only(_) => KeptPart::Listed,
    }
}

/// The part of a pod's container that is kept.
const REQUESTS: FieldMask = Only(&[("restartPolicy", All), ("resources", Only(&[("requests", All)]))]);

/// The part of a volume of a VM that is kept: its name and the claim behind it. The rest may
/// contain user-data.
const VOLUMES: FieldMask = Only(&[
    ("name", All),
    ("persistentVolumeClaim", Only(&[("claimName", All)])),
    ("dataVolume", Only(&[("name", All)])),
    (
        "ephemeral",
        Only(&[("persistentVolumeClaim", Only(&[("claimName", All)]))]),
    ),
]);

/// Fields that the readers in `read` use, for all kinds. A field that is read there but not listed
/// here would always be absent in a live cluster; the test `every_field_that_is_read_is_kept`
/// detects that.
static OBJECT: FieldMask = Only(&[
    (
        "metadata",
        Only(&[
            ("name", All),
            ("namespace", All),
            ("uid", All),
            ("resourceVersion", All),
            ("generation", All),
            ("deletionTimestamp", All),
            ("creationTimestamp", All),
            (
                "ownerReferences",
                Only(&[
                    ("apiVersion", All),
                    ("kind", All),
                    ("name", All),
                    ("uid", All),
                    ("controller", All),
                ]),
            ),
            ("labels", All),
            (
                "annotations",
                Only(&[
                    (ANNOTATION, All),
                    (OS_ANNOTATIONS[0], All),
                    (OS_ANNOTATIONS[1], All),
                    (OS_ANNOTATIONS[2], All),
                    (OS_ANNOTATIONS[3], All),
                ]),
            ),
            (
                "managedFields",
                Only(&[
                    ("manager", All),
                    ("fieldsV1", Only(&[("f:metadata", Only(&[("f:labels", All)]))])),
                ]),
            ),
        ]),
    ),
    (
        "spec",
        Only(&[
            ("hostname", All),
            ("domain", Only(DOMAIN)),
            ("dnsPolicy", All),
            ("dnsConfig", All),
            ("nodeSelector", All),
            ("affinity", All),
            ("tolerations", All),
            ("topologySpreadConstraints", All),
            ("evictionStrategy", All),
            ("containers", REQUESTS),
            ("initContainers", REQUESTS),
            ("overhead", All),
            (
                "template",
                Only(&[
                    ("metadata", Only(&[("labels", All)])),
                    (
                        "spec",
                        Only(&[
                            ("domain", Only(&[("firmware", Only(&[("uuid", All)]))])),
                            ("volumes", VOLUMES),
                        ]),
                    ),
                ]),
            ),
            ("volumes", VOLUMES),
            ("running", All),
            ("runStrategy", All),
            ("preference", Only(&[("name", All)])),
            ("readinessProbe", Only(&[("guestAgentPing", All)])),
            ("nodeName", All),
            ("vmiName", All),
            ("providerID", All),
            ("unschedulable", All),
            ("taints", Only(&[("key", All), ("value", All), ("effect", All)])),
            ("vmis", All),
            ("kubeconfig", All),
            ("suspend", All),
            ("relay", All),
            ("nodeAuthorities", All),
            ("nodeConditions", All),
            ("mla", All),
            ("clusterSelector", All),
            ("dryRun", All),
            ("labels", All),
        ]),
    ),
    (
        "status",
        Only(&[
            ("phase", All),
            ("nodeName", All),
            ("nodeInfo", Only(&[("systemUUID", All)])),
            ("podIP", All),
            ("podIPs", Only(&[("ip", All)])),
            ("interfaces", All),
            ("guestOSInfo", Only(&[("prettyName", All), ("id", All)])),
            (
                "conditions",
                Only(&[
                    ("type", All),
                    ("status", All),
                    ("reason", All),
                    ("message", All),
                    ("lastTransitionTime", All),
                    ("lastHeartbeatTime", All),
                ]),
            ),
            ("evacuationNodeName", All),
            ("currentCPUTopology", All),
            ("memory", Only(&[("guestCurrent", All)])),
            ("volumeStatus", Only(VOLUME_STATUS)),
            (
                "migrationState",
                Only(&[
                    ("sourceNode", All),
                    ("targetNode", All),
                    ("completed", All),
                    ("failed", All),
                    ("startTimestamp", All),
                    ("endTimestamp", All),
                    ("mode", All),
                    ("failureReason", All),
                    ("migrationUid", All),
                ]),
            ),
            ("startTime", All),
            (
                "phaseTransitionTimestamps",
                Only(&[("phase", All), ("phaseTransitionTimestamp", All)]),
            ),
            ("printableStatus", All),
            (
                "allocatable",
                Only(&[("cpu", All), ("memory", All), ("pods", All)]),
            ),
        ]),
    ),
]);

/// An item of `status.volumeStatus` of a VMI.
static VOLUME_STATUS: &[(&str, FieldMask)] = &[
    ("name", All),
    ("phase", All),
    ("size", All),
    ("reason", All),
    ("message", All),
    ("hotplugVolume", All),
    ("memoryDumpVolume", Only(&[("claimName", All)])),
];

/// `spec.domain` of a VMI. `chassis` is not kept.
static DOMAIN: &[(&str, FieldMask)] = &[
    ("firmware", Only(&[("uuid", All)])),
    ("cpu", All),
    ("memory", All),
    ("resources", All),
    ("ioThreadsPolicy", All),
    (
        "devices",
        Only(&[
            ("disks", All),
            ("interfaces", All),
            ("blockMultiQueue", All),
            ("networkInterfaceMultiqueue", All),
            ("rng", All),
            ("tpm", All),
            ("autoattachMemBalloon", All),
        ]),
    ),
];

/// The fields to keep, and the remaining bytes; none once the limit was exceeded.
struct Narrow<'a>(&'static FieldMask, &'a Cell<Option<usize>>);

impl Narrow<'_> {
    /// Whether the limit allows a value with so many bytes of text.
    fn has_room(&self, text: usize) -> bool {
        let left = self
            .1
            .get()
            .and_then(|left| left.checked_sub(VALUE_OVERHEAD_BYTES + text));
        self.1.set(left);
        left.is_some()
    }

    fn scalar(&self, text: usize, value: impl Into<Value>) -> Node {
        let value = if self.has_room(text) {
            value.into()
        } else {
            Value::Null
        };
        Node {
            line: 0,
            value: NodeValue::Scalar(value),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Narrow<'_> {
    type Value = Node;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Narrow<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(self.scalar(0, value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(self.scalar(0, value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(self.scalar(0, value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(self.scalar(0, value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(self.scalar(value.len(), value))
    }
    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(self.scalar(value.len(), value))
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(self.scalar(0, Value::Null))
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(self.scalar(0, Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut kept = Vec::new();
        while self.has_room(0) {
            match items.next_element_seed(Narrow(self.0, self.1))? {
                Some(item) => kept.push(item),
                None => break,
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Node {
            line: 0,
            value: NodeValue::Sequence(kept),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut kept: Vec<(String, usize, Node)> = Vec::new();
        while let Some(key) = entries.next_key::<Cow<'_, str>>()? {
            let keep = match self.0 {
                All => Some(&All),
                Only(fields) => fields.iter().find(|(name, _)| *name == key).map(|(_, keep)| keep),
            };
            match keep {
                Some(keep) if self.has_room(key.len()) => {
                    let value = entries.next_value_seed(Narrow(keep, self.1))?;
                    kept.push((key.into_owned(), 0, value));
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Node {
            line: 0,
            value: NodeValue::Mapping(kept),
        })
    }
}
