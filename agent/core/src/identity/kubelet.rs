//! Kubelet's configuration of its own node: labels, name, provider id.

use std::collections::BTreeMap;

use virtfleet_wire::layered::{YamlError, parse_yaml};

use super::cloud::plain;

/// Maximum number of labels.
const MAX_LABELS: usize = 256;

/// Configuration from one source (a command line, a file). Missing fields are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeletConfig {
    /// `--node-labels` by key; repeated flags add up, as in kubelet.
    pub labels: BTreeMap<String, String>,
    /// `--hostname-override`.
    pub node_name: Option<String>,
    /// `--provider-id`, or `providerID` of the configuration file.
    pub provider_id: Option<String>,
    /// `--config`: path of the configuration file.
    pub config: Option<String>,
    /// `--config-dir`: directory of configuration drop-ins.
    pub config_dir: Option<String>,
}

/// Parses kubelet's arguments, with or without the program name. Flags are `--name=value` or
/// `--name value`, with one or two dashes (pflag).
pub fn arguments<S: AsRef<str>>(arguments: &[S]) -> KubeletConfig {
    let mut told = KubeletConfig::default();
    let mut rest = arguments.iter().map(AsRef::as_ref);
    while let Some(argument) = rest.next() {
        let Some(flag) = argument.strip_prefix("--") else {
            continue;
        };
        let (name, inline) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        let known = [
            "node-labels",
            "hostname-override",
            "provider-id",
            "config",
            "config-dir",
        ];
        if !known.contains(&name) {
            continue;
        }
        let Some(value) = inline.or_else(|| rest.next()) else {
            break;
        };
        match name {
            "node-labels" => told.add_labels(value),
            "hostname-override" => told.node_name = plain(value),
            "provider-id" => told.provider_id = plain(value),
            "config" => told.config = plain(value),
            _ => told.config_dir = plain(value),
        }
    }
    told
}

impl KubeletConfig {
    /// Parses `a=b,c=d`; ignores entries that are not valid labels.
    fn add_labels(&mut self, text: &str) {
        for (key, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            let (key, value) = (key.trim(), value.trim());
            if self.labels.len() < MAX_LABELS
                && is_label(key, 317)
                && (value.is_empty() || is_label(value, 63))
            {
                self.labels.insert(key.to_owned(), value.to_owned());
            }
        }
    }
}

fn is_label(text: &str, most: usize) -> bool {
    !text.is_empty()
        && text.len() <= most
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
}

/// Splits `/proc/PID/cmdline` into arguments if the process is kubelet: the base name of the
/// program is `kubelet` or `hyperkube`.
pub fn command_line(bytes: &[u8]) -> Option<Vec<String>> {
    let arguments: Vec<String> = bytes
        .strip_suffix(b"\0")
        .unwrap_or(bytes)
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let program = arguments.first()?.rsplit('/').next()?;
    ["kubelet", "hyperkube"].contains(&program).then_some(arguments)
}

/// Parses the `providerID` of a `KubeletConfiguration`.
///
/// # Errors
///
/// The text is not YAML.
pub fn configuration(text: &str) -> Result<KubeletConfig, YamlError> {
    let provider_id = parse_yaml(text)?
        .iter()
        .find_map(|document| document.get("providerID")?.as_str().and_then(plain));
    Ok(KubeletConfig {
        provider_id,
        ..KubeletConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn flags_are_read_in_every_form() {
        let told = arguments(&[
            "/usr/bin/kubelet",
            "--v=4",
            "--node-labels=topology.kubernetes.io/zone=a,x=",
            "--hostname-override",
            "worker-0",
            "--node-labels",
            "pool=blue,=bad,bad,b\u{7}d=1",
            "--provider-id=kubevirt://worker-0",
            "--config=/var/lib/kubelet/config.yaml",
            "--node-labels",
        ]);
        let labels: Vec<_> = told.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(labels, ["pool=blue", "topology.kubernetes.io/zone=a", "x="]);
        assert_eq!(told.node_name.as_deref(), Some("worker-0"));
        assert_eq!(told.provider_id.as_deref(), Some("kubevirt://worker-0"));
        assert_eq!(told.config.as_deref(), Some("/var/lib/kubelet/config.yaml"));
    }

    #[test]
    fn only_kubelet_command_lines_are_parsed() {
        assert_eq!(
            command_line(b"/usr/local/bin/kubelet\0--v=2\0").unwrap(),
            ["/usr/local/bin/kubelet", "--v=2"]
        );
        for other in [
            &b""[..],
            b"/bin/kubelet-wrapper\0--v=2\0",
            b"grep\0kubelet\0",
            &[0xff, 0xfe],
        ] {
            assert_eq!(command_line(other), None);
        }
    }

    #[test]
    fn provider_id_is_read_from_configuration() {
        let told = configuration("kind: KubeletConfiguration\nproviderID: kubevirt://a\n").unwrap();
        assert_eq!(told.provider_id.as_deref(), Some("kubevirt://a"));
        assert_eq!(configuration("").unwrap(), KubeletConfig::default());
        assert!(configuration("a: [").is_err());
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,80}") {
            if let Some(line) = command_line(&bytes) {
                arguments(&line);
            }
            arguments(&["--node-labels", &text]);
            drop(configuration(&text));
        }
    }
}
