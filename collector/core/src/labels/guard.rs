//! Which label keys may be written, and the syntax of keys and values.

use super::policy::{Rule, Source};

/// The domain whose labels NodeRestriction forbids a kubelet to write: use it for labels that the
/// VM must not forge.
const NODE_RESTRICTION: &str = "node-restriction.kubernetes.io";

/// Keys reserved for Kubernetes that may be written nevertheless: the location of a Node.
const TOPOLOGY_KEYS: [&str; 4] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];

/// Maximum characters of a label's value, and of a key's name (Kubernetes: `IsQualifiedName`,
/// `IsValidLabelValue`).
const MAX_NAME_CHARS: usize = 63;

/// Maximum characters of a key's prefix (a DNS subdomain).
const MAX_PREFIX_CHARS: usize = 253;

/// Why no policy may write a key; none if policies may. Kubernetes reserves `kubernetes.io` and
/// `k8s.io` with all their subdomains for roles, taint-like marks and what the kubelet reports
/// about its Node; schedulers, admission and controllers act on them.
pub fn protected(key: &str) -> Option<String> {
    let (domain, _) = key.split_once('/')?;
    let below = |parent: &str| {
        let rest = domain.strip_suffix(parent);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if !(below("kubernetes.io") || below("k8s.io")) || TOPOLOGY_KEYS.contains(&key) || below(NODE_RESTRICTION)
    {
        return None;
    }
    let why = match domain {
        "node-role.kubernetes.io" => "it sets the role of a Node",
        "kubernetes.io" | "beta.kubernetes.io" | "kubelet.kubernetes.io" | "node.kubernetes.io" => {
            "the Node's kubelet or its cloud controller sets it"
        }
        _ => "kubernetes.io and k8s.io with all subdomains are reserved for Kubernetes",
    };
    Some(format!(
        "{key} is never written: {why}; set another `target`, e.g. {}/{}",
        "virtfleet.io",
        key.rsplit('/').next().unwrap_or_default()
    ))
}

/// Why a rule can never apply, whatever labels an infra node has: its target, or every key below
/// its target prefix, is protected. None if it can apply.
pub fn never_applies(rule: &Rule) -> Option<String> {
    let target = rule.target.as_deref();
    match &rule.source {
        Source::Key(key) => protected(target.unwrap_or(key)),
        Source::Prefix(prefix) => {
            let prefix = target.unwrap_or(prefix);
            let reaches_a_place = TOPOLOGY_KEYS.iter().any(|place| place.starts_with(prefix));
            protected(&format!("{prefix}x")).filter(|_| !reaches_a_place).map(|_| {
                format!("no key that begins with {prefix} is ever written: such keys are reserved for Kubernetes; set another `target`")
            })
        }
    }
}

/// Whether a kubelet is forbidden to write this key. The ownership annotation, which a kubelet can
/// edit, must not authorise changes of it either.
pub fn is_node_restriction(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    let rest = domain.and_then(|domain| domain.strip_suffix(NODE_RESTRICTION));
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether a kubelet writes this key at every start, if its `--node-labels` or its cloud provider
/// set it. It writes any other key only when it registers the Node (`updateDefaultLabels` in
/// Kubernetes' `pkg/kubelet/kubelet_node_status.go`: hostname, zone, region, instance type,
/// operating system and architecture, of which only zone and region may be written here).
pub fn kubelet_imposes(key: &str) -> bool {
    TOPOLOGY_KEYS.contains(&key)
}

/// Checks Kubernetes' syntax of a label key: `[prefix/]name`.
///
/// # Errors
/// The violated rule.
pub fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.is_empty() || !is_name(name) {
        return Err(format!(
            "{key:?} is not a label key: its name (after the `/`) has 1 to {MAX_NAME_CHARS} characters, letters, digits, `-`, `_` and \
             `.`, and begins and ends with a letter or digit"
        ));
    }
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        return Err(format!(
            "{key:?} is not a label key: its prefix (before the `/`) is a DNS name of at most {MAX_PREFIX_CHARS} lower-case letters, \
             digits, `-` and `.`"
        ));
    }
    Ok(())
}

/// Checks Kubernetes' syntax of a label value; it may be empty.
///
/// # Errors
/// The violated rule.
pub fn check_value(value: &str) -> Result<(), String> {
    if is_name(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is not a label value: it has at most {MAX_NAME_CHARS} characters, letters, digits, `-`, `_` and `.`, and begins and \
         ends with a letter or digit"
    ))
}

/// Whether a text is empty or a qualified name.
fn is_name(text: &str) -> bool {
    let ends = |text: &str| {
        let byte = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
        byte(text.bytes().next()) && byte(text.bytes().last())
    };
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= MAX_NAME_CHARS && text.bytes().all(inside) && ends(text)
}

fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= MAX_PREFIX_CHARS && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_keys_are_protected_except_locations() {
        for key in [
            "kubernetes.io/hostname",
            "kubernetes.io/arch",
            "kubernetes.io/os",
            "beta.kubernetes.io/arch",
            "beta.kubernetes.io/os",
            "beta.kubernetes.io/instance-type",
            "node-role.kubernetes.io/control-plane",
            "node.kubernetes.io/instance-type",
            "node.kubernetes.io/exclude-from-external-load-balancers",
            "kubelet.kubernetes.io/x",
            "sub.kubelet.kubernetes.io/x",
            "topology.kubernetes.io/rack",
            "failure-domain.beta.kubernetes.io/rack",
            "k8s.io/x",
            "cluster.x-k8s.io.k8s.io/x",
            "a.k8s.io/x",
        ] {
            assert!(protected(key).is_some_and(|why| why.contains(key)), "{key}");
        }
        for key in [
            "topology.kubernetes.io/region",
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/zone",
            "node-restriction.kubernetes.io/rack",
            "example.com.node-restriction.kubernetes.io/rack",
            "virtfleet.io/rack",
            "rack.example.com/row",
            "notkubernetes.io/x",
            "cluster.x-k8s.io/x",
            "rack",
        ] {
            assert_eq!(protected(key), None, "{key}");
        }
        for (key, why) in [
            ("node-role.kubernetes.io/control-plane", "role of a Node"),
            ("kubernetes.io/hostname", "kubelet or its cloud controller"),
            ("beta.kubernetes.io/arch", "kubelet or its cloud controller"),
            ("kubelet.kubernetes.io/x", "kubelet or its cloud controller"),
            (
                "node.kubernetes.io/instance-type",
                "kubelet or its cloud controller",
            ),
            ("topology.kubernetes.io/rack", "reserved for Kubernetes"),
            ("a.k8s.io/x", "reserved for Kubernetes"),
        ] {
            assert!(protected(key).unwrap().contains(why), "{key}");
        }
        assert!(
            kubelet_imposes("topology.kubernetes.io/zone")
                && kubelet_imposes("failure-domain.beta.kubernetes.io/region")
        );
        assert!(!kubelet_imposes("rack") && !kubelet_imposes("node-restriction.kubernetes.io/rack"));
        assert!(is_node_restriction("node-restriction.kubernetes.io/rack"));
        assert!(is_node_restriction(
            "example.com.node-restriction.kubernetes.io/rack"
        ));
        assert!(!is_node_restriction("xnode-restriction.kubernetes.io/rack"));
        assert!(protected("xnode-restriction.kubernetes.io/rack").is_some());
    }

    #[test]
    fn rules_that_never_apply_are_detected() {
        let rule = |source: Source, target: Option<&str>| {
            never_applies(&Rule {
                source,
                target: target.map(str::to_owned),
                mode: None,
                takeover: None,
            })
        };
        let key = |key: &str| Source::Key(key.into());
        let prefix = |prefix: &str| Source::Prefix(prefix.into());
        for (source, target) in [
            (key("kubernetes.io/hostname"), None),
            (key("rack"), Some("node-role.kubernetes.io/rack")),
            (prefix("node-role.kubernetes.io/"), None),
            (prefix("rack.example.com/"), Some("node.kubernetes.io/x-")),
            (prefix("topology.kubernetes.io/rack"), None),
        ] {
            assert!(rule(source.clone(), target).is_some(), "{source:?} {target:?}");
        }
        for (source, target) in [
            (key("kubernetes.io/hostname"), Some("virtfleet.io/host")),
            (key("topology.kubernetes.io/zone"), None),
            (prefix("topology.kubernetes.io/"), None),
            (prefix("topology.kubernetes.io/z"), None),
            (prefix("rack."), None),
            (prefix("kubernetes.io/"), Some("virtfleet.io/")),
            (prefix("rack.node-restriction.kubernetes.io/"), None),
        ] {
            assert_eq!(rule(source.clone(), target), None, "{source:?} {target:?}");
        }
    }

    #[test]
    fn syntax_of_keys_and_values() {
        let long = "a".repeat(64);
        let prefix = |length: usize| format!("{}/x", "a".repeat(length));
        for valid in ["a", "a.b/c", "A_b-c.D", &long[1..], &prefix(253), "1/1"] {
            check_key(valid).unwrap();
        }
        for invalid in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "-a",
            "a-",
            "A.b/c",
            "a..b/c",
            "a_b/c",
            "-a/c",
            "ä",
            &long,
            &prefix(254),
        ] {
            assert!(check_key(invalid).unwrap_err().contains("label key"), "{invalid}");
        }
        for valid in ["", "a", "0", "A_b-c.D", &long[1..]] {
            check_value(valid).unwrap();
        }
        for invalid in ["-", "a-", ".a", "a b", "a/b", "ä", &long] {
            assert!(
                check_value(invalid).unwrap_err().contains("at most 63"),
                "{invalid}"
            );
        }
    }
}
