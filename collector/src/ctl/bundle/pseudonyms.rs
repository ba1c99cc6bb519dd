//! `--redact-names`: replaces names and addresses by pseudonyms, the same one wherever a name
//! occurs in the bundle.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::LazyLock,
};

use regex_lite::{Captures, Regex};
use serde_json::Value;

/// Fields with names, and the beginnings of their pseudonyms. Only these are replaced as a whole;
/// in sentences, words that equal one of these values are.
const NAME_FIELDS: [(&str, &str); 12] = [
    ("namespace", "namespace"),
    ("cluster", "cluster"),
    ("clusters", "cluster"),
    ("infraNode", "host"),
    ("source", "host"),
    ("target", "host"),
    ("userNode", "node"),
    ("hostname", "guest"),
    ("host", "host"),
    ("node", "node"),
    ("uid", "uid"),
    ("endpoint", "endpoint"),
];
/// Fields of a VM with free texts about its guest, which have names that are not known.
const DROPPED_FIELDS: [&str; 6] = [
    "report",
    "labels",
    "infraNodeLabels",
    "userNodeLabels",
    "identity",
    "nodeSelector",
];
/// Minimum length of a name that is replaced as a word of a sentence.
const MIN_WORD_LENGTH: usize = 2;

/// Words of names, and addresses.
static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[A-Za-z0-9][A-Za-z0-9._:-]*").ok());
/// Hardware addresses.
static MAC: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?i)([0-9a-f]{2}:){5}[0-9a-f]{2}$").ok());

#[derive(Debug, Default)]
pub(super) struct Pseudonyms {
    known: HashMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Pseudonyms {
    /// Learns the names in a response of the API. `kind` is what its items are.
    pub(super) fn learn(&mut self, value: &Value, kind: &'static str) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item, kind)),
            Value::Object(fields) => {
                // First, so that a guest whose host name is that of its VM is named as the VM.
                if let Some(Value::String(name)) = fields.get("name") {
                    match kind {
                        "" if fields.contains_key("namespace") => self.add("vm", name),
                        "" => {}
                        kind => self.add(kind, name),
                    }
                }
                for (name, value) in fields {
                    // Elsewhere a source is that of a value.
                    let is_place =
                        !matches!(name.as_str(), "source" | "target") || fields.contains_key("phase");
                    let named = NAME_FIELDS.iter().find(|(field, _)| is_place && field == name);
                    match (named, value) {
                        (Some((_, kind)), Value::String(text)) => self.add(kind, text),
                        (Some((_, kind)), Value::Array(items)) => {
                            let texts = items.iter().filter_map(Value::as_str);
                            texts.for_each(|text| self.add(kind, text));
                        }
                        // The subject of a finding has a name of any kind.
                        _ => self.learn(value, if name == "items" { kind } else { "" }),
                    }
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, kind: &'static str, name: &str) {
        if name.is_empty() || self.known.contains_key(name) {
            return;
        }
        let pseudonym = self.next(kind);
        self.known.insert(name.to_owned(), pseudonym);
    }

    fn next(&mut self, kind: &'static str) -> String {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        format!("{kind}-{count}")
    }

    /// A value without names.
    pub(super) fn replace_json(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.replace(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_json(item)),
            Value::Object(fields) => {
                fields.retain(|name, _| !DROPPED_FIELDS.contains(&name.as_str()));
                fields.iter_mut().for_each(|(_, value)| self.replace_json(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A page of metrics without names: only values of labels have any.
    pub(super) fn replace_metrics(&mut self, page: &str) -> String {
        let mut out = String::with_capacity(page.len());
        for line in page.split_inclusive('\n') {
            if line.starts_with('#') {
                out.push_str(line);
                continue;
            }
            let (mut rest, mut is_value) = (line, false);
            while let Some(at) = quote(rest) {
                let (part, after) = rest.split_at(at);
                if is_value {
                    out.push_str(&self.replace(part));
                } else {
                    out.push_str(part);
                }
                out.push('"');
                (rest, is_value) = (&after[1..], !is_value);
            }
            out.push_str(rest);
        }
        out
    }

    /// A text without names.
    pub(super) fn replace(&mut self, text: &str) -> String {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let Some(words) = WORDS.as_ref() else {
            return String::new();
        };
        words
            .replace_all(text, |found: &Captures<'_>| self.word(&found[0]))
            .into_owned()
    }

    fn word(&mut self, whole: &str) -> String {
        let word = whole.trim_end_matches(['.', ':', '-']);
        let rest = &whole[word.len()..];
        if let Some(known) = self.lookup(word) {
            return format!("{known}{rest}");
        }
        if let Some(address) = self.address(word) {
            return format!("{address}{rest}");
        }
        // `host:port`, and the parts of a domain name.
        for separator in [':', '.'] {
            if let Some((first, others)) = word.split_once(separator) {
                let (first, others) = (self.word(first), self.word(others));
                return format!("{first}{separator}{others}{rest}");
            }
        }
        whole.to_owned()
    }

    fn lookup(&self, word: &str) -> Option<String> {
        (word.len() >= MIN_WORD_LENGTH)
            .then(|| self.known.get(word).cloned())
            .flatten()
    }

    fn address(&mut self, word: &str) -> Option<String> {
        let is_mac = MAC.as_ref().is_some_and(|mac| mac.is_match(word));
        let kind = if is_mac {
            "mac"
        } else if word.parse::<IpAddr>().is_ok() {
            "ip"
        } else {
            return None;
        };
        self.add(kind, word);
        self.known.get(word).cloned()
    }
}

/// The position of the next quote that is not escaped.
fn quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_quote = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_quote
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_addresses_are_replaced_everywhere_by_the_same_pseudonyms() {
        let mut names = Pseudonyms::default();
        let vms = json!({ "items": [
            { "namespace": "acme", "name": "worker-0", "infraNode": "rack7.dc", "cluster": "prod" },
            { "namespace": "acme", "name": "worker-1", "infraNode": "rack8" },
        ] });
        names.learn(&vms, "vm");
        names.learn(&json!({ "items": [{ "name": "rack9" }] }), "host");
        let mut findings = json!({ "items": [{
            "namespace": "acme", "name": "worker-0", "labels": { "owner": "alice" },
            "message": "acme/worker-0 is silent on rack7.dc: 10.0.0.7:10911 and fd00::7, 02:00:00:00:00:01.",
            "next": "kubectl -n acme describe vmi worker-0; kubectl get node rack9", "severity": "warning",
        }] });
        names.replace_json(&mut findings);
        let text = findings.to_string();
        for name in ["acme", "worker", "rack", "10.0.0", "fd00", "02:00", "alice"] {
            assert!(!text.contains(name), "{name}: {text}");
        }
        let message = findings["items"][0]["message"].as_str().unwrap();
        let vm = names.replace("worker-0");
        let namespace = names.replace("acme");
        assert!(
            message.starts_with(&format!("{namespace}/{vm} is silent on host-")),
            "{message}"
        );
        assert!(message.ends_with("ip-1:10911 and ip-2, mac-1."), "{message}");
        assert_eq!(findings["items"][0]["severity"], "warning");
        let page =
            names.replace_metrics("# HELP acme x\nup{x=\"a\\\"\",namespace=\"acme\",name=\"worker-0\"} 1\n");
        assert_eq!(
            page,
            format!("# HELP acme x\nup{{x=\"a\\\"\",namespace=\"{namespace}\",name=\"{vm}\"}} 1\n")
        );
    }
}
