//! The patch of one OperatingSystemConfig.

use serde_json::{Value, json};

use super::{
    items::AgentItems,
    list::ItemList,
    others::claimed,
    record::{ItemRecord, OWNED_ITEMS_ANNOTATION},
};

/// Annotation with which an object gets no agent, if its value is `true`. Virtual machines have the
/// same.
pub const IGNORE_ANNOTATION: &str = "virtfleet.io/ignore";
/// Group and kind of the object.
const GROUP: &str = "extensions.gardener.cloud/";
const KIND: &str = "OperatingSystemConfig";
/// The purpose that node-agent applies on running machines.
const PURPOSE: &str = "reconcile";
/// Maximum conflicts that are named, each in a warning of its own.
const MAX_WARNINGS: usize = 3;
/// Maximum characters of a warning: the API server cuts longer ones.
const MAX_WARNING_CHARS: usize = 256;

/// What an admission does with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OscAction {
    /// The object is of another kind or purpose, or is being deleted.
    Skipped,
    /// The object has the annotation [`IGNORE_ANNOTATION`], and nothing of virtfleet.
    Ignored,
    /// The object already has everything.
    Unchanged,
    /// The patch adds, updates or removes items.
    Patched,
    /// The object has an item of somebody else at a path of virtfleet, or cannot be read.
    Conflict,
}

/// The patch of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OscPlan {
    /// What is done.
    pub action: OscAction,
    /// Operations of a JSON patch (RFC 6902); empty unless the action is [`OscAction::Patched`].
    pub patch: Vec<Value>,
    /// Warnings for the client that writes the object.
    pub warnings: Vec<String>,
}

impl OscPlan {
    fn without_patch(action: OscAction) -> Self {
        Self {
            action,
            patch: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Nothing is changed, with a reason for each warning.
    fn conflict(reasons: &[String]) -> Self {
        let warning = |reason: &String| {
            let text = format!(
                "virtfleet: {reason}, so the agent is not added; remove that, or set {IGNORE_ANNOTATION}: \"true\""
            );
            text.chars().take(MAX_WARNING_CHARS).collect()
        };
        Self {
            warnings: reasons.iter().take(MAX_WARNINGS).map(warning).collect(),
            ..Self::without_patch(OscAction::Conflict)
        }
    }
}

/// Plans the patch with which `object` has the items. `digest` is a hash of a text, in a few
/// characters.
pub fn plan(object: &Value, items: &AgentItems, digest: &dyn Fn(&str) -> String) -> OscPlan {
    let metadata = &object["metadata"];
    let group = object["apiVersion"].as_str().unwrap_or_default();
    let is_ours_to_change = group.starts_with(GROUP)
        && object["kind"] == KIND
        && object["spec"]["purpose"] == PURPOSE
        && metadata["deletionTimestamp"].is_null()
        && metadata.is_object()
        && (metadata["annotations"].is_null() || metadata["annotations"].is_object());
    if !is_ours_to_change {
        return OscPlan::without_patch(OscAction::Skipped);
    }
    let is_ignored = metadata["annotations"][IGNORE_ANNOTATION] == "true";
    let none = AgentItems::none();
    let items = if is_ignored { &none } else { items };
    let (files, units) = match (list(object, "files"), list(object, "units")) {
        (Ok(files), Ok(units)) => (files, units),
        (Err(reason), _) | (_, Err(reason)) => return OscPlan::conflict(&[reason]),
    };
    let recorded = ItemRecord::of(object);
    let files = ItemList {
        name: "files",
        key: "path",
        existing: files,
        wanted: &items.files,
        recorded: &recorded.files,
    }
    .plan(digest);
    let units = ItemList {
        name: "units",
        key: "name",
        existing: units,
        wanted: &items.units,
        recorded: &recorded.units,
    }
    .plan(digest);
    if !is_ignored {
        let place = |list: &'static str| move |id: &String| format!("spec.{list} has another {id}");
        let mut reasons: Vec<String> = files.conflicts.iter().map(place("files")).collect();
        reasons.extend(units.conflicts.iter().map(place("units")));
        reasons.extend(claimed(object, items));
        if !reasons.is_empty() {
            return OscPlan::conflict(&reasons);
        }
    }
    let record = ItemRecord::new(files.record, units.record);
    let mut patch = [files.operations, units.operations].concat();
    patch.extend(annotate(metadata, record.text()));
    match (patch.is_empty(), is_ignored) {
        (true, true) => OscPlan::without_patch(OscAction::Ignored),
        (true, false) => OscPlan::without_patch(OscAction::Unchanged),
        (false, _) => OscPlan {
            patch,
            ..OscPlan::without_patch(OscAction::Patched)
        },
    }
}

/// A list of `spec`; none if it is missing or null.
fn list<'v>(object: &'v Value, name: &str) -> Result<Option<&'v [Value]>, String> {
    match &object["spec"][name] {
        Value::Null => Ok(None),
        Value::Array(items) => Ok(Some(items)),
        _ => Err(format!("spec.{name} is not a list")),
    }
}

/// The operation that writes or removes the record, if it changes.
fn annotate(metadata: &Value, record: Option<String>) -> Option<Value> {
    let annotations = &metadata["annotations"];
    let now = annotations.get(OWNED_ITEMS_ANNOTATION);
    if now.and_then(Value::as_str) == record.as_deref() && (now.is_some() == record.is_some()) {
        return None;
    }
    let path = format!(
        "/metadata/annotations/{}",
        OWNED_ITEMS_ANNOTATION.replace('/', "~1")
    );
    Some(match record {
        None => json!({"op": "remove", "path": path}),
        Some(text) if annotations.is_object() => json!({"op": "add", "path": path, "value": text}),
        Some(text) => json!({
            "op": "add", "path": "/metadata/annotations", "value": {OWNED_ITEMS_ANNOTATION: text},
        }),
    })
}
