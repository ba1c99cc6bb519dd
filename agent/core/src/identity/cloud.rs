//! Instance data from cloud-init's data sources: NoCloud `meta-data`, ConfigDrive `meta_data.json`,
//! and cloud-init's own `instance-data.json`.
//!
//! All are parsed with the YAML parser of the workspace, since JSON is valid YAML.

use virtfleet_wire::layered::{Node, NodeValue, YamlError, parse_yaml};

use super::dmi;

/// Maximum length of a value in characters.
const MAX_CHARS: usize = 256;

/// Instance data of a data source. Missing fields are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seed {
    /// Instance id (KubeVirt's NoCloud: the firmware UUID; its ConfigDrive: `name.namespace`).
    pub instance_id: Option<String>,
    /// Requested host name.
    pub local_hostname: Option<String>,
    pub instance_type: Option<String>,
    /// Firmware UUID (ConfigDrive).
    pub uuid: Option<String>,
    /// The data source, e.g. `nocloud`.
    pub platform: Option<String>,
}

/// Parses NoCloud's `meta-data`: YAML with keys in kebab case.
///
/// # Errors
///
/// The text is not YAML.
pub fn nocloud(text: &str) -> Result<Seed, YamlError> {
    let root = first(text)?;
    Ok(Seed {
        instance_id: word(&root, &["instance-id", "instance_id"]),
        local_hostname: word(&root, &["local-hostname", "local_hostname", "hostname"]),
        instance_type: word(&root, &["instance-type", "instance_type"]),
        uuid: None,
        platform: None,
    })
}

/// Parses ConfigDrive's `openstack/latest/meta_data.json`, without its `devices`.
///
/// # Errors
///
/// The text is not JSON.
pub fn config_drive(text: &str) -> Result<Seed, YamlError> {
    let root = first(text)?;
    let uuid = word(&root, &["uuid"]);
    Ok(Seed {
        // Like cloud-init: the uuid is the instance id if there is no better one.
        instance_id: word(&root, &["instance_id", "instance-id"]).or_else(|| uuid.clone()),
        local_hostname: word(&root, &["hostname", "local-hostname", "name"]),
        instance_type: word(&root, &["instance_type", "instance-type"]),
        uuid: uuid.and_then(|uuid| dmi::uuid(&uuid)),
        platform: None,
    })
}

/// Parses `/run/cloud-init/instance-data.json`: the standard keys below `v1`, and the instance type
/// from the source's metadata below `ds.meta_data`.
///
/// # Errors
///
/// The text is not JSON.
pub fn instance_data(text: &str) -> Result<Seed, YamlError> {
    let root = first(text)?;
    let at = |path: &[&str], keys: &[&str]| {
        path.iter()
            .try_fold(&root, |node, key| node.get(key))
            .and_then(|node| word(node, keys))
    };
    Ok(Seed {
        instance_id: at(&["v1"], &["instance_id", "instance-id"]),
        local_hostname: at(&["v1"], &["local_hostname", "local-hostname"]),
        instance_type: at(&["ds", "meta_data"], &["instance_type", "instance-type"]),
        uuid: at(&["ds", "meta_data"], &["uuid"]).and_then(|uuid| dmi::uuid(&uuid)),
        platform: at(&["v1"], &["platform", "cloud_name"]),
    })
}

/// Returns the short name of the data source, e.g. `nocloud`, from
/// `/var/lib/cloud/instance/datasource` (`DataSourceNoCloud: DataSourceNoCloud [seed=/dev/vdb]…`).
pub fn datasource(text: &str) -> Option<String> {
    let class = text.split([':', ' ', '\n']).next()?.trim();
    let name = class.strip_prefix("DataSource")?.to_ascii_lowercase();
    let known = !name.is_empty() && name.len() <= 32 && name.bytes().all(|b| b.is_ascii_alphanumeric());
    known.then_some(name)
}

