//! An object as an API server sends it, narrowed while it is read: of everything that it says, only the fields that make a
//! fact are kept, so that a list of thousands costs little memory.
//!
//! Reading never fails for what an object says, only for text that is not JSON: one odd object must not hide all others.

use std::{borrow::Cow, fmt};

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

use crate::inventory::read::Field;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Object {
    /// Name, namespace, UID, resourceVersion and generation.
    meta: ObjectMeta,
    body: Node,
}

impl Object {
    /// The object, for the readers that folder and cluster share.
    pub(super) fn field(&self) -> Field<'_> {
        Field::top(&self.body)
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
        let body = Narrow(&OBJECT).deserialize(deserializer)?;
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

/// Which part of a value is kept. In a list it holds for every item.
enum Keep {
    All,
    Only(&'static [(&'static str, Keep)]),
}
use Keep::{All, Only};

/// What the readers in `read` look at, over all kinds. A field that is read there and not named here is always absent in a
/// live cluster: the test `both_readers_give_the_same_fact` would tell.
static OBJECT: Keep = Only(&[
    (
        "metadata",
        Only(&[
            ("name", All),
            ("namespace", All),
            ("uid", All),
            ("resourceVersion", All),
            ("generation", All),
            ("deletionTimestamp", All),
            ("labels", All),
            ("annotations", Only(&[(ANNOTATION, All)])),
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
            ("domain", Only(&[("firmware", Only(&[("uuid", All)]))])),
            ("template", Only(&[("metadata", Only(&[("labels", All)]))])),
            ("vmiName", All),
            ("providerID", All),
            ("vmis", All),
            ("kubeconfig", All),
            ("suspend", All),
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
            ("interfaces", All),
            ("guestOSInfo", Only(&[("prettyName", All)])),
            ("conditions", Only(&[("type", All), ("status", All)])),
            (
                "migrationState",
                Only(&[
                    ("sourceNode", All),
                    ("targetNode", All),
                    ("completed", All),
                    ("failed", All),
                    ("startTimestamp", All),
                    ("endTimestamp", All),
                ]),
            ),
            ("printableStatus", All),
        ]),
    ),
]);

struct Narrow(&'static Keep);

impl<'de> DeserializeSeed<'de> for Narrow {
    type Value = Node;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn scalar(value: impl Into<Value>) -> Node {
    Node {
        line: 0,
        value: NodeValue::Scalar(value.into()),
    }
}

impl<'de> Visitor<'de> for Narrow {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(scalar(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(scalar(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(scalar(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(scalar(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(scalar(value))
    }
    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(scalar(value))
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(scalar(Value::Null))
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut kept = Vec::new();
        while let Some(item) = items.next_element_seed(Narrow(self.0))? {
            kept.push(item);
        }
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
                Some(keep) => kept.push((key.into_owned(), 0, entries.next_value_seed(Narrow(keep))?)),
                None => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Node {
            line: 0,
            value: NodeValue::Mapping(kept),
        })
    }
}
