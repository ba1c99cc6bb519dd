//! `-o name`: names that other commands accept.

use serde_json::Value;

use super::{fail::Fail, text::safe};

/// Objects whose namespace is a property and no part of the name.
const WITHOUT_NAMESPACE: &str = "/api/v1/clusters";

/// The name of each item of the response of `path`, or that of the only object; repeated ones once.
pub(super) fn names(path: &str, body: &Value) -> Result<String, Fail> {
    let one = std::slice::from_ref(body);
    let items = body["items"].as_array().map_or(one, Vec::as_slice);
    let mut text = String::new();
    let mut last = String::new();
    for item in items {
        let name = name(item, path != WITHOUT_NAMESPACE)
            .ok_or_else(|| Fail::Usage("-o name is for objects that have names".to_owned()))?;
        let name = safe(&name, usize::MAX);
        if name != last {
            text.extend([name.as_str(), "\n"]);
        }
        last = name;
    }
    Ok(text)
}

fn name(item: &Value, is_namespaced: bool) -> Option<String> {
    let text = |name: &str| item[name].as_str();
    if let Some(stream) = text("stream") {
        return Some(stream.to_owned());
    }
    match (text("namespace"), text("name"), &item["subject"]) {
        (Some(namespace), Some(name), _) if is_namespaced => Some(format!("{namespace}/{name}")),
        (_, Some(name), _) => Some(name.to_owned()),
        (_, None, Value::Object(subject)) => {
            let part = |name: &str| subject.get(name).and_then(Value::as_str);
            Some(format!("{}/{}", part("kind")?, part("name")?))
        }
        _ => text("id").or(text("node")).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_those_that_other_commands_accept() {
        let list = json!({ "items": [
            { "namespace": "a", "name": "x" },
            { "namespace": "a", "name": "x" },
            { "name": "h\u{1b}1" },
            { "namespace": null, "name": null, "subject": { "kind": "Manifest", "name": "f" } },
            { "id": "3f" },
            { "stream": "cluster/x" },
        ] });
        assert_eq!(
            names("", &list).unwrap(),
            "a/x\nh\\u{1b}1\nManifest/f\n3f\ncluster/x\n"
        );
        assert_eq!(
            names("", &json!({ "namespace": "a", "name": "x" })).unwrap(),
            "a/x\n"
        );
        let cluster = json!({ "items": [{ "namespace": "a", "name": "x" }] });
        assert_eq!(names("/api/v1/clusters", &cluster).unwrap(), "x\n");
        assert!(names("", &json!({ "verdict": "Healthy" })).is_err());
    }
}