fn first(text: &str) -> Result<Node, YamlError> {
    let nothing = Node {
        line: 1,
        value: NodeValue::Mapping(Vec::new()),
    };
    Ok(parse_yaml(text)?.into_iter().next().unwrap_or(nothing))
}

/// Value of the first of these keys that has one. Numbers are valid: an instance id may be
/// unquoted.
fn word(node: &Node, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| {
        let text = match &node.get(key)?.value {
            NodeValue::Scalar(serde_json::Value::String(text)) => text.clone(),
            NodeValue::Scalar(value @ serde_json::Value::Number(_)) => value.to_string(),
            _ => return None,
        };
        // cloud-init replaces values that only root may read with such a text.
        plain(&text).filter(|text| !text.starts_with("redacted for non-root"))
    })
}

/// Returns the word in a one-line file such as `/var/lib/cloud/data/instance-id`.
pub fn plain(text: &str) -> Option<String> {
    let text = text.trim();
    let plain = !text.is_empty() && text.chars().count() <= MAX_CHARS && !text.contains(char::is_control);
    plain.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_source_is_read() {
        let seed = nocloud(
            "{ \"instance-id\": \"5d307ca9-b3ef-428c-8861-06e72d69f223\", \"local-hostname\": \"worker-0\", \
             \"instance-type\": \"u1.medium\" }\n",
        )
        .unwrap();
        assert_eq!(
            seed.instance_id.as_deref(),
            Some("5d307ca9-b3ef-428c-8861-06e72d69f223")
        );
        assert_eq!(seed.local_hostname.as_deref(), Some("worker-0"));
        assert_eq!(seed.instance_type.as_deref(), Some("u1.medium"));

        let seed = config_drive(
            r#"{"instance_id":"worker-0.cluster-a","hostname":"worker-0","uuid":"5D307CA9-B3EF-428C-8861-06E72D69F223",
                "devices":[{"type":"nic","tags":["x"]}]}"#,
        )
        .unwrap();
        assert_eq!(seed.instance_id.as_deref(), Some("worker-0.cluster-a"));
        assert_eq!(seed.uuid.as_deref(), Some("5d307ca9-b3ef-428c-8861-06e72d69f223"));

        let seed = instance_data(
            r#"{"base64_encoded_keys":[],"ds":{"meta_data":{"instance-type":"u1.small"}},
                "v1":{"instance_id":"i-1","local_hostname":"worker-0","platform":"nocloud","subplatform":"seed-dir"}}"#,
        )
        .unwrap();
        assert_eq!(seed.platform.as_deref(), Some("nocloud"));
        assert_eq!(seed.instance_type.as_deref(), Some("u1.small"));
    }

    #[test]
    fn missing_values_stay_missing() {
        for text in [
            "",
            "# nothing\n",
            "- a\n",
            "instance-id:\nlocal-hostname: [a]\n",
            "instance-id: \"a\\nb\"\n",
        ] {
            for seed in [nocloud(text), config_drive(text), instance_data(text)] {
                assert_eq!(seed.unwrap(), Seed::default(), "{text:?}");
            }
        }
        assert_eq!(
            nocloud("instance-id: 17\n").unwrap().instance_id.as_deref(),
            Some("17")
        );
        assert_eq!(nocloud("a: [\n").unwrap_err().line, 2);
    }

    #[test]
    fn the_data_source_has_a_short_name() {
        for (text, name) in [
            (
                "DataSourceNoCloud: DataSourceNoCloud [seed=/dev/vdb][dsmode=net]\n",
                Some("nocloud"),
            ),
            ("DataSourceConfigDrive: …", Some("configdrive")),
            ("DataSource", None),
            ("\u{0}\u{1}", None),
        ] {
            assert_eq!(datasource(text).as_deref(), name);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            drop((nocloud(&text), config_drive(&text), instance_data(&text), datasource(&text)));
        }
    }
}
